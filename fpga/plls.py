"""PLLs, which make the SoC's clocks from the clock of a board: their settings, and their primitives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from tilewright.fpga.errors import FpgaError

if TYPE_CHECKING:  # Amaranth takes 0.2 s to import, which the clocks of boards need not wait for
    from amaranth.hdl import Elaboratable, Instance, Module, Signal, Value

#: Largest deviation from the frequency asked for.
TOLERANCE = 0.02
#: Places of an edge in a cycle that an rPLL can choose from.
_PHASES = 16


class Pll(ABC):
    """Clocks made from another by a PLL. `output_hz` is the exact frequency, at most TOLERANCE from the requested one.
    `memory_hz` is that of a second output, for a memory; 0 where there is none.
    """

    output_hz: int
    memory_hz: int

    @abstractmethod
    def instance(self, clock: Value, output: Signal, locked: Signal, memory: MemoryClock | None = None) -> Elaboratable:
        """The PLL primitive; `memory` only where there is a `memory_hz`."""


class FindPll(Protocol):
    """Finds the PLL setting for a clock, and for a memory clock within limits, in Hz. Raises `FpgaError`."""

    def __call__(self, output_hz: int, memory_hz: tuple[int, int] | None = None, /) -> Pll: ...


@dataclass(frozen=True)
class MemoryClock:
    """The clock of a memory, None if it shares that of `sync`, and the pin's clock, `delay_ns` later."""

    clock: Signal | None
    later: Signal
    delay_ns: float


