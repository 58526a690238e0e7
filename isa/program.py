"""`Program`: everything a device and a host need to run one compiled model, and its file format.

A program is a list of steps over named buffers. Device buffers live in one of two regions of external memory
(constants, read only; arena, read and write), host buffers in memory of the host process. An `NpuStep` runs a slice
of the instruction image; a `CpuStep` calls a native kernel with buffer addresses.

File: magic, version, manifest length, manifest (JSON), then the binary sections named there; every section and the
manifest carry a CRC-32 and the file ends with a SHA-256 over everything before it.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import TilewrightError
from common.store import write_atomically
from isa.config import NpuConfig
from isa.encoding import Op, from_bytes

MAGIC = b"TWPROG\r\n"
FORMAT_VERSION = 1

#: Regions as every compiled program uses them (see `isa.registers`, REGIONn_*).
PROGRAM_REGION = 0
CONSTANT_REGION = 1
ARENA_REGION = 2


class ProgramError(TilewrightError):
    """A program file that is damaged, of another version, or for another configuration."""


class Layout(StrEnum):
    """Which axis of a tensor holds its channels where the NPU has it in blocks of lanes.

    The values are what a program file says and part of buffer names.
    """

    #: Axis 1, as convolutions and pools have it: [N, C, H, W] or [N, C, W].
    CHANNELS_FIRST = "c1"
    #: The last axis, as matrix products have it: the axis before it is W, those before that are N, and H is 1.
    CHANNELS_LAST = "last"


@dataclass
class Buffer:
    """A named piece of memory.

    Attributes:
        name: unique in the program.
        space: "constant" or "arena" (device memory), or "host".
        offset: bytes from the start of that space; host buffers are offsets into the host arena.
        nbytes: size.
        data: for host constants, the section that holds the bytes ("" for none).
    """

    name: str
    space: str
    offset: int
    nbytes: int
    data: str = ""


@dataclass(frozen=True)
class BlockedLayout:
    """How a buffer in blocks of lanes holds a tensor.

    Attributes:
        shape: of the buffer, [N, CB, H, W, block].
        block: lanes.
        xor: 128 where a uint8 tensor is stored as int8, else 0.
        convention: which axis of the tensor holds the channels.
    """

    shape: tuple[int, ...]
    block: int
    xor: int = 0
    convention: Layout = Layout.CHANNELS_FIRST

    @staticmethod
    def from_json(values: dict[str, Any]) -> BlockedLayout:
        """Raises `ValueError` or `TypeError` for values that are no layout."""
        layout = Layout(values.get("convention", Layout.CHANNELS_FIRST))
        return BlockedLayout(**values | {"shape": tuple(values["shape"]), "convention": layout})


@dataclass
class TensorInfo:
    """A graph input or output, or a quantised tensor that can be looked at.

    Attributes:
        name, shape, dtype: as in the model (numpy dtype name).
        buffer: the buffer with its value in C order, "" if it never leaves the scratchpads.
        scale, zero_point: quantisation, None for float tensors; lists for per-channel.
        relayout: how the buffer holds the value if it is in blocks of lanes, None for plain C order.
        where: "npu" or "cpu": who computes it.
        reason: why this tensor may differ from the reference by a step ("" = it must be equal).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    buffer: str
    scale: float | list[float] | None = None
    zero_point: int | list[int] | None = None
    relayout: BlockedLayout | None = None
    where: str = "npu"
    reason: str = ""


@dataclass(frozen=True)
class HostFacts:
    """What the CPU kernels of a program need of the machine that runs them.

    Attributes:
        triple: LLVM target triple they are compiled for, "" for a program without kernels.
        features: instruction-set extensions they may use, by LLVM's names.
        threads: that call every kernel together.
    """

    triple: str = ""
    features: tuple[str, ...] = ()
    threads: int = 1


@dataclass
class NpuStep:
    """Runs instructions first..first+count-1 (the last one is END)."""

    first: int
    count: int
    kind: str = "npu"


@dataclass
class CpuStep:
    """Calls `symbol` of the object in `section` with the addresses of `buffers` and a workspace."""

    symbol: str
    section: str
    buffers: list[str]
    workspace: int
    ops: list[str]  # the graph nodes inside, "OpType name"
    kernels: list[str] = field(default_factory=list)  # one line per fused kernel
    kind: str = "cpu"


