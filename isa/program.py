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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.common.errors import TilewrightError
from tilewright.common.shown import Shown, listed
from tilewright.common.store import opened, read, write_atomically
from tilewright.common.text import suggest
from tilewright.common.typed import convert, from_json
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op, from_bytes
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.program_check import (
    check_entries,
    check_host_work,
    check_later,
    check_layers,
    check_lookups,
    check_memory,
    check_ranges,
    check_states,
    check_steps,
    check_tensor,
    check_windows,
)
from tilewright.isa.program_parts import (
    ARENA_REGION,
    CONSTANT_REGION,
    PROGRAM_REGION,
    WINDOW_REGION,
    BlockedLayout,
    Buffer,
    Certificate,
    CpuStep,
    EntryPoint,
    HostFacts,
    KernelWork,
    Layer,
    Layout,
    Lookup,
    NpuStep,
    Proof,
    StateInfo,
    TensorInfo,
    Window,
)

MAGIC = b"TWPROG\r\n"
FORMAT_VERSION = 1
STATE_VERSION = 2
"""Format version of programs with states, which a reader of version 1 would run without them."""
ENTRY_VERSION = 3
"""Format version of programs with entry points, which an older reader would run one after the other."""
WINDOW_VERSION = 4
"""Format version of programs with windows, which an older reader would leave closed."""


__all__ = [
    "ARENA_REGION", "CONSTANT_REGION", "PROGRAM_REGION", "WINDOW_REGION", "BlockedLayout", "Buffer", "Certificate",
    "CpuStep", "EntryPoint", "HostFacts", "KernelWork", "Layer", "Layout", "Lookup", "NpuStep", "Program",
    "ProgramError", "Proof", "StateInfo", "TensorInfo", "Window",
]  # fmt: skip


class ProgramError(TilewrightError):
    """A program file that is damaged, of another version, or for another configuration."""


