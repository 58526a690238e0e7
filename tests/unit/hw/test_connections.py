"""A connection that was forgotten is an error, and names the port."""

from __future__ import annotations

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from tests.common.rtl_bench import simulate
from tilewright.hw.connections import ConnectionError, design, unread
from tilewright.hw.core import Core
from tilewright.hw.interfaces import Channel, flat_ports
from tilewright.hw.npu import Npu
from tilewright.hw.parts.pipeline import Pipeline
from tilewright.isa.config import preset

TINY = preset("tiny")


class Adder(wiring.Component):
    """An input, an output."""

    def __init__(self, *, uses: bool = True, drives: bool = True) -> None:
        self.uses, self.drives = uses, drives
        super().__init__({"i": In(8), "o": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.drives:
            m.d.sync += self.o.eq((self.i if self.uses else 0) + 1)
        return m


class Pair(wiring.Component):
    """Two adders, one behind the other, but for what is left out."""

    def __init__(self, left_out: str = "", **part: bool) -> None:
        self.left_out, self.part = left_out, part
        super().__init__({"x": In(8), "y": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.first = first = Adder()
        m.submodules.second = second = Adder(**self.part)
        if self.left_out != "input":
            m.d.comb += second.i.eq(first.o)
        else:
            unread(m, first.o)
        if self.left_out != "output":
            m.d.comb += self.y.eq(second.o)
        else:
            m.d.comb += self.y.eq(1)
        m.d.comb += first.i.eq(self.x)
        return m


def test_what_is_connected_passes() -> None:
    design(Pair(), "pair")


@pytest.mark.parametrize(
    "pair, message",
    [
        (Pair("input"), "second.i is not connected"),
        (Pair("output"), "second.o is read by nobody"),
        (Pair(uses=False), "second.i is not used inside"),
        (Pair(drives=False), "second.i is not used inside; second.o is not driven"),
    ],
)
def test_each_kind_of_gap(pair: Pair, message: str) -> None:
    with pytest.raises(ConnectionError, match=f"^{message}$"):
        design(pair, "pair")


@pytest.mark.slow
def test_a_connection_forgotten_in_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ports of both sides of a missing `connect`, here the first, are named, and no others."""
    made: list[object] = []

    def all_but_the_first(m: Module, one: object, other: object) -> None:
        made.append(one)
        if len(made) > 1:
            connect(m, one, other)

    monkeypatch.setattr("tilewright.hw.core.connect", all_but_the_first)
    with pytest.raises(ConnectionError) as raised:
        design(Core(TINY), "core")
    problems = str(raised.value).split("; ")
    assert "fetch.read.valid is read by nobody" in problems and "read.fetch.valid is not connected" in problems
    assert "fetch.read.beat is not connected" in problems and "read.fetch.beat is read by nobody" in problems
    assert all(line.startswith(("fetch.read.", "read.fetch.")) for line in problems)


def test_names_in_verilog() -> None:
    npu = Npu(TINY)
    npu._MustUse__silence = True  # asked for its ports only
    names = [name for name, _, _ in flat_ports(npu)]
    assert {"axi_arvalid", "axi_wstrb", "axil_bresp", "irq", "dbg_load_start_pc"} <= set(names)
    assert len(names) == len(set(names))


def test_channels_are_joined_without_a_line() -> None:
    class Sender(wiring.Component):
        def __init__(self) -> None:
            super().__init__({"a": Out(Channel(data=4)), "b": In(2).array(2)})

    sender = Sender()
    sender._MustUse__silence = True
    assert [name for name, _, _ in flat_ports(sender)] == ["avalid", "aready", "adata", "b0", "b1"]


def test_pipeline() -> None:
    """A value is what it was so many cycles ago."""
    m = Module()
    count, there = Signal(8), Signal(8)
    m.d.sync += count.eq(count + 1)
    pipe = Pipeline(m)
    pipe.put("count", count, 2)
    m.d.comb += there.eq(pipe.at("count", 5))
    assert pipe.at("count", 2) is count
    with pytest.raises(ValueError, match="count is there from stage 2 on, not at 1"):
        pipe.at("count", 1)
    with pytest.raises(ValueError, match="count is in the pipeline already"):
        pipe.put("count", count)

    async def bench(ctx) -> None:
        for n in range(10):
            assert ctx.get(there) == max(0, n - 3)
            await ctx.tick()

    simulate(m, bench)
