"""A digest of a netlist knows cells and ports, and no names of what lies inside."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.connections import design
from verification.rtl_text import digest_of_cells


class Counter(wiring.Component):
    """Counts; `inner` is the name of its register, `step` what it adds."""

    def __init__(self, inner: str, step: int = 1, port: str = "count") -> None:
        self.inner, self.step, self.port = inner, step, port
        super().__init__({"enable": In(1), port: Out(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        value = Signal(4, name=self.inner)
        with m.If(self.enable):
            m.d.sync += value.eq(value + self.step)
        m.d.comb += getattr(self, self.port).eq(value)
        return m


def test_names_make_no_difference_but_those_of_ports() -> None:
    one = digest_of_cells(design(Counter("value"), "top"))
    assert len(one) == 12 and digest_of_cells(design(Counter("total"), "other")) == one
    made = Counter("value", step=2), Counter("value", port="total")
    others = {digest_of_cells(design(counter, "top")) for counter in made}
    assert len(others) == 2 and one not in others
