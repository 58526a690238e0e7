"""The NPU: AXI4 master, AXI4-Lite slave, one interrupt line."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.core import Core
from tilewright.hw.host.control import Control
from tilewright.hw.host.counters import Counters
from tilewright.hw.host.regions import Regions
from tilewright.hw.host.registers import Registers
from tilewright.hw.host.reset import reset_by
from tilewright.hw.interfaces import ENGINES, Axi4, Axi4Lite, Debug
from tilewright.isa.config import NpuConfig
from tilewright.isa.registers import REGISTER


class Npu(wiring.Component):
    """The whole accelerator, a component of Amaranth. Clock domain `sync`: ports `clk` and `rst` (synchronous, active
    high). `wiring.connect` puts it into a design, as in `examples/amaranth`.

    Parameters:
        config: sizes and bus widths.

    Ports:
        axi: `Out(Axi4(config))`, AXI4 master to external memory.
        axil: `In(Axi4Lite())`, AXI4-Lite slave, the registers of `tilewright.isa.registers`.
        irq: `Out(1)`, level interrupt, high while an enabled interrupt is pending.
        dbg: `Out(Debug(config))`, strobes for timelines; leave open where unused.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        super().__init__({"axi": Out(Axi4(config)), "axil": In(Axi4Lite()), "irq": Out(1), "dbg": Out(Debug(config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        m.submodules.registers = registers = Registers(c)
        m.submodules.regions = regions = Regions(c)
        m.submodules.control = control = Control(c)
        m.submodules.counters = counters = Counters(c)
        core = Core(c)
        # Both through a register: the reset has far to go.
        reset, start = Signal(init=1), Signal()
        m.d.sync += [reset.eq(control.hold), start.eq(control.start)]
        m.submodules.core = reset_by(m, core, reset, "core")

        wiring.connect(m, wiring.flipped(self.axi), core.axi)
        wiring.connect(m, wiring.flipped(self.axil), registers.axil)
        wiring.connect(m, wiring.flipped(self.dbg), core.dbg)
        wiring.connect(m, registers.program, core.program)
        wiring.connect(m, registers.written, regions.write)
        wiring.connect(m, core.load_region, regions.load)
        wiring.connect(m, core.store_region, regions.store)
        wiring.connect(m, core.status, control.core)

        # Registers and control.
        commands = {b.name: b.low for b in REGISTER["CONTROL"].bits}
        error = {b.name: (b.low, b.bits) for b in REGISTER["ERROR_CODE"].bits}
        m.d.comb += [
            control.start_write.eq(registers.CONTROL_write & registers.data[commands["START"]]),
            control.reset_write.eq(registers.CONTROL_write & registers.data[commands["SOFT_RESET"]]),
            registers.STATUS.eq(control.status),
            registers.IRQ_STATUS.eq(control.irq_status),
            control.irq_enable.eq(registers.IRQ_ENABLE),
            registers.ERROR_CODE.eq((control.code << error["CODE"][0]) | (control.engine << error["ENGINE"][0])),
            registers.ERROR_PC.eq(control.failed_pc),
            Cat(registers.ERROR_ADDRESS_LO, registers.ERROR_ADDRESS_HI).eq(control.address),
            control.watchdog.eq(registers.WATCHDOG),
            control.timeout.eq(registers.TIMEOUT),
            self.irq.eq(control.irq),
            core.start.eq(start),
            core.halt.eq(control.halt),
        ]
        with m.If(registers.IRQ_STATUS_write):
            m.d.comb += control.acknowledge.eq(registers.data)

        # Counters.
        events: dict[str, Value] = {
            "CYCLES": C(1, 1),
            "MACS": core.mac_step,
            "BYTES_READ": core.axi.r.valid & core.axi.r.ready,
            "BYTES_WRITTEN": core.axi.w.valid & core.axi.w.ready,
        }
        for engine, activity in zip(ENGINES, core.activities, strict=True):
            events[f"{engine.name}_BUSY"] = activity.step
            events[f"{engine.name}_WAIT_SEMAPHORE"] = activity.waiting
            events[f"{engine.name}_WAIT_MEMORY"] = activity.stalled
        m.d.comb += [counters.events[name].eq(event & control.counting) for name, event in events.items()]
        m.d.comb += [
            counters.clear.eq(control.clear),
            registers.counter_index.eq(counters.index),
            registers.counter_value.eq(counters.value),
        ]
        return m
