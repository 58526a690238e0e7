"""Counting of coverage: points of Verilator, waivers, the bins of the instruction table."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tilewright.hw.sim.build import build
from tilewright.isa.config import preset
from tilewright.isa.encoding import op
from tilewright.isa.instructions import Memory
from verification.coverage.__main__ import functional, page, run_all, summary, without_constants
from verification.coverage.constants import constant_bits
from verification.coverage.functional import bins, classes, hits, took_effect
from verification.coverage.kept import Kept
from verification.coverage.points import LINES, TOGGLES, Point, Waiver, add, apply_waivers, read, read_waivers
from verification.trials.directed import directed
from verification.trials.trial import Trial, trials

TINY = preset("tiny")


def entry(page_of: str, where: str, line: int, what: str, count: int) -> str:
    keys = {"f": "npu.v", "l": str(line), "page": f"{page_of}/npu", "o": what, "h": where}
    return "C '" + "".join(f"\x01{k}\x02{v}" for k, v in keys.items()) + f"' {count}"


def test_points_and_waivers(tmp_path: Path) -> None:
    text = 'module a;\n(* src = "hw/a.py:1|hw/a.py:9" *)\nalways @* begin\nif (x)\nend\nendmodule\nmodule b;\nalways'
    file = tmp_path / "coverage.dat"
    entries = [
        entry("v_line", "TOP.npu.core.load", 4, "if", 0),
        entry("v_line", "TOP.npu.core.load", 8, "block", 2),
        entry("v_toggle", "TOP.npu.core.load", 1, "a__05Fb[3]:0->1", 0),
        entry("v_toggle", "TOP.npu.core.load", 1, "a__05Fb[2]:0->1", 3),
        entry("v_toggle", "TOP.npu.core.load", 1, "__02412[2]:0->1", 0),  # no name in the sources
        entry("v_toggle", "TOP.npu", 1, "irq:0->1", 0),
    ]
    file.write_text("\n".join(["# SystemC::Coverage-3", *entries]))
    counts: Counter[str] = Counter()
    for _ in range(2):
        add(file, counts)
    points = read(counts, text)
    line, toggle = Point(LINES, "core.load", "hw/a.py:1 if"), Point(TOGGLES, "core.load", "a_b[3]:0->1")
    irq = Point(TOGGLES, "npu", "irq:0->1")
    assert points == {
        line: 0,
        Point(LINES, "core.load", "? block"): 4,
        toggle: 0,
        Point(TOGGLES, "core.load", "a_b[2]:0->1"): 6,
        irq: 0,
    }
    useless = Waiver(TOGGLES, "core.store.*", "nothing there")
    old = Waiver(TOGGLES, "*.a_b", "because", first=2)
    found = apply_waivers(points, [Waiver(TOGGLES, "core.*.a_b", "because", first=3, last=3), useless, old])
    assert (found.missing, found.waived, found.idle) == ({line, irq}, {toggle}, [useless])
    assert [waiver for waiver, _ in found.outdated] == [old]  # bit 2 is covered
    missing, waived = found.missing, found.waived
    figures = summary(points, missing, waived)
    assert figures[TOGGLES] == {"points": 3, "waived": 1, "missing": 1}
    assert figures["lines by unit"] == {"core.load": {"points": 2, "waived": 0, "missing": 1}}
    shown = page(
        {"trials": {"moved": 2, "error": 1}, "config": "tiny", "constant": 7} | figures | functional(TINY, set()),
        missing,
    )
    assert (
        re.search(r"^\| `moved` \| .* \| 2 \|$", shown, re.MULTILINE)
        and "\nOn `tiny`. " in shown
        and ": 7 of bits" in shown
    )
    assert "| `core.load` | 1 of 2 (50.0 %), 0 waived | 1 of 1 (100.0 %), 1 waived |" in shown
    assert "- `core.load`: hw/a.py:1 if" in shown and "| `irq` | 1 |" in shown


@pytest.mark.medium
def test_going_on(tmp_path: Path) -> None:
    """Trials that a file of the same machine has are not run again."""
    file, some = tmp_path / "below" / "kept.json", [Trial("a", n, lambda make: "") for n in range(5)]
    kept = Kept.of(TINY, file)
    assert [len(part) for part in kept.left(some, 2)] == [2, 2, 1] and not kept.trials_by_kind
    kept.trials, kept.counts, kept.seen = ["a 0", "a 3"], Counter({"x\x01y": 3}), {"LOAD takes one"}
    kept.write(file)
    again = Kept.of(TINY, file)
    assert again == kept and again.trials_by_kind == {"a": 2}
    assert [[trial.name for trial in part] for part in again.left(some, 2)] == [["a 1", "a 2"], ["a 4"]]
    assert Kept.of(preset("nano"), file).trials == []


def test_constants() -> None:
    """Bits that never change are no points; one that was seen to rise and to fall is."""
    points = {Point(TOGGLES, "npu", f"a[{n}]:{way}"): n * (way == "0->1") for n in (0, 1) for way in ("0->1", "1->0")}
    left, constant = without_constants(points, {("a", 1)})
    assert (set(left), constant) == ({p for p in points if p.bit == 0}, 2)
    assert without_constants(dict.fromkeys(points, 1), {("a", 1)}) == (dict.fromkeys(points, 1), 0)


@pytest.mark.cosim
def test_constants_of_a_machine() -> None:
    """The bus of the machine is as wide as its beats, its addresses have 32 bits, and all of that is tied."""
    few = {"act_rows": 256, "wgt_tiles": 16, "acc_rows": 64, "prm_rows": 8, "lut_tables": 0, "depthwise": 0}
    found = constant_bits(TINY.with_(name="few", gemm_loops=5, vector_loops=4, queue_depth=2, **few))
    assert {("axi_arsize", 0), ("axi_arburst", 1), ("control.failed_pc", 0)} & found == {
        ("axi_arsize", 0),
        ("axi_arburst", 1),
    }
    assert {bit for name, bit in found if name == "control.address"} == set(range(33, 64))


def test_waivers_have_reasons(tmp_path: Path) -> None:
    assert read_waivers(TINY)
    file = tmp_path / "w.toml"
    file.write_text('[[waiver]]\nkind = "lines"\nmatch = ["x"]\n')
    with pytest.raises(ValueError, match="x has no reason"):
        read_waivers(TINY, file)
    file.write_text('[[waiver]]\nkind = "lines"\nmatch = ["x", "y"]\nreason = "z"\nlast = 4\n')
    assert read_waivers(TINY, file) == [Waiver("lines", name, "z", last=4) for name in "xy"]
    file.write_text('[[waiver]]\nkind = "toggles"\nmatch = ["x"]\nreason = "z"\nsemaphores_at = [8, 14]\n')
    found = read_waivers(TINY, file)
    assert found == [Waiver("toggles", "x", "z", bits=frozenset((12, 13, 18, 19)))]  # TINY has 12, of 63
    assert not Waiver(TOGGLES, "x", "z", way="1->0").fits(Point(TOGGLES, "npu", "x:0->1"))
    assert Waiver(TOGGLES, "x", "z", way="1->0").fits(Point(TOGGLES, "npu", "x:1->0"))
    fitting = [bit for bit in range(32) if found[0].fits(Point(TOGGLES, "npu", f"x[{bit}]:0->1"))]
    assert fitting == [12, 13, 18, 19]


def test_bins() -> None:
    load = op("LOAD", target=Memory.PRM, region=7, offset=5, wait0=3, signal0=12, signal1=2)
    assert hits([load, op("LOAD_DIM", row_stride=-3)], TINY) == {
        "LOAD.target PRM", "LOAD.region highest", "LOAD.offset between", "LOAD.row lowest", "LOAD.count lowest",
        "LOAD takes one", "LOAD gives two", "LOAD gives the last", "LOAD_DIM.level 0", "LOAD_DIM.count lowest",
        "LOAD_DIM.row_stride negative", "LOAD_DIM.mem_stride zero",
    }  # fmt: skip
    assert hits([load], TINY) <= bins(TINY)
    assert not any(name.startswith("ROW.") for name in bins(TINY)) and "ROW.reduce lowest" in bins(preset("base"))
    field = load.instruction.by_name["offset"]
    assert classes(field, TINY) == {
        "lowest": range(1),
        "highest": range(2**32 - 1, 2**32),
        "between": range(1, 2**32 - 1),
    }


def test_what_took_effect() -> None:
    ops = [op("GEMM_LOOP", count=2), op("GEMM"), op("LOAD_PAD"), op("GEMM_LOOP", count=3), op("VECTOR_SYNC")]
    assert took_effect(ops, [1, 4]) == [ops[0], ops[1], ops[4]]
    assert took_effect(ops, []) == []


@pytest.mark.cosim
def test_all_bins_are_reached() -> None:
    """Two random programs, all programs that stop and the directed ones, on the RTL as it is always built."""
    seen, ran = run_all(TINY, build(TINY), [*trials(TINY, 2), *directed(TINY)])
    assert bins(TINY) <= seen, sorted(bins(TINY) - seen)
    assert {"program", "moved", "error", "fields", "semaphores", "runs"} <= ran.keys()