@dataclass(repr=False)
class Program(Shown):
    """A compiled model.

    Attributes:
        name: name of the model.
        config: configuration of the machine it is for.
        instructions, constants: instruction image and constant region.
        arena_bytes, host_bytes: sizes of the arena in device memory and of the host arena.
        buffers: named pieces of these memories.
        inputs, outputs: inputs and outputs of the model.
        states: values kept from one run to the next, neither inputs nor outputs.
        windows: regions that begin at another row of the arena in every run.
        lookups: rows of tables that the runtime copies before a run.
        rising: inputs whose values must be one more from each to the next, as rows in windows are, and may not go round
            a window on the arena.
        entries: computations of which a run does one; without any, a run is all steps. Where there are some, the
            program itself has no inputs and outputs.
        tensors: quantised tensors inside.
        steps: the order of work.
        later: in place of its NPU step, for runs that find the weights in WGT; empty where they do not stay there.
        layers: rows of the reports.
        host_work: machine operations of the CPU steps' kernels, in the order they run; nothing of a run depends on it.
        sections: object code and constants of CPU kernels, by name.
        compiler: "tilewright VERSION".
        keep_all: every quantised tensor is in memory after a run.
        host: requirements of the CPU kernels on the machine that runs them.
        input_ranges: real values (lowest, highest) that a quantised float input can represent, and the range of an
            integer input whose values are indices along an axis, by name.
        notes: notes for the user, one line each.
        metadata: metadata of the model's file.
        compile_seconds: time the compilation took, s.
        certificate: what was proved of it, None for nothing. Whoever reads it takes it on trust until it is checked.
        signature: signature of the compiling party over `signed_digest`; see `tilewright.store.trust`. "" for none.
        trusted: its CPU kernels may run here. Not part of the file: False for a program read from a file, until its
            signature was verified.
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
    metadata: dict[str, str] = field(default_factory=dict)
    states: list[StateInfo] = field(default_factory=list)
    host_work: list[KernelWork] = field(default_factory=list)
    entries: list[EntryPoint] = field(default_factory=list)
    later: list[NpuStep] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    rising: list[str] = field(default_factory=list)
    compile_seconds: float = 0.0
    certificate: Certificate | None = None
    signature: str = ""
    trusted: bool = field(default=True, compare=False)

    def facts(self) -> dict[str, Any]:
        """The facts shown by `repr` and notebooks."""
        part = f"{self.npu_macs / self.macs:.2%} on the NPU" if self.macs else "none"
        found = {"name": self.name, "config": self.config.name}
        found |= {"entries": listed(e.name for e in self.entries)} if self.entries else {}
        found |= {"inputs": listed(self.inputs), "outputs": listed(self.outputs)} if not self.entries else {}
        return found | {
            "macs": f"{self.macs:,}, {part}", "instructions": len(self.instructions) // INSTRUCTION_BYTES,
            "constant_bytes": len(self.constants), "arena_bytes": self.arena_bytes, "notes": len(self.notes),
        }  # fmt: skip

    def buffer(self, name: str) -> Buffer:
        return self._buffers()[name]

    def _buffers(self) -> dict[str, Buffer]:
        return {b.name: b for b in self.buffers}

    def entry(self, name: str | None) -> Program:
        """One entry point as a program of its own, which shares all memory with this one. None, only for a program
        without entry points, returns the program itself.

        Raises:
            ProgramError: no such entry point, or one must be named.
        """
        if name is None and not self.entries:
            return self
        found = next((e for e in self.entries if e.name == name), None)
        if found is None:
            there = f"it has {', '.join(e.name for e in self.entries)}" if self.entries else "it has none"
            hint = suggest(name or "", [e.name for e in self.entries])
            raise ProgramError(f"{self.name} has no entry point {name!r}{hint}: {there}" if name else
                               f"{self.name} has several entry points, name one: {there}")  # fmt: skip
        first, end = found.first_step, found.first_step + found.step_count
        work = [replace(w, step=w.step - first) for w in self.host_work if first <= w.step < end]
        return replace(
            self, inputs=found.inputs, outputs=found.outputs, steps=self.steps[first:end], host_work=work, entries=[],
            lookups=[replace(rows, entry="") for rows in self.lookups if rows.entry == name],
            layers=self.layers[found.first_layer : found.first_layer + found.layer_count], name=f"{self.name}.{name}",
        )  # fmt: skip

    def of_first_run(self) -> Program:
        """The program without what is for later runs."""
        end = self.later[0].first * INSTRUCTION_BYTES if self.later else None
        return replace(self, instructions=self.instructions[:end], later=[])

    def of_later_runs(self) -> Program:
        """The program with the NPU step of later runs, which it must have, and without rows of the reports."""
        (later,) = self.later
        return replace(self, steps=[later if isinstance(s, NpuStep) else s for s in self.steps], layers=[], later=[])

    def ops(self) -> list[Op]:
        """The decoded instruction image."""
        return from_bytes(self.instructions)

    @property
    def macs(self) -> int:
        """MACs of all layers."""
        return sum(layer.macs for layer in self.layers)

    @property
    def npu_macs(self) -> int:
        """MACs of the layers on the NPU."""
        return sum(layer.macs for layer in self.layers if layer.where == "npu")

    @property
    def footprint(self) -> int:
        """Bytes the loaded program takes, on device and host together."""
        return len(self.instructions) + len(self.constants) + self.arena_bytes + self.host_bytes

    def content_hash(self) -> str:
        """SHA-256 hex digest over everything that decides the behaviour (not over names, notes or times)."""
        digest = hashlib.sha256()
        for part in (self.config.fingerprint.encode(), self.instructions, self.constants):
            digest.update(len(part).to_bytes(8, "little") + part)
        for name in sorted(self.sections):
            digest.update(name.encode() + self.sections[name])
        parts = [self.buffers, self.steps, *(x for x in (self.entries, self.windows) if x)]
        digest.update(json.dumps(_plain(parts), sort_keys=True).encode())
        return digest.hexdigest()

    def signed_digest(self) -> bytes:
        """SHA-256 over the whole file but the signature itself and the compile time."""
        manifest = self._manifest()
        del manifest["compile_seconds"]
        manifest.pop("signature", None)
        text = json.dumps(_normalised_numbers(manifest), sort_keys=True).encode()
        digest = hashlib.sha256(len(text).to_bytes(8, "little") + text)
        for data in self._all_sections().values():
            digest.update(data)
        return digest.digest()

    def check(self) -> None:
        """Raises `Unfit` (a ValueError) where parts of the program contradict each other."""
        sizes = {"constant": len(self.constants), "arena": self.arena_bytes, "host": self.host_bytes}
        check_memory(sizes, self.buffers, self.sections)
        buffers = self._buffers()
        for tensor in (*self.inputs, *self.outputs, *self.tensors):
            check_tensor(tensor, buffers)
        check_states(self.states, buffers)
        check_entries(self.entries, buffers, len(self.steps), len(self.layers))
        check_ranges(self.input_ranges)
        check_host_work(self.host_work, self.steps)
        check_steps(self.steps, self.instructions, buffers, self.sections, self.host)
        check_steps(self.later, self.instructions, buffers, self.sections, self.host)
        check_later(self.later, self.steps)
        check_windows(self.windows, [self.inputs, *(e.inputs for e in self.entries)], sizes, self.config.bus_bytes)
        check_lookups(self.lookups, {"": self.inputs} | {e.name: e.inputs for e in self.entries}, buffers, sizes)

    def _options(self) -> dict[str, Any]:
        """Facts about the compilation for the manifest."""
        found: dict[str, Any] = {
            "keep": "all" if self.keep_all else "outputs",
            "host": self.host.triple,
            "host_features": self.host.features,
            "threads": self.host.threads,
        }
        return found | ({"input_ranges": self.input_ranges} if self.input_ranges else {})

    def _all_sections(self) -> dict[str, bytes]:
        """The binary sections in the order of the file."""
        return {"instructions": self.instructions, "constants": self.constants} | self.sections

    def _manifest(self) -> dict[str, Any]:
        """The manifest: the whole file but the bytes of the sections."""
        values = vars(self) | {"options": self._options()}
        manifest: dict[str, Any] = {
            key: _plain(values[key])
            for key in (
                "name", "arena_bytes", "host_bytes", "buffers", "inputs", "outputs", "tensors", "steps", "layers",
                "compiler", "options", "notes", "compile_seconds",
            )
        }  # fmt: skip
        rare = (
            "signature",
            "certificate",
            "states",
            "entries",
            "later",
            "windows",
            "lookups",
            "rising",
            "host_work",
            "metadata",
        )  # left out where there are none
        manifest |= {key: _plain(values[key]) for key in rare if values[key]}
        manifest["config"] = self.config.to_dict()
        manifest["fingerprint"] = self.config.fingerprint
        manifest["sections"] = [
            {"name": name, "bytes": len(data), "crc32": zlib.crc32(data)} for name, data in self._all_sections().items()
        ]
        return manifest

    def to_bytes(self) -> bytes:
        """Encodes the program as a file image."""
        text = json.dumps(self._manifest(), separators=(",", ":")).encode()
        version = (
            WINDOW_VERSION
            if self.windows
            else ENTRY_VERSION
            if self.entries
            else STATE_VERSION
            if self.states
            else FORMAT_VERSION
        )
        head = MAGIC + struct.pack("<III", version, len(text), zlib.crc32(text))
        body = head + text + b"".join(self._all_sections().values())
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
            with opened(source) as file:
                return file.read(len(MAGIC)) == MAGIC
        except OSError:
            return False

    @staticmethod
    def load(path: str | Path) -> Program:
        """Reads a file. Raises `ProgramError` if it is unreadable or damaged."""
        try:
            data = read(path)
        except OSError as error:
            raise ProgramError(f"cannot read {path}: {error.strerror}") from None
        return Program.from_bytes(data, str(path))

    @staticmethod
    def from_bytes(data: bytes | memoryview, where: str = "program") -> Program:
        """Parses a file image. Raises `ProgramError` if it is damaged or of another version."""
        data = memoryview(data)  # slices are no copies
        head = len(MAGIC) + 12
        if len(data) < head + 32 or data[: len(MAGIC)] != MAGIC:
            raise ProgramError(f"{where}: not a Tilewright program file (or cut short: {len(data)} bytes)")
        version, length, crc = struct.unpack_from("<III", data, len(MAGIC))
        if not FORMAT_VERSION <= version <= WINDOW_VERSION:
            known = f"{FORMAT_VERSION} to {WINDOW_VERSION}"
            raise ProgramError(f"{where}: program format {version}, this version reads {known}; compile again")
        text = bytes(data[head : head + length])
        if hashlib.sha256(data[:-32]).digest() != data[-32:]:
            raise ProgramError(f"{where}: damaged: checksum of {_damaged_part(data, head, length, crc)} does not match")
        try:
            program = _from_manifest(json.loads(text), data[head + length : -32])
            program.check()
            check_layers(program.layers, program.instructions)
        except KeyError as error:
            raise ProgramError(f"{where}: manifest is inconsistent: it lacks {error}") from None
        except (RecursionError, ValueError, TilewrightError) as error:
            raise ProgramError(f"{where}: manifest is inconsistent: {str(error)[:300]}") from None
        return program


def _damaged_part(data: memoryview, head: int, length: int, crc: int) -> str:
    text = bytes(data[head : head + length])
    if zlib.crc32(text) != crc:
        return "the manifest"
    try:
        offset = head + length
        for section in [from_json(_Section, s, "section") for s in json.loads(text)["sections"]]:
            if zlib.crc32(data[offset : offset + section.bytes]) != section.crc32:
                return f"section {section.name!r}"
            offset += section.bytes
    except (KeyError, RecursionError, TypeError, ValueError):
        return "the manifest"
    return "the file"


@dataclass
class _Section:
    """A row of the manifest's table of sections, which follow the manifest in this order."""

    name: str
    bytes: int
    crc32: int


