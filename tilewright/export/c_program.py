"""A compiled program as C sources, objects and data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tilewright import isa
from tilewright.common.text import plain
from tilewright.compiler.cpu.object import elf
from tilewright.errors import UsageError
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.program import (
    ARENA_REGION,
    CONSTANT_REGION,
    PROGRAM_REGION,
    CpuStep,
    NpuStep,
    Program,
    StateInfo,
    TensorInfo,
    Window,
)
from tilewright.runtime.layout import nbytes_of
from tilewright.store import trust
from tilewright.store.files import write_files

RUNTIME_HEADER = "tilewright_runtime.h"  # file, and section of programs compiled for a named host
_SPACES = {"host": "TW_HOST", "constant": "TW_CONSTANT", "arena": "TW_ARENA"}
_ALIGNMENT = 64  # bytes, TW_ALIGNMENT of the runtime


def runtime_header() -> bytes:
    """The C runtime, one header."""
    return (Path(isa.__file__).parent / "include" / RUNTIME_HEADER).read_bytes()


def export_c(program: Program, folder: str | Path, name: str | None = None) -> list[str]:
    """Writes a program for a C compiler of its host.

    Args:
        program: compiled with a `host`.
        folder: made if missing; files of these names are replaced.
        name: C identifier that the names of files and symbols start with; by default made from the program's name.

    Returns:
        Names of the files, sorted.

    Raises:
        UntrustedError: objects of somebody whom the user does not trust.
        UsageError: no host, a runtime of another version, a name that is no identifier, or a folder that cannot be
            written.
    """
    trust.require(program)
    header = program.sections.get(RUNTIME_HEADER)
    if header is None:
        raise UsageError(f"{program.name} was not compiled for C; compile it with --host (host=) and export that")
    if header != runtime_header():
        raise UsageError(f"{program.name} carries the C runtime of {program.compiler}; compile it again to export it")
    odd = [s for s in program.sections if not re.fullmatch(r"[a-z_.0-9]+", s, re.ASCII)]
    if odd:
        raise UsageError(f"the names of sections must be lower-case letters, digits, _ and ., not {odd[0]!r}")
    stem = identifier(program.name) if name is None else name
    if not re.fullmatch(r"[A-Za-z_]\w*", stem, re.ASCII):
        raise UsageError(f"the name must be a C identifier, not {stem!r}")
    writer = _Writer(program, stem)
    files = writer.objects() | {RUNTIME_HEADER: header}
    files |= {f"{stem}_data.bin": bytes(writer.blob), f"{stem}_data.S": writer.assembly().encode()}
    files |= {f"{stem}.h": writer.header().encode(), f"{stem}.c": writer.source().encode()}
    example = (Path(__file__).parent / "main.c").read_text()
    files |= {"main.c": example.replace("PROGRAM", stem).encode(), "Makefile": writer.makefile().encode()}
    write_files(folder, files)
    return sorted(files)


def identifier(text: str) -> str:
    """A C identifier like `text`."""
    found = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "program"
    return f"net_{found}" if found[0].isdigit() else found


def _string(text: str) -> str:
    """A C string literal of the UTF-8 bytes; octal escapes have a fixed length."""
    safe = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{"".join(safe)}"'


def _table(kind: str, rows: Sequence[str]) -> str:
    """A static array; C has none without elements."""
    return f"static const {kind}[] = {{\n" + "".join(f"    {row},\n" for row in rows or ["{0}"]) + "};\n"


class _Writer:
    """The files of one program.

    Attributes:
        blob: data of the program: instructions, the NPU's constants, constants of kernels; parts at multiples of 64.
    """

    def __init__(self, program: Program, stem: str) -> None:
        self.program, self.stem = program, stem
        self.title = plain(program.name)
        self.host = plain(program.host.triple)
        self.blob = bytearray()
        self.instructions = self._place(program.instructions)
        self.constants = self._place(program.constants)
        sections = {b.data for b in program.buffers if b.data}
        self.data = {name: self._place(program.sections[name]) for name in sorted(sections)}
        self.numbers = {b.name: number for number, b in enumerate(program.buffers)}
        self.cpu_steps = [s for s in program.steps if isinstance(s, CpuStep)]

    def _place(self, data: bytes) -> int:
        self.blob += bytes(-len(self.blob) % _ALIGNMENT)
        at = len(self.blob)
        self.blob += data
        return at

    def _kernel(self, step: CpuStep) -> str:
        return f"{self.stem}_{step.section}"

    def objects(self) -> dict[str, bytes]:
        """The kernels; entry points are named after the program, so that several programs link together."""
        return {
            f"{self._kernel(s)}.o": elf.join([self.program.sections[s.section]], s.symbol, self._kernel(s))
            for s in self.cpu_steps
        }

    def assembly(self) -> str:
        return (
            f"    .section .rodata\n    .balign {_ALIGNMENT}\n    .globl {self.stem}_data\n{self.stem}_data:\n"
            f'    .incbin "{self.stem}_data.bin"\n    .byte 0\n    .section .note.GNU-stack,"",%progbits\n'
        )

    def header(self) -> str:
        guard = f"{self.stem.upper()}_H"
        return (
            f"/* {self.title}, written by tilewright export-c. */\n#ifndef {guard}\n#define {guard}\n\n"
            f'#include "{RUNTIME_HEADER}"\n\nextern const tw_program {self.stem}_program;\n\n#endif\n'
        )

    def source(self) -> str:
        program, stem = self.program, self.stem
        npu_steps = sum(isinstance(s, NpuStep) for s in program.steps)
        fields = {
            "name": _string(program.name),
            "host": _string(self.host),
            "config": _string(program.config.name),
            "fingerprint": _string(program.config.fingerprint),
            "instructions": f"{stem}_data + {self.instructions}",
            "constants": f"{stem}_data + {self.constants}",
            "instruction_bytes": len(program.instructions),
            "constant_bytes": len(program.constants),
            "arena_bytes": program.arena_bytes,
            "host_bytes": program.host_bytes,
            "workspace_bytes": max((s.workspace for s in self.cpu_steps), default=0),
            "table_size": max((len(s.buffers) for s in self.cpu_steps), default=0),
            "region_count": 1
            + max([PROGRAM_REGION, CONSTANT_REGION, ARENA_REGION, *(w.region for w in program.windows)]),
            "program_region": PROGRAM_REGION,
            "constant_region": CONSTANT_REGION,
            "arena_region": ARENA_REGION,
            "buffers": "buffers",
            "inputs": "inputs",
            "outputs": "outputs",
            "steps": "steps",
            "states": "states",
            "windows": "windows",
            "state_count": len(program.states),
            "window_count": len(program.windows),
            "buffer_count": len(program.buffers),
            "input_count": len(program.inputs),
            "output_count": len(program.outputs),
            "step_count": len(program.steps),
            "npu_step_count": npu_steps,
        }
        return "\n".join(
            [
                f'/* {self.title}, written by tilewright export-c. */\n#include "{stem}.h"\n',
                f"extern const uint8_t {stem}_data[];",
                *(f"void {self._kernel(s)}(uint8_t **buffers, uint8_t *workspace);" for s in self.cpu_steps),
                "",
                _table("tw_buffer buffers", [self._buffer(b.name) for b in program.buffers]),
                _table("tw_tensor inputs", [self._tensor(t) for t in program.inputs]),
                _table("tw_tensor outputs", [self._tensor(t) for t in program.outputs]),
                _table("tw_step steps", [self._step(s) for s in program.steps]),
                _table("tw_state states", [self._state(s) for s in program.states]),
                _table("tw_window windows", [self._window(w) for w in program.windows]),
                f"const tw_program {stem}_program = {{",
                *(f"    .{key} = {value}," for key, value in fields.items()),
                "};\n",
            ]
        )

    def _buffer(self, name: str) -> str:
        b = self.program.buffer(name)
        constant = b.data and name not in {s.begin.buffer for s in self.program.states}
        data = f"{self.stem}_data + {self.data[b.data]}" if constant else "NULL"
        return f"{{{_SPACES[b.space]}, {b.offset}, {b.nbytes}, {data}}}"

    def _tensor(self, t: TensorInfo) -> str:
        shape = f"(const uint64_t[]){{{', '.join(map(str, t.shape))}}}" if t.shape else "NULL"
        buffer = self.numbers[t.buffer] if t.buffer else -1
        if t.relayout is not None:  # floats of steps in blocks, which in one row are in order
            n, _, h, w, _ = t.relayout.shape
            if n * h * w != 1:
                raise UsageError(f"output {t.name!r} is in blocks of lanes; programs in C have such of one row only")
            t = replace(t, dtype="uint8" if t.relayout.xor else "int8", relayout=None)
            if t.dtype == "uint8":
                raise UsageError(f"output {t.name!r} is uint8 in the NPU's memory; programs in C have int8 there")
        whole = isinstance(t.scale, float | int) and isinstance(t.zero_point, int)
        quantisation = f"{float(t.scale).hex()}f, {t.zero_point}" if whole else "0, 0"  # type: ignore[arg-type]
        fields = (_string(t.name), _string(t.dtype), len(t.shape), shape, nbytes_of(t), buffer, quantisation)
        return f"{{{', '.join(map(str, fields))}}}"

    def _state(self, state: StateInfo) -> str:
        begin, end = (self.numbers[t.buffer] for t in (state.begin, state.end))
        initial = self.data[self.program.buffer(state.begin.buffer).data]
        return f"{{{begin}, {end}, {nbytes_of(state.begin)}, {self.stem}_data + {initial}}}"

    def _window(self, window: Window) -> str:
        number, tensor = next(x for x in enumerate(self.program.inputs) if x[1].name == window.tensor)
        fields = (
            window.region, number, window.period, window.rows or window.period, window.stride,
            int(window.space == "arena"), int(tensor.dtype == "int64"),
        )  # fmt: skip
        return f"{{{', '.join(map(str, fields))}}}"

    def _step(self, step: NpuStep | CpuStep) -> str:
        if isinstance(step, NpuStep):
            return f"{{NULL, NULL, {step.count}, {step.first * INSTRUCTION_BYTES}}}"
        numbers = ", ".join(str(self.numbers[name]) for name in step.buffers)
        table = f"(const uint32_t[]){{{numbers}}}" if numbers else "NULL"
        return f"{{{self._kernel(step)}, {table}, {len(step.buffers)}, 0}}"

    def makefile(self) -> str:
        stem, host = self.stem, self.host
        objects = " ".join(f"{self._kernel(s)}.o" for s in self.cpu_steps)
        return f"""# {self.title} for {host}, written by tilewright export-c.
#   make CC=COMPILER                   a C compiler for {host}
#   make CC=COMPILER DEVICE=driver.c   with a driver that defines `const tw_device *tw_open_device(void)`
CFLAGS ?= -O2 -std=c99 -Wall
SOURCES := main.c {stem}.c {stem}_data.o {objects} $(DEVICE)

{stem}: $(SOURCES) {stem}.h {RUNTIME_HEADER}
\t$(CC) $(CFLAGS) $(if $(DEVICE),-DTW_DEVICE) -I. $(LDFLAGS) -o $@ $(SOURCES) -lm

{stem}_data.o: {stem}_data.S {stem}_data.bin
\t$(CC) -c -o $@ $<

.PHONY: clean
clean:
\trm -f {stem} {stem}_data.o
"""
