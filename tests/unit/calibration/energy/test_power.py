"""Liberty files, netlists and the power formula, against numbers worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from calibration.energy import liberty, netlist, power
from calibration.energy.simulation import Activity
from tests.unit.calibration.energy import small_library
from tests.unit.calibration.energy.small_library import cell
from tilewright.energy import memories
from tilewright.errors import UsageError


def test_functions_of_liberty() -> None:
    values = {"A": True, "B": False, "C": True}
    for function, expected in (
        ("(!(A B))", True), ("A & B + C", True), ("!A | B", False), ("A' + B^C", True), ("(A^C)*A", False), ("1", True),
    ):  # fmt: skip
        assert liberty.evaluate(function, values) is expected, function


def test_library_is_read(tmp_path: Path) -> None:
    found = small_library.library(tmp_path)
    assert found.volts == 2.0 and sorted(found.cells) == ["AND2", "DFF", "INV", "XOR2"]
    gate = found.cells["XOR2"]
    assert gate.truth("Y") == 0b0110 and gate.inputs == ["A", "B"]
    arc = gate.pins["Y"].energy[0]
    # At a transition of 0.15 and a load of 0.02, the middle of the tables: rise 0.05, fall 0.07.
    assert arc.rise.at(0.15, 0.02) == pytest.approx(0.05) and arc.mean(0.15, 0.02) == pytest.approx(0.06)
    assert arc.rise.at(9, 9) == pytest.approx(0.08)  # outside: the nearest value
    assert found.cells["DFF"].next_state == "D"


@pytest.mark.parametrize("wrong", ["", "library(x) {", 'library(x) { time_unit : "1ps"; voltage_unit : "1V"; }'])
def test_what_is_no_library_is_one_line(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "wrong.lib"
    path.write_text(wrong, encoding="utf-8")
    with pytest.raises(UsageError, match=r"wrong\.lib"):
        liberty.load(path)


@pytest.mark.medium
def test_odd_libraries_are_one_line_or_a_library(tmp_path: Path) -> None:
    """A library with any piece missing or replaced by another word loads, or is refused in one line."""
    pieces = re.findall(r'"[^"]*"|[\w.]+|[^\w\s]', small_library.text())
    refused = 0
    for n in range(len(pieces)):
        for other in ("", "odd"):
            path = tmp_path / f"odd{n}{other}.lib"
            path.write_text(" ".join([*pieces[:n], other, *pieces[n + 1 :]]), encoding="utf-8")
            try:
                found = liberty.load(path)
                for cell in found.cells.values():
                    for output in (*cell.outputs,) if len(cell.inputs) <= 4 and not cell.next_state else ():
                        cell.truth(output)
            except UsageError as error:
                refused += 1
                assert "\n" not in str(error)
    assert refused > len(pieces) // 4


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("nom_voltage : 2.0;", "", "nom_voltage must be a number, not None"),
        ("fall_power(energy)", "fall_power(other)", "unknown template 'other'"),
        ('values ("0.02, 0.04", "0.06, 0.08")', 'values ("0.02, 0.04")', "2 values over 2 axes"),
        ('index_1 ("0.01, 0.03"); index_2', 'index_1 ("0.03, 0.01"); index_2', "must rise"),
        ("area : 10;", "area : wide;", "cell INV: area must be a number, not 'wide'"),
        ("cell (DFF)", "cell ()", "a group cell without a name"),
    ],
)
def test_odd_libraries_say_what_is_odd(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "odd.lib"
    text = small_library.text()
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(UsageError, match=re.escape(said)):
        liberty.load(path)


def test_axes_may_be_those_of_the_template(tmp_path: Path) -> None:
    path = tmp_path / "short.lib"
    text = small_library.text().replace('rise_power(passive) { index_1 ("0.1, 0.3");', "rise_power(passive) {")
    path.write_text(text, encoding="utf-8")
    clock = liberty.load(path).cells["DFF"].pins["CLK"].energy[0]
    assert clock.rise.at(1.5) == pytest.approx(0.20) and clock.fall.at(0.2) == pytest.approx(0.40)


def test_missing_library_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_LIBERTY", "/nowhere/x.lib")
    with pytest.raises(UsageError, match="make test-tools"):
        liberty.library_path()


def test_energy_of_an_inverter_behind_a_register(tmp_path: Path) -> None:
    """q = DFF(d), y = !q, z = !q: two inverters on q, none on y."""
    library = small_library.library(tmp_path)
    cells = {
        "f": cell("DFF", CLK=2, D=3, Q=4), "a": cell("INV", A=4, Y=5), "b": cell("INV", A=4, Y=6),
    }  # fmt: skip
    gates = netlist.read(small_library.module({"clk": [2], "d": [3], "y": [5]}, cells), library)
    found = power.costs(gates, library, wires=False)
    nets = {name: gates.ports[name][0] for name in ("clk", "d", "y")}
    q = int(gates.flop_q[0])
    # d: 0.010 pF at 2 V: 0.02 pJ; and D itself, at 0.1 ns: 0.02 pJ.
    assert found.net[nets["d"]] == pytest.approx(0.010 * 4 / 2 + 0.02)
    # q: two inputs of 0.010 pF; the register's output has no table.
    assert found.net[q] == pytest.approx(2 * 0.010 * 4 / 2)
    # y: no load; the inverter at the edge of its tables, input 0.1 ns: rise 0.02, fall 0.04.
    assert found.net[nets["y"]] == pytest.approx(0.03)
    # The clock, both edges at 0.2 ns: 0.2 + 0.4 pJ, and 0.020 pF charged and discharged once.
    assert found.clock == pytest.approx(0.6 + 0.020 * 4)
    assert found.leakage_nw == 5 + 2 * 2
    toggles = np.zeros(gates.nets, np.uint64)
    toggles[[nets["d"], q]] = 7
    energy = found.energy(Activity(100, toggles, np.zeros(0, np.uint64), np.zeros(0, np.uint64)), clock_mhz=100)
    assert energy["nets and gates"] == pytest.approx(7 * (0.04 + 0.04))
    assert energy["clock"] == pytest.approx(68.0)
    assert energy["leakage"] == pytest.approx(9e-9 * 1e-6 * 1e12)  # 9 nW for a microsecond, in pJ


def test_loops_and_unknown_cells_are_refused(tmp_path: Path) -> None:
    library = small_library.library(tmp_path)
    loop = {"a": cell("INV", A=2, Y=3), "b": cell("INV", A=3, Y=2)}
    with pytest.raises(UsageError, match="loop"):
        netlist.read(small_library.module({}, loop), library)
    with pytest.raises(UsageError, match="LATCH is no cell of round"):
        netlist.read(small_library.module({}, {"l": cell("LATCH", D=2)}), library)


def test_tables_of_memories() -> None:
    """The three sizes of the cited table, in its own technology, within what the docstring says."""
    table = memories.Technology("45 nm", memories.SRAM_NM, memories.SRAM_VOLTS)
    for nbytes, pj in ((8 << 10, 10), (32 << 10, 20), (1 << 20, 100)):
        assert memories.sram_pj(64, 8 * nbytes, table) == pytest.approx(pj, rel=0.14)
    assert memories.sram_pj(64, 8 << 13) == pytest.approx(160)  # four times as long, twice the voltage
    assert table.factor(memories.Technology("16 nm", 16, 0.8)) == pytest.approx(16 / 45 * (0.8 / 0.9) ** 2)


def test_wires_are_longer_among_more_cells() -> None:
    lengths = [power.wire_pf(n, 40.0 * n) for n in (100, 10_000, 1_000_000)]
    assert lengths == sorted(lengths) and 1e-3 < lengths[1] < 2e-2