@dataclass
class _Options:
    """Facts about the compilation in the manifest."""

    keep: str = "outputs"
    host: str = ""
    host_features: tuple[str, ...] = ()
    threads: int = 1
    input_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)


def _from_manifest(manifest: Any, body: memoryview) -> Program:
    """Makes a program of a manifest. Raises KeyError and ValueError for anything but the manifest of a program."""
    if not isinstance(manifest, dict):
        raise ValueError("it is no table")
    sections: dict[str, bytes] = {}
    offset = 0
    for section in convert(list[_Section], manifest["sections"], "sections"):
        if section.bytes < 0 or section.name in sections:
            raise ValueError(f"section {section.name!r} of {section.bytes} bytes")
        sections[section.name] = bytes(body[offset : offset + section.bytes])
        offset += section.bytes
    if offset != len(body):
        raise ValueError(f"sections take {offset} bytes, the file has {len(body)}")
    config = NpuConfig.from_dict(manifest["config"])
    if config.fingerprint != manifest["fingerprint"]:
        raise ValueError(f"fingerprint {manifest['fingerprint']} is not that of its configuration {config.fingerprint}")

    def typed(kind: Any, name: str) -> Any:
        return convert(kind, manifest[name], name)

    options = typed(_Options, "options")
    steps: list[NpuStep | CpuStep] = []
    for number, step in enumerate(typed(list[dict[str, Any]], "steps")):
        kind: type[NpuStep | CpuStep] = NpuStep if step.get("kind") == "npu" else CpuStep
        steps.append(from_json(kind, step, f"steps[{number}]"))
    return Program(
        name=typed(str, "name"),
        config=config,
        instructions=sections.pop("instructions"),
        constants=sections.pop("constants"),
        arena_bytes=typed(int, "arena_bytes"),
        host_bytes=typed(int, "host_bytes"),
        buffers=typed(list[Buffer], "buffers"),
        inputs=typed(list[TensorInfo], "inputs"),
        outputs=typed(list[TensorInfo], "outputs"),
        tensors=typed(list[TensorInfo], "tensors"),
        steps=steps,
        layers=typed(list[Layer], "layers"),
        sections=sections,
        compiler=typed(str, "compiler"),
        keep_all=options.keep == "all",
        host=HostFacts(options.host, options.host_features, options.threads),
        input_ranges=options.input_ranges,
        notes=typed(list[str], "notes"),
        metadata=convert(dict[str, str], manifest.get("metadata", {}), "metadata"),
        states=convert(list[StateInfo], manifest.get("states", []), "states"),
        entries=convert(list[EntryPoint], manifest.get("entries", []), "entries"),
        later=convert(list[NpuStep], manifest.get("later", []), "later"),
        windows=convert(list[Window], manifest.get("windows", []), "windows"),
        lookups=convert(list[Lookup], manifest.get("lookups", []), "lookups"),
        rising=convert(list[str], manifest.get("rising", []), "rising"),
        host_work=convert(list[KernelWork], manifest.get("host_work", []), "host_work"),
        compile_seconds=typed(float, "compile_seconds"),
        certificate=convert(Certificate | None, manifest.get("certificate"), "certificate"),
        signature=convert(str, manifest.get("signature", ""), "signature"),
        trusted=False,
    )


def _normalised_numbers(value: Any) -> Any:
    """Normalises numbers of a JSON value: whole numbers become integers, whatever the type of the field."""
    if isinstance(value, dict):
        return {k: _normalised_numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_normalised_numbers(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() and value else value


def _plain(value: Any) -> Any:
    """Converts dataclasses, numpy scalars and tuples to JSON values."""
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "__dataclass_fields__"):
        return _plain(asdict(value))
    return value
