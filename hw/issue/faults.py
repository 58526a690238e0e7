"""The first error of a run."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import C, Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.interfaces import SEMAPHORE_BITS, ErrorReport, Fault
from tilewright.isa.config import NpuConfig
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import Engine

#: Ports besides the `Fault`s: FETCH has several codes, the semaphores name the engine to blame.
_OTHERS = {"fetch_code": In(8), "overflow_engine": In(range(max(Engine) + 1))}


class Faults(wiring.Component):
    """Chooses the first error, of several in one cycle that of the lowest engine.

    Latency: an error of cycle t is registered in t+1 (GEMM and VECTOR do that themselves), `report.error` follows in
    t+2, and code, engine, instruction and address in t+3.

    Ports:
        fetch, fetch_code: error of FETCH and which it is.
        {engine}_{kind}: errors of the other engines.
        overflow: a semaphore went beyond its limit; all but `error` a cycle later.  overflow_engine: who did it.
        report: the first.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        address = config.axi_address_bits
        super().__init__(
            {
                "fetch": In(Fault(config, address)),
                "load_operand": In(Fault(config)),
                "load_window": In(Fault(config, address + 1)),
                "load_bus": In(Fault(config, address)),
                "load_range": In(Fault(config)),
                **({"load_code": In(Fault(config))} if config.weight_codes else {}),
                "gemm_range": In(Fault(config)),
                "vector_range": In(Fault(config)),
                "store_window": In(Fault(config, address + 1)),
                "store_range": In(Fault(config)),
                "store_bus": In(Fault(config, address)),
                "overflow": In(Fault(config, SEMAPHORE_BITS)),
                **_OTHERS,
                "report": Out(ErrorReport(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        errors: list[tuple[Any, ErrorCode | Value, Engine | Value]] = [
            (self.fetch, self.fetch_code, Engine.FETCH),
            (self.load_operand, ErrorCode.ILLEGAL_OPERAND, Engine.LOAD),
            (self.load_window, ErrorCode.WINDOW, Engine.LOAD),
            (self.load_bus, ErrorCode.BUS_READ, Engine.LOAD),
            (self.load_range, ErrorCode.SCRATCHPAD_RANGE, Engine.LOAD),
            *([(self.load_code, ErrorCode.CODE, Engine.LOAD)] if self.config.weight_codes else []),
            (self.gemm_range, ErrorCode.SCRATCHPAD_RANGE, Engine.GEMM),
            (self.vector_range, ErrorCode.SCRATCHPAD_RANGE, Engine.VECTOR),
            (self.store_window, ErrorCode.WINDOW, Engine.STORE),
            (self.store_range, ErrorCode.SCRATCHPAD_RANGE, Engine.STORE),
            (self.store_bus, ErrorCode.BUS_WRITE, Engine.STORE),
            (self.overflow, ErrorCode.SEMAPHORE_OVERFLOW, self.overflow_engine),
        ]
        # Errors registered in t+1: the errors that win over it, the error, and its details.
        registered: list[tuple[list[Value], Value, list[Any]]] = []
        # `together`: errors registered side by side, of which the first one wins; `before`: those of lower engines.
        together: list[Value] = []
        before: list[Value] = []
        for n, (fault, code, where) in enumerate(errors):
            details: list[Any] = [code, where, fault.pc, fault.address]
            if fault is self.gemm_range or fault is self.vector_range:
                before = [failed for _, failed, _ in registered]
                registered.append((before, fault.error, details))
                together, before = [], [*before, fault.error]
                continue
            failed = Signal(name=f"error{n}")
            m.d.sync += failed.eq(fault.error & ~Cat(together, C(0, 1)).any())
            together.append(fault.error)
            for k, (x, name) in enumerate(zip(details, ("code", "engine", "pc", "at"))):
                # The details of an overflow come a cycle late, which is now.
                if isinstance(x, Value) and fault is not self.overflow:
                    details[k] = Signal.like(x, name=f"error{n}_{name}", reset_less=True)
                    m.d.sync += details[k].eq(x)
            registered.append((before, failed, details))
        report = self.report
        m.d.sync += report.error.eq(Cat(failed for _, failed, _ in registered).any())
        ports = (report.code, report.engine, report.pc, report.address)
        # The details of the first one, 0 of the others: registers with a reset, so that choosing among them takes an
        # OR.
        chosen: list[list[Value]] = [[] for _ in ports]
        for n, (earlier, failed, details) in enumerate(registered):
            first = Signal(name=f"first{n}")
            m.d.comb += first.eq(failed & ~Cat(earlier, C(0, 1)).any())
            for values, port, value, name in zip(chosen, ports, details, ("code", "engine", "pc", "at")):
                kept = Signal(min(len(port), len(Value.cast(value))), name=f"first{n}_{name}", reset_less=True)
                with m.If(first):
                    m.d.sync += kept.eq(value)
                with m.Else():
                    m.d.sync += kept.eq(0)
                values.append(kept)
        m.d.sync += [port.eq(reduce(or_, values)) for port, values in zip(ports, chosen)]
        return m
