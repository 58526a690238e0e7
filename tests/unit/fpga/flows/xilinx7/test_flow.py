"""The open flow of Xilinx FPGAs: what it refuses, and a small design through all its tools where they are there."""

import json
import re
from dataclasses import replace
from functools import reduce
from operator import add, xor
from pathlib import Path

import pytest
from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Out

from tests.common import needs
from tests.unit.fpga.flows.xilinx7 import dsp48
from tilewright.cli import cli
from tilewright.fpga.build import build
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.synthesis import ROUTING, STATISTICS
from tilewright.fpga.flows.tools import execute
from tilewright.fpga.flows.xilinx7 import blocks, buffers, fasm, tools
from tilewright.fpga.flows.xilinx7.flow import BITSTREAM, IMAGE, Zynq7
from tilewright.fpga.report import timing
from tilewright.fpga.zynq.axi3 import GP_ID_BITS, HP_DATA_BITS, HP_ID_BITS, RegisterBridge, axi3_master, flipped
from tilewright.fpga.zynq.boards import ZYNQ_BOARDS
from tilewright.fpga.zynq.processing_systems import WINDOW
from tilewright.fpga.zynq.system import Ps7Top
from tilewright.isa.config import preset

PYNQ = ZYNQ_BOARDS["pynq_z2"]
POINT = PYNQ.points["pynq"]


