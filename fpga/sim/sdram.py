"""A component with an SDRAM at its pins, for simulation: the registers of the pins and the model of the chip."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

from amaranth.hdl import C, ClockDomain, ClockSignal, DomainRenamer, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from tilewright.fpga.sdram.chip import SdramChip, SdramCycles, pins
from tilewright.fpga.sdram.memory import MEMORY
from tilewright.hw.verilog import component_text

MODEL = Path(__file__).resolve().parent / "sdram_chip.sv"
#: The clock of `sync`, with the reset that a board makes for it.
_RELEASED = "released"


class WithSdram(wiring.Component):
    """A component with the ports of `tilewright.fpga.sdram.chip.pins`, and a chip at them that checks its commands.

    Parameters:
        component: the component with these ports.
        chip: the memory.
        clock_hz: clock of the chip.
        shared: as for `SdramMemory`.
        from_lock: both clocks get their resets from `rst` as they get them on a board from the lock of the PLL; else
            `sync` has `rst` itself. Not where the clock is shared.

    Ports:
        those of the component that do not lead to the chip.
        memory_clk: clock of MEMORY, which is reset with `sync`; only where the chip has a clock of its own.
        sdram_fault: number of the first violation, 0 = none; see sdram_chip.sv.
    """

    def __init__(
        self, component: Any, chip: SdramChip, clock_hz: int, *, shared: bool = False, from_lock: bool = False
    ) -> None:
        self.component, self.chip, self.clock_hz, self.shared = component, chip, clock_hz, shared
        self.from_lock = from_lock and not shared
        self.domain = "sync" if shared else MEMORY
        self.pins = pins(chip)
        self.kept = {name: m for name, m in component.signature.members.items() if name not in self.pins}
        clock = {} if shared else {"memory_clk": In(1)}
        super().__init__({**self.kept, **clock, "sdram_fault": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if not self.shared:
            domain = ClockDomain(MEMORY)
            m.domains += domain
            m.d.comb += domain.clk.eq(self.memory_clk)
            m.submodules.reset = ResetSynchronizer(ResetSignal("sync"), domain=MEMORY)
        inner = self.component
        if self.from_lock:
            released = ClockDomain(_RELEASED)
            m.domains += released
            m.d.comb += released.clk.eq(ClockSignal("sync"))
            m.submodules.released = ResetSynchronizer(ResetSignal("sync"), domain=_RELEASED)
            m.submodules.inner = DomainRenamer({"sync": _RELEASED})(inner)
        else:
            m.submodules.inner = inner
        for name, member in self.kept.items():
            if member.is_signature:
                wiring.connect(m, getattr(inner, name), wiring.flipped(getattr(self, name)))
            else:
                source, target = (inner, self) if member.flow == Out else (self, inner)
                m.d.comb += getattr(target, name).eq(getattr(source, name))
        at_pin = {}
        for name, member in self.pins.items():
            if member.flow == Out:  # type: ignore[attr-defined]
                at_pin[name] = Signal.like(getattr(inner, name), name=f"pin_{name}")
                m.d[self.domain] += at_pin[name].eq(getattr(inner, name))
        words = Signal(self.chip.word_bits)
        m.submodules.chip = self._instance(at_pin, words)
        # Data on its way for longer than half a cycle is caught an edge later.
        for edge in range(SdramCycles.of(self.chip, self.clock_hz).late):
            after = Signal(self.chip.word_bits, name=f"words{edge}")
            m.d[self.domain] += after.eq(words)
            words = after
        m.d[self.domain] += inner.sdram_dq_i.eq(words)
        return m

    def _instance(self, at_pin: dict[str, Signal], words: Signal) -> Instance:
        chip = self.chip
        ns = {
            "RCD": chip.activate_to_column, "RP": chip.precharge, "RC": chip.row, "RAS": chip.row_active,
            "RRD": chip.bank_to_bank, "WR": chip.write_recovery, "RFC": chip.refresh, "HZ": chip.access,
            "START": 1000 * chip.start_us, "REFRESH": chip.refresh_interval,
        }  # fmt: skip
        return Instance(
            "sdram_chip",
            p_WORD_BITS=chip.word_bits,
            p_BURST=chip.burst_words,
            p_BANK_BITS=chip.bank_bits,
            p_ROW_BITS=chip.row_bits,
            p_COLUMN_BITS=chip.column_bits,
            p_CLOCK_PS=ceil(1e12 / self.clock_hz),
            p_START_REFRESHES=chip.start_refreshes,
            p_MODE_CYCLES=chip.mode_cycles,
            **{f"p_{name}_PS": round(1000 * value) for name, value in ns.items()},
            i_clk=~ClockSignal(self.domain),
            i_power=C(1, 1),
            i_cke=at_pin["sdram_clk_en"],
            **{f"i_{name}_n": ~at_pin[f"sdram_{name}"] for name in ("cs", "ras", "cas", "we")},
            i_ba=at_pin["sdram_ba"],
            i_a=at_pin["sdram_a"],
            i_dqm=at_pin["sdram_dqm"],
            i_dq_in=at_pin["sdram_dq_o"],
            i_dq_in_driven=at_pin["sdram_dq_oe"],
            o_dq_out=words,
            o_dq_out_driven=Signal(),
            o_fault=self.sdram_fault,
        )


def with_sdram_text(component: Any, chip: SdramChip, clock_hz: int, name: str, **how: bool) -> str:
    """Verilog of `WithSdram` as module `name`, and of the chip. `how`: parameters of `WithSdram`."""
    text = component_text(WithSdram(component, chip, clock_hz, **how), name)
    return f"{text}\n{MODEL.read_text(encoding='utf-8')}"
