"""Benches of the host's side: the AXI4-Lite slave with the registers, and what a reset leaves."""

from __future__ import annotations

from amaranth.hdl import Signal, Value

from tilewright.hw.host.registers import Registers
from tilewright.hw.npu import Npu
from verification.formal.bench import Bench, implies
from verification.formal.bus.axi_benches import keeps
from verification.formal.engine import Cut
from verification.formal.machines import SMALL


def _registers(b: Bench) -> dict[str, Value]:
    """Adds the registers, with a host that keeps what it offers until it is taken. Returns, for each channel, whether
    it takes something in this cycle."""
    bus = b.part("registers", Registers(SMALL)).axil
    for name, payload in (("aw", "addr"), ("w", "data"), ("ar", "addr")):
        keeps(b, name, getattr(bus, name), payload)
    taken = {name: getattr(bus, name).valid & getattr(bus, name).ready for name in ("aw", "w", "b", "ar", "r")}
    return {
        "valid_b": bus.b.valid,
        "resp_b": bus.b.resp,
        "resp_r": bus.r.resp,
        "valid_r": bus.r.valid,
        "ready_aw": bus.aw.ready,
        "both": bus.aw.valid & bus.w.valid,
        "ready_ar": bus.ar.ready,
        "data": bus.r.data,
    } | taken


def writes(only: str | None) -> Bench:
    """AW, W and B of the registers."""
    b = Bench(only)
    at = _registers(b)
    b.check(
        "together",
        at["aw"] == at["w"],
        "AXI4-Lite: address and data of a write are taken in the same cycle",
        Cut("registers.axil__w__ready"),
    )
    b.check(
        "b_stable",
        implies(b.past(at["valid_b"] & ~at["b"], "b_waits"), at["valid_b"]),
        "AXI4-Lite, B: valid stays until ready; the response is OKAY",
        Cut("registers.axil__b__valid", 60),
    )
    b.check("b_stable", at["resp_b"] == 0)
    waiting = Signal(2, name="waiting")  # taken and not answered
    b.m.d.sync += waiting.eq(waiting + at["aw"] - at["b"])
    b.check(
        "b_answers",
        (waiting <= 1) & (at["valid_b"] == (waiting == 1)),
        "AXI4-Lite, B: a response for every write, in the cycle after it is taken; one write at a time",
        Cut("registers.axil__b__valid", 60),
    )
    b.invariant(implies(at["ready_aw"], at["both"] & ~at["valid_b"]))
    return b


def reads(only: str | None) -> Bench:
    """AR and R of the registers."""
    b = Bench(only)
    at = _registers(b)
    same = at["data"] == b.past(at["data"], "data")
    b.check(
        "r_stable",
        implies(b.past(at["valid_r"] & ~at["r"], "r_waits"), at["valid_r"] & same),
        "AXI4-Lite, R: valid stays until ready, data do not change; the response is OKAY",
        Cut("registers.axil__r__data", 60),
    )
    b.check("r_stable", at["resp_r"] == 0)
    waiting = Signal(2, name="waiting")
    b.m.d.sync += waiting.eq(waiting + at["ar"] - at["r"])
    b.check(
        "r_answers",
        implies(at["valid_r"], waiting == 1) & implies(at["ready_ar"], waiting == 0),
        "AXI4-Lite, R: one answer for each address taken, none before it, and no other address before that",
        Cut("registers.axil__r__valid", 60),
    )
    return b


def reset(only: str | None) -> Bench:
    """The whole NPU: `rst` at any time, in any state."""
    b = Bench(only)
    rst = b.free(1, "rst")
    npu = b.part("npu", Npu(SMALL), reset=rst)
    offered = npu.axi.ar.valid | npu.axi.aw.valid | npu.axi.w.valid | npu.axil.b.valid | npu.axil.r.valid
    once, first = b.past(rst, "once"), Signal(init=1, name="first")
    b.m.d.sync += first.eq(0)
    # The core's own reset comes a cycle after the first of `rst`.
    b.check(
        "quiet",
        implies(first | (once & b.past(once, "twice")), ~offered),
        "NPU: no VALID in the first cycle, nor in and after the third of a reset, whatever the state before",
        Cut("npu.axil__b__valid", 5),
    )
    return b
