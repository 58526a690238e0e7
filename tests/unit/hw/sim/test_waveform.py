"""Waveforms: GTKWave reads from the FST what Verilator writes as VCD, and the instruction that each engine works on."""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.common import needs
from tests.common.paths import ROOT
from tilewright.common.native import compiler
from tilewright.hw.sim.device import Event, RtlDevice
from tilewright.isa.assembler import assemble, disassemble_one
from tilewright.isa.config import preset
from tilewright.isa.device import Region
from tilewright.isa.encoding import to_bytes
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import Engine

PROGRAM = """
    LOAD region=1 target=WGT count=1
    LOAD signal0=1 region=1 offset=64 target=ACT count=8
    GEMM_LOOP count=8 act_stride=1 acc_stride=1
    GEMM wait0=1 signal0=2
    VECTOR_LOOP count=8 a_stride=1 dst_stride=1
    VECTOR wait0=2 signal0=3 source=ACC dst=8
    STORE wait0=3 signal0=4 region=2 row=8 count=8
    STORE wait0=4 region=2 row=8 count=8
    END"""
Changes = dict[str, list[tuple[int, str]]]


def run(file: Path, window: tuple[int, int] | None = None) -> list[Event]:
    """Runs the program once with a waveform. Returns the strobes."""
    device = RtlDevice(preset("tiny"), trace_file=file, trace_window=window)
    code = to_bytes(assemble(PROGRAM))
    bases = [device.allocate(size) for size in (len(code), 1024, 1024)]
    device.write(bases[0], code)
    device.write(bases[1], bytes(range(256)) * 4)
    regions = [Region(base, 1024, True, n == 2) for n, base in enumerate(bases)]
    device.run(regions, 0, 0, len(code) // INSTRUCTION_BYTES, log="events")
    device.close()
    return device.events


def changes(vcd: Path) -> Changes:
    """Every change of each signal of a VCD, but for those that change nothing: time, value without leading zeros."""
    scopes: list[str] = []
    codes: dict[str, str] = {}
    found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    time = -1
    for words in filter(None, map(str.split, vcd.read_text(encoding="utf-8").splitlines())):
        first, rest = words[0][0], words[0][1:]
        if words[0] == "$scope":
            scopes.append(words[2])
        elif words[0] == "$upscope":
            scopes.pop()
        elif words[0] == "$var":
            codes[".".join([*scopes, *words[4:-1]])] = words[3]
        elif first == "#":
            time = int(rest)
        elif first in "bs" and len(words) == 2:
            found[words[1]].append((time, (rest.lstrip("0") or "0") if first == "b" else rest.replace("\\040", " ")))
        elif first in "01" and time >= 0:
            found[rest].append((time, first))
    kept: Changes = {}
    for name, code in codes.items():
        pairs = [(time, value) for time, value in found[code] if set(value) != {"x"}]
        kept[name] = [pair for n, pair in enumerate(pairs) if not n or pairs[n - 1][1] != pair[1]]
    return kept


def by_gtkwave(fst: Path) -> Changes:
    """The same of an FST, as GTKWave reads it."""
    vcd = fst.with_suffix(".read.vcd")
    subprocess.run([needs.program(needs.GTKWAVE, "fst2vcd"), "-f", fst, "-o", vcd], check=True, capture_output=True)
    return changes(vcd)


@pytest.mark.slow
@pytest.mark.cosim
def test_fst(tmp_path: Path) -> None:
    """All signals of the VCD with their changes; from start to end of an instruction, its text, one after the other."""
    needs.program(needs.GTKWAVE, "fst2vcd")
    run(tmp_path / "w.vcd")
    events = run(tmp_path / "w.fst")
    told, expected = by_gtkwave(tmp_path / "w.fst"), changes(tmp_path / "w.vcd")
    texts = {name: told.pop(f"instructions.{name}") for name in Engine.__members__}
    assert len(expected) > 1000 and told == expected
    operations = assemble(PROGRAM)
    for engine in Engine:
        mine = [event for event in events if event.engine is engine]
        shown = [value for _, value in texts[engine.name] if value]
        wanted = [disassemble_one(operations[event.pc]) for event in mine if event.kind == "start"]
        assert shown == wanted and texts[engine.name][-1][1] == "", engine
    starts = [event.cycle for event in events if event.engine is Engine.STORE and event.kind == "start"]
    shown_at = [time // 2 for time, value in texts["STORE"] if value.startswith("STORE")]
    assert shown_at[1] - shown_at[0] == starts[1] - starts[0]


@pytest.mark.slow
@pytest.mark.cosim
def test_window(tmp_path: Path) -> None:
    """A window has the text of what began before it, and nothing of later cycles."""
    needs.program(needs.GTKWAVE, "fst2vcd")
    events = run(tmp_path / "all.fst")
    (start,) = [e.cycle for e in events if e.engine is Engine.VECTOR and e.kind == "start"]
    run(tmp_path / "part.fst", (start + 2, start + 6))
    told = by_gtkwave(tmp_path / "part.fst")
    assert [value for _, value in told["instructions.VECTOR"]] == [disassemble_one(assemble(PROGRAM)[5])]
    times = {time for each in told.values() for time, _ in each}
    assert max(times) - min(times) <= 8 and not told["instructions.STORE"]


#: A program that turns VCD into FST: `BLOCK_BYTES FROM TO`. At each time a string counts.
CONVERTER = r"""
#include <fstream>
#include <iterator>
#include <string>
#include "fst.h"
int main(int, char **words) {
    std::ifstream from(words[2]);
    const std::string text{std::istreambuf_iterator<char>(from), {}};
    tilewright::FstFile file({"COUNT"}, std::stoul(words[1]));
    if (!file.open(words[3])) return 1;
    unsigned seed = 1, count = 0;
    for (size_t at = 0, bytes; at < text.size(); at += bytes) {
        seed = seed * 1103515245 + 12345;
        bytes = std::min<size_t>(seed >> 16 & 63, text.size() - at);
        const size_t mark = text.find("\n!\n", at);  // pieces end where a string changes
        bytes = std::min(bytes, mark == text.npos ? text.size() : mark + 1 - at);
        file.write(text.data() + at, bytes);
        if (mark != text.npos && at + bytes == mark + 1) {
            file.text(0, "number " + std::to_string(count++ / 2));
            at += 2;
        }
    }
    file.close();
}
"""
VERILATED = r"""
#pragma once
#include <string>
#include <sys/types.h>
struct VerilatedVcdFile {
    virtual ~VerilatedVcdFile() = default;
    virtual bool open(const std::string &) = 0;
    virtual void close() = 0;
    virtual ssize_t write(const char *, ssize_t) = 0;
};
"""


def letters(code: int) -> str:
    """The name that Verilator gives a signal in a VCD."""
    found = chr(33 + code % 94)
    while code := code // 94:
        code -= 1
        found += chr(33 + code % 94)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("block_bytes", [1 << 20, 2000])
@pytest.mark.parametrize("libz", [True, False])
def test_blocks_and_packing(libz: bool, block_bytes: int, tmp_path: Path) -> None:
    """Random signals of all widths, some with two names, in one block of changes or in many, with libz or not."""
    needs.program(needs.GTKWAVE, "fst2vcd")
    rng = random.Random(block_bytes + libz)
    widths = [rng.choice((1, 1, 2, 8, 9, 64, 200)) for _ in range(9200)]
    lines = [" $timescale 1ps $end", " $scope module TOP $end"]
    for code, bits in enumerate(widths):
        bus = f" [{bits - 1}:0]" if bits > 1 else ""
        lines += [
            f"  $var wire {bits} {letters(code)} s{code}{name}{bus} $end" for name in ("", "_too")[: 1 + code % 2]
        ]
    lines += [" $upscope $end", "$enddefinitions $end", ""]
    for step in range(60):
        lines.append(f"#{7 * step}")
        for code in range(len(widths)) if not step else rng.sample(range(len(widths)), 40):
            value = f"{rng.getrandbits(widths[code]):0{widths[code]}b}"
            lines.append(f"b{value} {letters(code)}" if widths[code] > 1 else value + letters(code))
        lines.append("!")
    source = "\n".join([*lines, ""])
    (tmp_path / "marked.vcd").write_text(source)
    (tmp_path / "plain.vcd").write_text(source.replace("\n!\n", "\n"))
    (tmp_path / "verilated_vcd_c.h").write_text(VERILATED)
    without = "" if libz else "#include <dlfcn.h>\n#define dlopen(name, how) nullptr\n"
    (tmp_path / "main.cpp").write_text(without + CONVERTER)
    headers = [f"-I{tmp_path}", f"-I{ROOT / 'hw' / 'sim'}"]
    subprocess.run([compiler(), "-std=c++17", *headers, "main.cpp", "-o", "main"], cwd=tmp_path, check=True)
    subprocess.run(["./main", str(block_bytes), "marked.vcd", "w.fst"], cwd=tmp_path, check=True)
    told = by_gtkwave(tmp_path / "w.fst")
    counted = told.pop("instructions.COUNT")
    assert counted == [(7 * step, f"number {step // 2}") for step in range(0, 60, 2)]
    assert told == changes(tmp_path / "plain.vcd")
