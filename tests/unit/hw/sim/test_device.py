"""A machine that breaks a rule of AXI is an error, whatever its program computes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from amaranth.back import verilog
from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from tests.common import needs
from tests.common.paths import ROOT
from tilewright.common.rtl_sources import rtl_sources
from tilewright.hw.connections import design
from tilewright.hw.npu import Npu
from tilewright.hw.sim.build import BuildError, Design, build_library
from tilewright.hw.sim.device import RtlDevice, RtlError
from tilewright.hw.verilog import TOP
from tilewright.isa.config import preset
from tilewright.isa.device import DeviceError
from tilewright.isa.encoding import op, to_bytes
from tilewright.isa.instructions import Memory
from verification.programs.error_cases import prepare

CONFIG = preset("tiny")
#: By number: a port of the machine and what becomes of it, and the rule it breaks then.
FAULTS: dict[int, tuple[str, str, Callable[[Value, Value], Value], str]] = {
    1: ("w", "last", lambda value, odd: ~value, "WLAST is not at the end of a burst"),
    2: ("w", "data", lambda value, odd: value ^ odd, "W changes before it is taken"),
    3: ("aw", "valid", lambda value, odd: value & odd, "AW changes before it is taken"),
    4: ("ar", "addr", lambda value, odd: value ^ (odd << 12), "AR changes before it is taken"),
    5: ("ar", "addr", lambda value, odd: value | 0xFF0, "AR is no legal burst"),
    6: ("aw", "size", lambda value, odd: value - 1, "AW is no legal burst"),
    7: ("ar", "addr", lambda value, odd: value | 1, "AR is no legal burst"),
}


class Wrong(wiring.Component):
    """The machine with faults at its ports, one of which is turned on by its number."""

    def __init__(self) -> None:
        self.inside = Npu(CONFIG)
        super().__init__(dict(self.inside.signature.members) | {"fault": In(3)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inside = inside = self.inside
        for name in ("axil", "dbg"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(inside, name))
        m.d.comb += self.irq.eq(inside.irq)
        odd = Signal()
        m.d.sync += odd.eq(~odd)
        for name in ("r", "b"):
            wiring.connect(m, wiring.flipped(getattr(self.axi, name)), getattr(inside.axi, name))
        for name in ("ar", "aw", "w"):
            mine, its = getattr(self.axi, name), getattr(inside.axi, name)
            m.d.comb += its.ready.eq(mine.ready)
            for field in ("valid", *mine.signature.fields):
                value: Value = getattr(its, field)
                for number, (where, which, change, _) in FAULTS.items():
                    if (where, which) == (name, field):
                        value = Mux(self.fault == number, change(value, odd), value)
                m.d.comb += getattr(mine, field).eq(value)
        return m


@pytest.fixture(scope="module")
def library() -> Path:
    def text() -> str:
        return verilog.convert_fragment(design(Wrong(), TOP), name=TOP)[0]

    sources = [Path(__file__), *rtl_sources()]
    try:
        return build_library(
            Design("wrong", "a wrong RTL simulation", TOP, ROOT / "hw" / "sim" / "harness.cpp", text, sources)
        )
    except BuildError as error:
        pytest.skip(f"{needs.C_COMPILER}: {error}")


#: Loads and stores of a few bursts.
PROGRAM = [
    op("LOAD", region=1, target=Memory.ACT, count=200, signal0=1),
    op("STORE", region=2, count=200, wait0=1),
    op("END"),
]


#: So that addresses are taken at different cycles.
SEEDS = [seed * 0x9E3779B97F4A7C15 & (1 << 64) - 1 for seed in range(1, 9)]


def _run(library: Path, fault: int, seed: int) -> None:
    device = RtlDevice(CONFIG, library=library, fault=fault, limit=20_000)
    device.stall(seed)
    regions = prepare(device)
    device.write(regions[0].base, to_bytes(PROGRAM))
    device.run(regions, 0, 0, len(PROGRAM))


@pytest.mark.cosim
def test_rules_are_kept(library: Path) -> None:
    for seed in SEEDS:
        _run(library, 0, seed)


@pytest.mark.cosim
@pytest.mark.parametrize("fault", FAULTS)
def test_rules_that_are_broken(library: Path, fault: int) -> None:
    rule = FAULTS[fault][-1]
    with pytest.raises(RtlError, match=f"^the RTL breaks a rule of AXI: {rule}$"):
        for seed in SEEDS:
            with suppress(DeviceError):  # it goes wrong, too
                _run(library, fault, seed)
