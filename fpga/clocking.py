"""PLLs: from the clock a board has to the clock the SoC runs on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar

from amaranth.hdl import ClockDomain, Instance, Module, Signal, Value
from amaranth.lib.cdc import ResetSynchronizer

from fpga.errors import FpgaError

#: Largest deviation from the frequency asked for.
TOLERANCE = 0.02


class Pll(ABC):
    """One clock from another. `output_hz` is the exact frequency, at most TOLERANCE from the one asked for."""

    output_hz: int

    @abstractmethod
    def instance(
        self, clock: Value, output: Signal, locked: Signal, later: Signal | None = None, delay_ns: float = 0
    ) -> Instance:
        """The primitive. `later` is a second output, `delay_ns` after `output`. Raises `FpgaError` if there is none."""


@dataclass(frozen=True)
class Ecp5Pll(Pll):
    """EHXPLLL with feedback from its output: output = input / clki_div * clkfb_div, VCO = output * clkop_div.

    Limits (ECP5 family data sheet, sysCLOCK PLL timing): phase detector 3.125..400 MHz, VCO 400..800 MHz.
    """

    input_hz: int
    clki_div: int
    clkfb_div: int
    clkop_div: int

    @property
    def output_hz(self) -> int:  # type: ignore[override]
        return self.input_hz * self.clkfb_div // self.clki_div

    @staticmethod
    def find(input_hz: int, output_hz: int) -> Ecp5Pll:
        """The closest setting. Raises `FpgaError`."""
        found = [
            Ecp5Pll(input_hz, i, f, o)
            for i in range(1, 9)
            if input_hz / i >= 3.125e6
            for f in range(1, 81)
            for o in [max(1, round(600e6 * i / (input_hz * f)))]
            if o <= 128 and 400e6 <= input_hz / i * f * o <= 800e6
        ]
        return _closest(found, output_hz)

    def instance(
        self, clock: Value, output: Signal, locked: Signal, later: Signal | None = None, delay_ns: float = 0
    ) -> Instance:
        second: dict[str, object] = {}
        if later is not None:
            # In eighths of a cycle of the VCO; phases count from that of CLKOP.
            eighths = round(delay_ns * 1e-9 * self.output_hz * self.clkop_div * 8)
            second = {
                "p_CLKOS_ENABLE": "ENABLED",
                "p_CLKOS_DIV": self.clkop_div,
                "p_CLKOS_CPHASE": self.clkop_div // 2 + eighths // 8,
                "p_CLKOS_FPHASE": eighths % 8,
                "o_CLKOS": later,
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
            **second,
            i_CLKI=clock,
            i_CLKFB=output,
            o_CLKOP=output,
            o_LOCK=locked,
        )


@dataclass(frozen=True)
class GowinPll(Pll):
    """rPLL: output = input * fbdiv / idiv, VCO = output * odiv.

    Limits of GW2A(R)-18 C8/I7 (data sheet, PLL): phase detector 3..500 MHz, VCO 500..1250 MHz.
    """

    input_hz: int
    idiv: int
    fbdiv: int
    odiv: int
    device: str

    @property
    def output_hz(self) -> int:  # type: ignore[override]
        return self.input_hz * self.fbdiv // self.idiv

    @staticmethod
    def find(input_hz: int, output_hz: int, device: str) -> GowinPll:
        """The closest setting. Raises `FpgaError`."""
        found = [
            GowinPll(input_hz, i, f, o, device)
            for i in range(1, 10)
            if input_hz / i >= 3e6
            for f in range(1, 65)
            for o in (2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128)
            if 500e6 <= input_hz / i * f * o <= 1250e6
        ]
        return _closest(found, output_hz)

    def instance(
        self, clock: Value, output: Signal, locked: Signal, later: Signal | None = None, delay_ns: float = 0
    ) -> Instance:
        if later is not None:
            raise FpgaError("no second clock from the PLL of this FPGA")
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
            i_CLKIN=clock,
            o_CLKOUT=output,
            o_LOCK=locked,
        )


P = TypeVar("P", "Ecp5Pll", "GowinPll")


def _closest(found: list[P], output_hz: int) -> P:
    best = min(found, key=lambda pll: (abs(pll.output_hz - output_hz), pll.input_hz))
    if abs(best.output_hz - output_hz) > TOLERANCE * output_hz:
        raise FpgaError(f"no PLL setting gives {output_hz / 1e6:g} MHz; the closest is {best.output_hz / 1e6:.2f} MHz")
    return best


def drive_sync(m: Module, pll: Pll, clock: Value, *, later: str | None = None, delay_ns: float = 0) -> Signal:
    """Clock domain `sync` from a PLL, in reset until the PLL is locked. Returns the clock, for constraints. `later`
    names a second domain, without reset, whose clock comes `delay_ns` after that of `sync`.

    Raises:
        FpgaError: the PLL has no second output.
    """
    domain = ClockDomain("sync")
    m.domains += domain
    locked = Signal()
    second = None
    if later is not None:
        second = ClockDomain(later, reset_less=True)
        m.domains += second
    m.submodules.pll = pll.instance(clock, domain.clk, locked, second and second.clk, delay_ns)
    m.submodules.reset = ResetSynchronizer(~locked, domain="sync")
    return domain.clk