@dataclass
class Layer:
    """A row of the reports: what part of the instruction image belongs to which node of the model.

    Attributes:
        name, op: node of the model (several joined by " + " when fused).
        where: "npu" or "cpu".
        first, count: instruction range (count 0 for cpu layers).
        macs: multiply-accumulates of the model's arithmetic, padding and alignment not counted.
        read_bytes, write_bytes: memory traffic of the instructions.
        minimum_bytes: traffic that no schedule can avoid: weights and parameters, plus activations that cannot stay.
        tile: how it is cut, for people to read.
    """

    name: str
    op: str
    where: str
    first: int = 0
    count: int = 0
    macs: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    minimum_bytes: int = 0
    tile: str = ""


@dataclass
class Program:
    """A compiled model.

    Attributes:
        name: of the model.
        config: of the machine it is for.
        instructions, constants: instruction image and constant region.
        arena_bytes, host_bytes: sizes of the arena in device memory and of the host arena.
        buffers: named pieces of these memories.
        inputs, outputs: of the model.
        tensors: quantised tensors inside.
        steps: the order of work.
        layers: rows of the reports.
        sections: object code and constants of CPU kernels, by name.
        compiler: "tilewright VERSION".
        keep_all: every quantised tensor is in memory after a run.
        host: what the CPU kernels need of the machine that runs them.
        input_ranges: real values (lowest, highest) that a quantised float input can represent, by name.
        notes: what a user should know, one line each.
        compile_seconds: time the compilation took, s.
    """

    name: str
    config: NpuConfig
    instructions: bytes
    constants: bytes
    arena_bytes: int
    host_bytes: int
    buffers: list[Buffer]
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]
    tensors: list[TensorInfo]
    steps: list[NpuStep | CpuStep]
    layers: list[Layer]
    sections: dict[str, bytes] = field(default_factory=dict)
    compiler: str = ""
    keep_all: bool = False
    host: HostFacts = field(default_factory=HostFacts)
    input_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    compile_seconds: float = 0.0

    def buffer(self, name: str) -> Buffer:
        return self._buffers()[name]

    def _buffers(self) -> dict[str, Buffer]:
        return {b.name: b for b in self.buffers}

    def ops(self) -> list[Op]:
        """The decoded instruction image."""
        return from_bytes(self.instructions)

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    @property
    def npu_macs(self) -> int:
        return sum(layer.macs for layer in self.layers if layer.where == "npu")

    @property
    def footprint(self) -> int:
        """Bytes it takes when loaded, on device and host together."""
        return len(self.instructions) + len(self.constants) + self.arena_bytes + self.host_bytes

    def content_hash(self) -> str:
        """SHA-256 hex digest over what decides the behaviour (not over names, notes or times)."""
        digest = hashlib.sha256()
        for part in (self.config.fingerprint.encode(), self.instructions, self.constants):
            digest.update(len(part).to_bytes(8, "little") + part)
        for name in sorted(self.sections):
            digest.update(name.encode() + self.sections[name])
        digest.update(json.dumps(_plain([self.buffers, self.steps]), sort_keys=True).encode())
        return digest.hexdigest()

    def _options(self) -> dict[str, Any]:
        """Facts about the compilation as the manifest has them."""
        found: dict[str, Any] = {
            "keep": "all" if self.keep_all else "outputs",
            "host": self.host.triple,
            "host_features": self.host.features,
            "threads": self.host.threads,
        }
        return found | ({"input_ranges": self.input_ranges} if self.input_ranges else {})

    def to_bytes(self) -> bytes:
        """The file image."""
        sections = {"instructions": self.instructions, "constants": self.constants} | self.sections
        values = vars(self) | {"options": self._options()}
        manifest: dict[str, Any] = {
            key: _plain(values[key])
            for key in (
                "name", "arena_bytes", "host_bytes", "buffers", "inputs", "outputs", "tensors", "steps", "layers",
                "compiler", "options", "notes", "compile_seconds",
            )
        }  # fmt: skip
        manifest["config"] = self.config.to_dict()
        manifest["fingerprint"] = self.config.fingerprint
        manifest["sections"] = [
            {"name": name, "bytes": len(data), "crc32": zlib.crc32(data)} for name, data in sections.items()
        ]
        text = json.dumps(manifest, separators=(",", ":")).encode()
        head = MAGIC + struct.pack("<III", FORMAT_VERSION, len(text), zlib.crc32(text))
        body = head + text + b"".join(sections.values())
        return body + hashlib.sha256(body).digest()

    def save(self, path: str | Path) -> None:
        """Writes the file; a failure leaves no partial file."""
        try:
            write_atomically(path, self.to_bytes())
        except OSError as error:
            raise ProgramError(f"cannot write {path}: {error.strerror}") from None

    @staticmethod
    def is_program(source: str | Path) -> bool:
        """True if the file starts like a program file."""
        try:
            with open(source, "rb") as file:
                return file.read(len(MAGIC)) == MAGIC
        except OSError:
            return False

    @staticmethod
    def load(path: str | Path) -> Program:
        """Reads a file. Raises `ProgramError` if it is unreadable or damaged."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise ProgramError(f"cannot read {path}: {error.strerror}") from None
        return Program.from_bytes(data, str(path))

    @staticmethod
    def from_bytes(data: bytes, where: str = "program") -> Program:
        """Parses a file image. Raises `ProgramError` if it is damaged or of another version."""
        head = len(MAGIC) + 12
        if len(data) < head + 32 or data[: len(MAGIC)] != MAGIC:
            raise ProgramError(f"{where}: not a Tilewright program file (or cut short: {len(data)} bytes)")
        version, length, crc = struct.unpack_from("<III", data, len(MAGIC))
        if version != FORMAT_VERSION:
            raise ProgramError(f"{where}: program format {version}, this version reads {FORMAT_VERSION}; compile again")
        text = data[head : head + length]
        if hashlib.sha256(data[:-32]).digest() != data[-32:]:
            raise ProgramError(f"{where}: damaged: checksum of {_damaged_part(data, head, length, crc)} does not match")
        try:
            return _from_manifest(json.loads(text), data[head + length : -32])
        except (AttributeError, KeyError, TypeError, ValueError, TilewrightError) as error:
            raise ProgramError(f"{where}: manifest is inconsistent: {error!r}") from None


def _damaged_part(data: bytes, head: int, length: int, crc: int) -> str:
    text = data[head : head + length]
    if zlib.crc32(text) != crc:
        return "the manifest"
    offset = head + length
    for section in json.loads(text)["sections"]:
        if zlib.crc32(data[offset : offset + section["bytes"]]) != section["crc32"]:
            return f"section {section['name']!r}"
        offset += section["bytes"]
    return "the file"


def _from_manifest(manifest: dict[str, Any], body: bytes) -> Program:
    sections: dict[str, bytes] = {}
    offset = 0
    for section in manifest["sections"]:
        sections[section["name"]] = body[offset : offset + section["bytes"]]
        offset += section["bytes"]
    if offset != len(body):
        raise ValueError(f"sections take {offset} bytes, the file has {len(body)}")
    config = NpuConfig.from_dict(manifest["config"])
    if config.fingerprint != manifest["fingerprint"]:
        raise ValueError(f"fingerprint {manifest['fingerprint']} is not that of its configuration {config.fingerprint}")

    def tensors(key: str) -> list[TensorInfo]:
        return [TensorInfo(**t | _tensor_fields(t)) for t in manifest[key]]

    options = manifest["options"]
    features = tuple(options.get("host_features", ()))
    return Program(
        name=manifest["name"],
        config=config,
        instructions=sections.pop("instructions"),
        constants=sections.pop("constants"),
        arena_bytes=manifest["arena_bytes"],
        host_bytes=manifest["host_bytes"],
        buffers=[Buffer(**b) for b in manifest["buffers"]],
        inputs=tensors("inputs"),
        outputs=tensors("outputs"),
        tensors=tensors("tensors"),
        steps=[NpuStep(**s) if s["kind"] == "npu" else CpuStep(**s) for s in manifest["steps"]],
        layers=[Layer(**layer) for layer in manifest["layers"]],
        sections=sections,
        compiler=manifest["compiler"],
        keep_all=options.get("keep") == "all",
        host=HostFacts(options.get("host", ""), features, options.get("threads", 1)),
        input_ranges={name: (low, high) for name, (low, high) in options.get("input_ranges", {}).items()},
        notes=manifest["notes"],
        compile_seconds=manifest["compile_seconds"],
    )


def _tensor_fields(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `TensorInfo` that are not JSON values."""
    relayout = values.get("relayout")
    return {
        "shape": tuple(values["shape"]),
        "relayout": None if relayout is None else BlockedLayout.from_json(relayout),
    }


def _plain(value: Any) -> Any:
    """Dataclasses, numpy scalars and tuples as JSON values."""
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "__dataclass_fields__"):
        return _plain(asdict(value))
    return value
