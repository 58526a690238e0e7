"""The NPU: AXI4 master, AXI4-Lite slave, one interrupt line."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from hw.control import ENGINES, Control
from hw.core import Core
from hw.counters import Counters
from hw.ports import axi_master, axil_slave, debug
from hw.registers import Registers
from hw.reset import reset_by
from isa.config import NpuConfig
from isa.instructions import REGIONS
from isa.registers import REGISTER

#: Counted events of an engine: port of the core, counter.
EVENTS = (("step", "BUSY"), ("waiting", "WAIT_SEMAPHORE"), ("stalled", "WAIT_MEMORY"))


class Npu(wiring.Component):
    """The whole accelerator. Clock domain `sync`: ports `clk` and `rst` (synchronous, active high).

    Parameters:
        config: sizes and bus widths.

    Ports:
        axi_*: AXI4 master to external memory.
        axil_*: AXI4-Lite slave, the registers of `isa.registers`.
        irq: level interrupt, high while an enabled interrupt is pending.
        dbg_*: strobes for timelines; leave open where unused.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        super().__init__({**axi_master(config), **axil_slave(), "irq": Out(1), **debug()})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        m.submodules.registers = registers = Registers(c)
        m.submodules.control = control = Control(c)
        m.submodules.counters = counters = Counters(c)
        core = Core(c)
        # Both through a register: the reset has far to go.
        reset, start = Signal(init=1), Signal()
        m.d.sync += [reset.eq(control.hold), start.eq(control.start)]
        m.submodules.core = reset_by(m, core, reset, "core")

        for name, member in self.signature.members.items():
            part = registers if name.startswith("axil_") else core
            if name == "irq":
                m.d.comb += self.irq.eq(control.irq)
            elif member.flow == Out:
                m.d.comb += getattr(self, name).eq(getattr(part, name))
            else:
                m.d.comb += getattr(part, name).eq(getattr(self, name))

        # Registers and control.
        commands = {b.name: b.low for b in REGISTER["CONTROL"].bits}
        error = {b.name: (b.low, b.bits) for b in REGISTER["ERROR_CODE"].bits}
        m.d.comb += [
            control.start_write.eq(registers.CONTROL_write & registers.CONTROL_data[commands["START"]]),
            control.reset_write.eq(registers.CONTROL_write & registers.CONTROL_data[commands["SOFT_RESET"]]),
            registers.STATUS.eq(control.status),
            registers.IRQ_STATUS.eq(control.irq_status),
            control.irq_enable.eq(registers.IRQ_ENABLE),
            registers.ERROR_CODE.eq((control.code << error["CODE"][0]) | (control.engine << error["ENGINE"][0])),
            registers.ERROR_PC.eq(control.failed_pc),
            Cat(registers.ERROR_ADDRESS_LO, registers.ERROR_ADDRESS_HI).eq(control.address),
            control.watchdog.eq(registers.WATCHDOG),
            control.timeout.eq(registers.TIMEOUT),
        ]
        with m.If(registers.IRQ_STATUS_write):
            m.d.comb += control.acknowledge.eq(registers.IRQ_STATUS_data)

        # Registers and core.
        m.d.comb += [
            core.program_region.eq(registers.PROGRAM_REGION),
            core.program_offset.eq(registers.PROGRAM_OFFSET),
            core.program_length.eq(registers.PROGRAM_LENGTH),
        ]
        flags = {b.name: b.low for b in REGISTER["REGION0_FLAGS"].bits}
        for r in range(REGIONS):
            base = Cat(getattr(registers, f"REGION{r}_BASE_LO"), getattr(registers, f"REGION{r}_BASE_HI"))
            permissions = getattr(registers, f"REGION{r}_FLAGS")
            low = (c.bus_bytes - 1).bit_length()
            m.d.comb += [
                getattr(core, f"region{r}_base").eq(Cat(base[:low] & 0, base[low:])),
                getattr(core, f"region{r}_size").eq(getattr(registers, f"REGION{r}_SIZE")),
                getattr(core, f"region{r}_read").eq(permissions[flags["READ"]]),
                getattr(core, f"region{r}_write").eq(permissions[flags["WRITE"]]),
            ]

        # Counters.
        events: dict[str, Value] = {
            "CYCLES": C(1, 1),
            "MACS": core.mac_step,
            "BYTES_READ": core.axi_rvalid & core.axi_rready,
            "BYTES_WRITTEN": core.axi_wvalid & core.axi_wready,
        }
        for engine in ENGINES:
            for event, name in EVENTS:
                events[f"{engine.name}_{name}"] = getattr(core, f"{engine.name.lower()}_{event}")
        m.d.comb += [getattr(counters, f"{name}_event").eq(event & control.counting) for name, event in events.items()]
        m.d.comb += [
            counters.clear.eq(control.clear),
            registers.counter_index.eq(counters.index),
            registers.counter_value.eq(counters.value),
        ]

        # Control and core.
        m.d.comb += [core.start.eq(start), core.halt.eq(control.halt)]
        names = ("finished", "bus_idle", "error", "error_code", "error_engine", "error_pc", "error_address", "progress")
        for name in (*names, "waiting", "waiting_engine", "waiting_pc", "waiting_id", "pc"):
            m.d.comb += getattr(control, name).eq(getattr(core, name))
        return m