@dataclass(frozen=True)
class Ecp5Pll(Pll):
    """EHXPLLL with feedback from its output: output = input / clki_div * clkfb_div, VCO = output * clkop_div; the clock
    of a memory is VCO / clkos_div.

    Limits (ECP5 family data sheet, sysCLOCK PLL timing): phase detector 3.125..400 MHz, VCO 400..800 MHz.
    """

    input_hz: int
    clki_div: int
    clkfb_div: int
    clkop_div: int
    clkos_div: int = 0

    @property
    def output_hz(self) -> int:  # type: ignore[override]
        return self.input_hz * self.clkfb_div // self.clki_div

    @property
    def memory_hz(self) -> int:  # type: ignore[override]
        return self.output_hz * self.clkop_div // self.clkos_div if self.clkos_div else 0

    @staticmethod
    def find(input_hz: int, output_hz: int, memory_hz: tuple[int, int] | None = None, /) -> Ecp5Pll:
        """Finds the closest setting, with the slowest memory clock within its limits. Raises `FpgaError`."""
        found = [
            Ecp5Pll(input_hz, i, f, o)
            for i in range(1, 9)
            if input_hz / i >= 3.125e6
            for f in range(1, 81)
            for middle in [max(1, round(600e6 * i / (input_hz * f)))]
            for o in (range(1, 129) if memory_hz else [middle])
            if o <= 128 and 400e6 <= input_hz / i * f * o <= 800e6
        ]
        if memory_hz is not None:
            least, most = memory_hz
            whole = [replace(pll, clkos_div=pll.output_hz * pll.clkop_div // least) for pll in found]
            found = [pll for pll in whole if least <= pll.memory_hz <= most]
        return _closest(found, output_hz)

    def instance(self, clock: Value, output: Signal, locked: Signal, memory: MemoryClock | None = None) -> Instance:
        from amaranth.hdl import Instance

        others: dict[str, object] = {}
        if memory is not None:
            # In eighths of a cycle of the VCO.
            eighths = round(memory.delay_ns * 1e-9 * self.output_hz * self.clkop_div * 8)
            for name, signal, phase in (("CLKOS", memory.clock, 0), ("CLKOS2", memory.later, eighths)):
                others |= {
                    f"p_{name}_ENABLE": "ENABLED",
                    f"p_{name}_DIV": self.clkos_div,
                    f"p_{name}_CPHASE": self.clkos_div // 2 + phase // 8,
                    f"p_{name}_FPHASE": phase % 8,
                    f"o_{name}": signal,
                }
        disabled = {f"p_{n}": "DISABLED" for n in ("PLLRST_ENA", "INTFB_WAKE", "STDBY_ENABLE", "DPHASE_SOURCE")}
        loop_filter = {"ICP_CURRENT": "12", "LPF_RESISTOR": "8", "MFG_ENABLE_FILTEROPAMP": "1", "MFG_GMCREF_SEL": "2"}
        tied = {f"i_{n}": 0 for n in ("RST", "STDBY", "PHASESEL0", "PHASESEL1", "PLLWAKESYNC", "ENCLKOP")}
        tied |= {f"i_{n}": 1 for n in ("PHASEDIR", "PHASESTEP", "PHASELOADREG")}
        return Instance(
            "EHXPLLL",
            **disabled,
            **{f"a_{n}": v for n, v in loop_filter.items()},
            **tied,
            p_CLKI_DIV=self.clki_div,
            p_CLKFB_DIV=self.clkfb_div,
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=self.clkop_div,
            p_CLKOP_CPHASE=self.clkop_div // 2,
            p_CLKOP_FPHASE=0,
            p_FEEDBK_PATH="CLKOP",
            **others,
            i_CLKI=clock,
            i_CLKFB=output,
            o_CLKOP=output,
            o_LOCK=locked,
        )


@dataclass(frozen=True)
class GowinPll(Pll):
    """rPLL: output = input * fbdiv / idiv, VCO = output * odiv. A memory has the clock of the NPU: `memory_hz` is
    `output_hz`, and the output CLKOUTP is that of the pin.

    Limits of GW2A(R)-18 C8/I7 (data sheet, PLL): phase detector 3..500 MHz, VCO 500..1250 MHz.
    """

    input_hz: int
    idiv: int
    fbdiv: int
    odiv: int
    device: str
    with_memory: bool = False

    @property
    def output_hz(self) -> int:  # type: ignore[override]
        return self.input_hz * self.fbdiv // self.idiv

    @property
    def memory_hz(self) -> int:  # type: ignore[override]
        return self.output_hz if self.with_memory else 0

    @staticmethod
    def find(input_hz: int, output_hz: int, memory_hz: tuple[int, int] | None = None, /, *, device: str) -> GowinPll:
        """Finds the closest setting. Raises `FpgaError`."""
        found = [
            GowinPll(input_hz, i, f, o, device, memory_hz is not None)
            for i in range(1, 10)
            if input_hz / i >= 3e6
            for f in range(1, 65)
            for o in (2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128)
            if 500e6 <= input_hz / i * f * o <= 1250e6
        ]
        if memory_hz is not None:
            found = [pll for pll in found if memory_hz[0] <= pll.memory_hz <= memory_hz[1]]
        return _closest(found, output_hz)

    def instance(self, clock: Value, output: Signal, locked: Signal, memory: MemoryClock | None = None) -> Instance:
        from amaranth.hdl import Instance

        others: dict[str, object] = {}
        if memory is not None:
            phase = round(memory.delay_ns * 1e-9 * self.output_hz * _PHASES) % _PHASES
            others = {"p_PSDA_SEL": f"{phase:04b}", "p_DUTYDA_SEL": "1000", "o_CLKOUTP": memory.later}
        tied = {
            f"i_{n}": 0 for n in ("RESET", "RESET_P", "CLKFB", "FBDSEL", "IDSEL", "ODSEL", "DUTYDA", "PSDA", "FDLY")
        }
        return Instance(
            "rPLL",
            **tied,
            p_DEVICE=self.device,
            p_FCLKIN=str(self.input_hz / 1e6),
            p_DYN_IDIV_SEL="false",
            p_DYN_FBDIV_SEL="false",
            p_DYN_ODIV_SEL="false",
            p_IDIV_SEL=self.idiv - 1,
            p_FBDIV_SEL=self.fbdiv - 1,
            p_ODIV_SEL=self.odiv,
            p_CLKFB_SEL="internal",
            **others,
            i_CLKIN=clock,
            o_CLKOUT=output,
            o_LOCK=locked,
        )


@dataclass(frozen=True)
class Xilinx7Pll(Pll):
    """PLLE2_ADV with feedback inside: VCO = input * 8, output = VCO / div, through a BUFG.

    The factor is 8 because nextpnr writes the loop filter and the lock counters of that one, whatever the factor is.
    Limits of XC7A-1 (data sheet, PLL): input 19..800 MHz, VCO 800..1600 MHz.
    """

    input_hz: int
    div: int
    memory_hz: int = 0  # nothing makes a clock for a memory yet

    FACTOR = 8

    @property
    def output_hz(self) -> int:  # type: ignore[override]
        return self.input_hz * self.FACTOR // self.div

    @staticmethod
    def find(input_hz: int, output_hz: int, memory_hz: tuple[int, int] | None = None, /) -> Xilinx7Pll:
        """Finds the closest setting. Raises `FpgaError`."""
        possible = memory_hz is None and 800e6 <= input_hz * Xilinx7Pll.FACTOR <= 1600e6
        return _closest([Xilinx7Pll(input_hz, div) for div in range(1, 129) if possible], output_hz)

    def instance(self, clock: Value, output: Signal, locked: Signal, memory: MemoryClock | None = None) -> Module:
        from amaranth.hdl import Const, Instance, Module, Signal

        m = Module()
        feedback, made = Signal(), Signal()
        tied = {f"i_{n}": Const(0, 1) for n in ("CLKIN2", "RST", "PWRDWN", "DCLK", "DEN", "DWE")}
        m.submodules.pll = Instance(
            "PLLE2_ADV",
            **tied,
            p_COMPENSATION="INTERNAL",
            p_DIVCLK_DIVIDE=1,
            p_CLKFBOUT_MULT=self.FACTOR,
            p_CLKFBOUT_PHASE="0.0",
            p_CLKIN1_PERIOD=str(1e9 / self.input_hz),
            p_CLKOUT0_DIVIDE=self.div,
            p_CLKOUT0_PHASE="0.0",
            i_CLKIN1=clock,
            i_CLKINSEL=Const(1, 1),
            i_CLKFBIN=feedback,
            o_CLKFBOUT=feedback,
            o_CLKOUT0=made,
            o_LOCKED=locked,
        )
        m.submodules.buffer = Instance("BUFG", i_I=made, o_O=output)
        return m


@dataclass(frozen=True)
class NoPll(Pll):
    """The clock of the board as it is, where no PLL takes it."""

    output_hz: int
    memory_hz: int = 0

    @staticmethod
    def find(input_hz: int, output_hz: int, memory_hz: tuple[int, int] | None = None, /) -> NoPll:
        """The board's clock. Raises `FpgaError` for another one."""
        return _closest([NoPll(input_hz)] if memory_hz is None else [], output_hz)

    def instance(self, clock: Value, output: Signal, locked: Signal, memory: MemoryClock | None = None) -> Module:
        from amaranth.hdl import Module

        m = Module()
        m.d.comb += [output.eq(clock), locked.eq(1)]
        return m


P = TypeVar("P", "Ecp5Pll", "GowinPll", "Xilinx7Pll", "NoPll")


def _closest(found: list[P], output_hz: int) -> P:
    if not found:
        raise FpgaError(f"no PLL setting gives a clock for the memory beside {output_hz / 1e6:g} MHz")
    best = min(found, key=lambda pll: (abs(pll.output_hz - output_hz), pll.memory_hz))
    if abs(best.output_hz - output_hz) > TOLERANCE * output_hz:
        raise FpgaError(f"no PLL setting gives {output_hz / 1e6:g} MHz; the closest is {best.output_hz / 1e6:.2f} MHz")
    return best