class Small(wiring.Component):
    """The ports of `ZynqSystem`; behind them a register that counts its reads, memories of each kind, products."""

    def __init__(self) -> None:
        super().__init__(
            {
                **flipped(axi3_master("gp_", 32, GP_ID_BITS)),
                **axi3_master("hp_", HP_DATA_BITS, HP_ID_BITS),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bridge = bridge = RegisterBridge(PYNQ.system.registers, WINDOW)
        for name, member in self.signature.members.items():
            if name.startswith("gp_"):
                inner, outer = getattr(bridge, name), getattr(self, name)
                m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
        m.d.comb += [bridge.axil.aw.ready.eq(1), bridge.axil.w.ready.eq(1), bridge.axil.ar.ready.eq(1)]
        m.d.sync += [bridge.axil.b.valid.eq(bridge.axil.w.valid), bridge.axil.r.valid.eq(bridge.axil.ar.valid)]
        at, found = Signal(12), Signal(36)
        m.d.sync += at.eq(at + bridge.axil.w.data[:7])
        outputs: list[Value] = []
        for depth, width, domain in ((1024, 36, "sync"), (1024, 18, "sync"), (64, 12, "comb"), (32, 24, "comb")):
            m.submodules[f"memory_{depth}x{width}"] = memory = Memory(shape=width, depth=depth, init=[])
            write, read = memory.write_port(), memory.read_port(domain=domain)
            m.d.comb += [write.addr.eq(at), write.data.eq(bridge.axil.w.data), write.en.eq(at[7]), read.addr.eq(at + 5)]
            outputs.append(read.data)
        # A memory of LUTs whose words count: what is written is what was read, which is no loop.
        m.submodules.counts = memory = Memory(shape=8, depth=32, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [read.addr.eq(at), write.addr.eq(at), write.data.eq(read.data + 1), write.en.eq(at[6])]
        outputs.append(read.data)
        for length in (12, 30):
            chain = Signal(length, reset_less=True)
            m.d.sync += chain.eq(Cat(bridge.axil.w.data[length], chain))
            outputs.append(chain[-1])
        # Sums of products, as the array has them, and a product with a sum: DSP blocks. The least product is of LUTs.
        data = bridge.axil.w.data
        products = [Signal(signed(16), name=f"product{n}") for n in range(5)]
        for n, product in enumerate(products):
            a, b = Signal(signed(8), name=f"a{n}"), Signal(signed(8), name=f"b{n}")
            m.d.sync += [a.eq(data[n : n + 8]), b.eq(data[12 + n : 20 + n]), product.eq(a * b)]
        total, added, narrow = Signal(signed(18)), Signal(signed(18)), Signal(signed(12))
        with m.If(bridge.axil.w.valid):
            m.d.sync += total.eq(reduce(add, products[:4]))
        m.d.sync += [added.eq(products[4] + data[:12].as_signed()), narrow.eq(at[:6].as_signed() * at[6:].as_signed())]
        outputs += [total, added, narrow]
        m.d.sync += found.eq(reduce(xor, outputs))
        with m.If(bridge.axil.ar.valid):
            m.d.sync += bridge.axil.r.data.eq(Mux(at[11], found, bridge.axil.r.data + 1))
        return m


@pytest.mark.slow
def test_a_small_design_becomes_a_bitstream(tmp_path: Path) -> None:
    try:
        found = tools.find()
    except FpgaError as error:
        needs.skip(needs.XILINX_TOOLS, str(error))
    flow = Zynq7(PYNQ.part, replace(PYNQ.capacity, dsp=6))  # of which five may be taken
    flow.generate(Ps7Top(Small(), found.ps7_inputs()), tmp_path)  # type: ignore[arg-type]
    used = flow.synthesise(tmp_path)
    assert flow.place_and_route(tmp_path, used, 25, [1], lambda text: None) == 1
    flow.pack(tmp_path)
    # A product's register, two sums that are passed on, the register of the last, by the database: nothing is faster.
    listed = json.loads((tmp_path / blocks.LISTED).read_text())
    slowest = listed["dsp_path"]
    assert slowest["ns"] > 2.5 + 2 * 1.713 + 1.4
    assert slowest["ns"] == pytest.approx(sum(cell["wire"] + cell["logic"] for cell in slowest["cells"]), abs=0.01)
    assert timing(json.loads((tmp_path / ROUTING).read_text())).fmax_mhz <= 1e3 / slowest["ns"]
    assert 0 < used.lut < 1000 and used.dsp == 5
    made = json.loads((tmp_path / STATISTICS).read_text())["design"]["num_cells_by_type"]
    assert {"RAMB36E1", "RAMB18E1", "RAM64M", "RAM32M", "CARRY4"} <= set(made)
    assert not {"SRL16E", "SRLC32E"} & set(made)
    # Every frame that was assembled is in the bitstream as it is, but for the checksum in its middle word.
    data = (tmp_path / BITSTREAM).read_bytes()
    lines = (tmp_path / "top.frames").read_text().splitlines()
    for line in lines:
        words = [int(w, 16) for w in line.split(" ")[1].split(",")]
        raw = b"".join(w.to_bytes(4, "big") for w in words)
        middle = fasm.FRAME_WORDS // 2 * 4
        assert re.search(re.escape(raw[:middle]) + b"...." + re.escape(raw[middle + 4 :]), data, re.DOTALL), line[:10]
    assert len(data) - len((tmp_path / IMAGE).read_bytes()) < 200  # the header
    # The block RAM of 36 Kbit stands where both of its halves are in use.
    ((bel, widths),) = listed["widths"].items()
    assert sorted(widths.values()) == [0, 0, 36, 36]
    tile = fasm.Database(found.database_of(PYNQ.part), tools.device_of(PYNQ.part)).tile_of(bel)
    lines = (tmp_path / "top.fasm").read_text().splitlines()
    assert {f"{tile}.RAMB18_Y0.IN_USE", f"{tile}.RAMB18_Y1.IN_USE"} <= set(lines)
    check_products(found.database_of(PYNQ.part), tmp_path)
    # What comes from PS7 ends at LUTs beyond its wires, which come out of it in column 50 of nextpnr's tiles.
    place = (*found.nextpnr_for(PYNQ.part), "--json", "top.json", "--vopt", "xdc=top.xdc", "--quiet")
    asked = ("--pre-place", str(buffers.PLACEMENT), "--no-route", "--write", "placed.json")
    execute((*place, *asked), tmp_path, "placement", tools.NEXTPNR, tmp_path)
    (module,) = json.loads((tmp_path / "placed.json").read_text())["modules"].values()
    outputs = {
        bits[0]
        for cell in module["cells"].values()
        if cell["type"] == "PS7_PS7"
        for port, bits in cell["connections"].items()
        if cell["port_directions"][port] == "output" and not port.startswith("FCLKCLK")
    }
    behind = [
        cell["attributes"]["NEXTPNR_BEL"]
        for cell in module["cells"].values()
        for port, bits in cell["connections"].items()
        if cell["port_directions"][port] == "input" and bits and bits[0] in outputs
    ]
    assert len(behind) == len(set(behind)) > 50
    for site in behind:
        x, y = map(int, re.fullmatch(r"X(\d+)Y(\d+)/SLICE_X\dY\d\.[BCD]6LUT", site).groups())  # type: ignore[union-attr]
        assert 50 < x < 70 and 51 <= y < 80, site  # GP0 comes out in rows 51 to 62


def check_products(root: Path, directory: Path) -> None:
    """The bits in the frames make the DSP blocks do what the netlist says, whatever the data is."""
    configured = dsp48.read_blocks(root, PYNQ.part, (directory / "top.frames").read_text())
    assert len(configured) == 5
    chained = [block for block in configured if block.adds == "PCIN"]
    alone = [block for block in configured if block.adds == "nothing"]
    assert (len(chained), len(alone), [b.adds for b in configured].count("C")) == (3, 1, 1)
    assert all(block.registers["M"] == block.registers["A"] == block.registers["B"] == 1 for block in configured)
    assert [block.registers["P"] for block in alone] == [0] and sorted(b.registers["P"] for b in chained) == [0, 0, 1]
    for block in configured:
        for a, b, more in ((-128, -128, 5), (127, -128, -70_000), (3, 5, 1 << 40), (-1, 1, 0)):
            expected = a * b + (0 if block.adds == "nothing" else more)
            assert block.result(a, b, more) == expected, (block, a, b)


def test_a_lut_behind_each_output_of_ps7() -> None:
    """Every output but clocks, and those that nothing reads, gets a LUT. What was read stays the name of the net behind
    it."""
    cells = {
        "ps7": {
            "type": "PS7",
            "port_directions": {"FCLKCLK": "output", "DATA": "output", "WREADY": "output", "WDATA": "input"},
            "connections": {"FCLKCLK": [2, 3], "DATA": [4, 5, 6], "WREADY": [7], "WDATA": [5, "0"]},
        },
        "clock": {
            "type": "BUFG", "port_directions": {"I": "input", "O": "output"}, "connections": {"I": [2], "O": [8]},
        },
        "logic": {
            "type": "LUT2", "port_directions": {"I0": "input", "I1": "input", "O": "output"},
            "connections": {"I0": [4], "I1": [7], "O": [9]},
        },
        "register": {
            "type": "FDRE", "port_directions": {"D": "input", "C": "input", "Q": "output"},
            "connections": {"D": [4], "C": [8], "Q": [10]},
        },
    }  # fmt: skip
    module = {"cells": cells, "ports": {}, "netnames": {"all": {"bits": ["0", *range(2, 11)]}}}
    assert buffers.add_buffers(module) == 4
    assert cells["ps7"]["connections"] == {"FCLKCLK": [2, 3], "DATA": [11, 12, 6], "WREADY": [13], "WDATA": [5, "0"]}
    assert cells["logic"]["connections"] == {"I0": [4], "I1": [7], "O": [9]}
    assert cells["register"]["connections"] == {"D": [14], "C": [8], "Q": [10]}
    made = [cell["connections"] for cell in cells.values() if cell["type"] == "LUT1"]
    assert made == [{"I0": [11], "O": [4]}, {"I0": [12], "O": [5]}, {"I0": [13], "O": [7]}, {"I0": [4], "O": [14]}]


def test_what_cannot_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FpgaError, match=r"zcu104: there are no open place-and-route tools for xczu7ev.*fpga export"):
        build(ZYNQ_BOARDS["zcu104"], preset("small"), POINT, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    with pytest.raises(FpgaError, match=r"are not installed; `tilewright fpga fetch-tools` unpacks them"):
        build(PYNQ, preset("small"), POINT, tmp_path)
    with pytest.raises(FpgaError, match=r"apt-get is missing: fetching needs a Debian-like system"):
        tools.fetch()
    assert not list(tmp_path.iterdir())


def test_the_bus_must_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find", lambda: tools.Tools((), (), tmp_path, None))
    with pytest.raises(FpgaError, match=r"no database of xc7z020 in .*zynq7; `tilewright fpga fetch-tools` gets it"):
        build(PYNQ, preset("tiny"), POINT, tmp_path / "out")
    (tmp_path / "zynq7" / "xc7z020").mkdir(parents=True)
    (tmp_path / "zynq7" / "xc7z020" / "tilegrid.json").touch()
    with pytest.raises(FpgaError, match="pynq_z2: an HP port takes axi_data_bits = 64"):
        build(PYNQ, preset("tiny"), POINT, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["build", "--board", "pynq_z2", "--baud", "9600", "-o", "x"], "no --memory-kib and no --baud"),
        (["export", "--board", "ulx3s_85f", "-o", "x"], "unknown Zynq board 'ulx3s_85f'; boards: pynq_z2"),
        (["resources", "tiny", "--family", "ice40"], "'ice40' is not one of"),
    ],
)
def test_commands(arguments: list[str], message: str) -> None:
    from click.testing import CliRunner

    result = CliRunner().invoke(cli, ["fpga", *arguments])
    assert result.exit_code == 2 and message in result.output
