"""The NPU as it stands in Zynq-7000, against independent AXI models."""

import json

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tests.cosim import zynq_bench
from tests.cosim.runner import simulate
from tilewright.fpga.zynq.axi3 import BurstSplitter, RegisterBridge
from tilewright.fpga.zynq.system import ZynqSystem
from tilewright.hw.verilog import component_text
from tilewright.isa.config import preset

CONFIG = preset("tiny").with_(name="zynq", axi_data_bits=64)


class Axi4Shell(wiring.Component):
    """`ZynqSystem` with the widths of AXI4 for AxLEN and AxSIZE, which the models insist on."""

    WIDTHS = {"len": 8, "size": 3}

    def __init__(self) -> None:
        self.system = ZynqSystem(CONFIG, zynq_bench.BASE, zynq_bench.SIZE)
        members = {}
        for name, member in self.system.signature.members.items():
            width = next((w for end, w in self.WIDTHS.items() if name.endswith(end)), member.shape)
            members[name] = Out(width) if member.flow == Out else In(width)
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.system = self.system
        for name, member in self.signature.members.items():
            inner, outer = getattr(self.system, name), getattr(self, name)
            m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
        return m


@pytest.mark.cosim
@pytest.mark.slow
@pytest.mark.parametrize("count, rounds", [(1, 1), pytest.param(3, 5, marks=pytest.mark.long)])
def test_system(count: int, rounds: int) -> None:
    text = component_text(Axi4Shell(), "zynq")
    simulate(
        "zynq", text, "zynq", "tests.cosim.zynq_bench", config=json.dumps(CONFIG.to_dict()), count=count, rounds=rounds
    )


@pytest.mark.parametrize("changes", [{"axi_data_bits": 32}, {"axi_address_bits": 40}])
def test_the_bus_is_checked(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="an HP port takes axi_data_bits = 64 and axi_address_bits = 32; zynq has"):
        BurstSplitter(CONFIG.with_(**changes))


@pytest.mark.parametrize("base, size", [(0x800, 0x1000), (0, 3000), (0, 2)])
def test_the_window_is_checked(base: int, size: int) -> None:
    with pytest.raises(ValueError, match="base must be a multiple of a power of two"):
        RegisterBridge(base, size)
