"""The two programs of a board without a host: the boot program in the bitstream, and the image with a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.common import temporary
from tilewright.common.text import ACCEPTED, MAX_NAME, is_plain, plain
from tilewright.errors import UsageError
from tilewright.export import export_c
from tilewright.fpga.standalone import image, memory_map
from tilewright.fpga.standalone.record import INPUTS, Exchange
from tilewright.isa.program import CpuStep, NpuStep, Program, TensorInfo
from tilewright.runtime.layout import nbytes_of
from tilewright.standalone.toolchain import DRIVER, SOURCES, Linked, MissingSymbols, link

HOST = "riscv32-none"
#: What TW_ALIGNMENT of the runtime is.
ALIGNMENT = 64
STACK_BYTES = 16384
#: Types of the first output that `results` can print.
PRINTED = ("float32", "int8", "uint8", "bool", "int32", "int64")
_COMMON = ("start.S", "console.c", "memory.c")
_NO_NPU = "0" * 16


def boot_program(place: image.Place) -> bytes:
    """Builds the boot program of the core. Raises `UsageError` without a C compiler."""
    with temporary.Folder() as scratch:
        folder = Path(scratch)
        write_map(folder)
        (folder / "tilewright_image.h").write_text(image.c_header(place), encoding="utf-8")
        values = {"STACK_END": memory_map.BOOT + memory_map.BOOT_BYTES}
        sources = [SOURCES / name for name in (*_COMMON, "board_soc.c", "boot.c")]
        return link(folder, sources, start=memory_map.BOOT, values=values).payload


def write_map(folder: Path) -> None:
    """Writes the memory map as a header of C."""
    (folder / "tilewright_soc.h").write_text(memory_map.c_header(), encoding="utf-8")


@dataclass(frozen=True)
class Firmware:
    """The image of a network with the program around it.

    Attributes:
        image: as `tilewright.fpga.standalone.image` describes it.
        needed: bytes of memory it uses.
    """

    image: bytes
    needed: int


def check_network(program: Program, exchange: Exchange) -> None:
    """Raises `UsageError` for a program the firmware cannot serve."""
    if program.host.triple is None or not program.host.triple.startswith("riscv32"):
        raise UsageError(f"{program.name} must be compiled with --host {HOST}, not for {program.host.triple}")
    if not program.outputs or not program.inputs:
        raise UsageError(f"{program.name} must have an input and an output to run without a host")
    dtype = program.outputs[0].dtype
    if dtype not in PRINTED:
        raise UsageError(f"output {program.outputs[0].name} must have one of {', '.join(PRINTED)}, not {dtype}")
    for t in program.inputs:
        if exchange.inputs == "floats" and t.dtype != "float32" and not _is_quantised_byte(t):
            raise UsageError(f"input {t.name} must be float32, or int8 or uint8 with one scale, to come as floats")
    first, output = program.inputs[0], program.outputs[0]
    if exchange.results == "error" and (first.shape != output.shape or first.dtype not in PRINTED):
        raise UsageError(
            f"the error is that between the first output and the first input: they must have one shape, not "
            f"{output.shape} and {first.shape}, and the input one of {', '.join(PRINTED)}, not {first.dtype}"
        )


def _is_quantised_byte(t: TensorInfo) -> bool:
    return t.dtype in ("int8", "uint8") and isinstance(t.scale, float) and isinstance(t.zero_point, int)


def firmware(program: Program, *, model: str | None = None, exchange: Exchange = Exchange()) -> Firmware:  # noqa: B008
    """The image of a compiled program.

    Args:
        program: compiled with host HOST.
        model: what `profile` says, the program's name unless given.
        exchange: what goes over the serial line.

    Raises:
        UsageError: a program that the firmware cannot serve, or no C compiler.
    """
    linked = compiled(program, memory_map.MEMORY, "board_soc.c", model=model, exchange=exchange)
    needed = linked.symbols["tw_free"] - memory_map.MEMORY + _used(program, exchange)
    uses_npu = any(isinstance(step, NpuStep) for step in program.steps)
    fingerprint = program.config.fingerprint if uses_npu else _NO_NPU
    made = image.make(linked.payload, entry=linked.entry, needed=needed, fingerprint=fingerprint)
    return Firmware(made, needed)


def compiled(
    program: Program,
    start: int,
    board: str,
    *,
    model: str | None = None,
    exchange: Exchange = Exchange(),  # noqa: B008
    end: int | None = None,
) -> Linked:
    """The program of a board.

    Args:
        start: address of its first byte.
        board: source of `driver/c/standalone` that knows the board.
        end: of the memory, for a board that cannot say it.
    """
    check_network(program, exchange)
    if model is not None and not is_plain(model):
        raise UsageError(f"the network's name must have 1..{MAX_NAME} {ACCEPTED}, not {model!r}")
    title = model or plain(program.name)
    with temporary.Folder() as scratch:
        folder = Path(scratch)
        names = export_c(program, folder, "network")
        write_map(folder)
        (folder / "tilewright_standalone.h").write_text(
            "".join(f"#define TW_INPUTS_{name.upper()} {number}\n" for number, name in enumerate(INPUTS))
            + f'#define TW_MODEL "{title}"\n#define TW_INPUTS TW_INPUTS_{exchange.inputs.upper()}\n'
            f"#define TW_ERROR {int(exchange.results == 'error')}\n",
            encoding="utf-8",
        )
        sources: Sequence[Path] = [
            *(SOURCES / name for name in (*_COMMON, board, "monitor.c")),
            DRIVER / "tilewright_npu.c",
            *(folder / name for name in names if name.endswith((".o", ".S")) or name == "network.c"),
        ]
        values = {"STACK_BYTES": STACK_BYTES, **({"MEMORY_END": end} if end is not None else {})}
        try:
            return link(folder, sources, start=start, values=values)
        except MissingSymbols as error:
            raise UsageError(_lack(program, error)) from None


def _lack(program: Program, error: MissingSymbols) -> str:
    """The error text for symbols that the core's library lacks, with the CPU ops that want them."""
    for step in program.steps:
        wanted = error.wanted.get(f"network_{step.section}.o") if isinstance(step, CpuStep) else None
        if wanted and isinstance(step, CpuStep):
            names = ", ".join(wanted)
            return f"{program.name}: CPU ops {', '.join(step.ops)} want {names}, which the core's library lacks"
    return str(error)


def _used(program: Program, exchange: Exchange) -> int:
    """Bytes that `monitor.c` takes of the memory behind the program, for this network."""

    def aligned(nbytes: int) -> int:
        return -(-nbytes // ALIGNMENT) * ALIGNMENT

    steps = [s for s in program.steps if isinstance(s, CpuStep)]
    workspace = max((s.workspace for s in steps), default=0)
    table = 4 * max((len(s.buffers) for s in steps), default=0)
    memory = aligned(program.host_bytes) + aligned(workspace) + table
    regions = (len(program.instructions), len(program.constants), program.arena_bytes)
    on_device = any(isinstance(s, NpuStep) for s in program.steps) or program.arena_bytes
    floats = exchange.inputs == "floats"
    inputs = sum(4 * math.prod(t.shape) if floats else nbytes_of(t) for t in program.inputs)
    return aligned(memory) + aligned(inputs) + (sum(aligned(n or 1) for n in regions) if on_device else 0)
