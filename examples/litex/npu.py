"""The NPU as a module of LiteX: registers on AXI-Lite, memory by an AXI master, an interrupt.

The Verilog is that of `tilewright rtl`; nothing else of Tilewright is needed.
"""

from __future__ import annotations

import re
from pathlib import Path

from litex.gen import LiteXModule
from litex.soc.integration.soc import SoCRegion
from litex.soc.interconnect import axi
from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourceLevel
from migen import ClockSignal, Instance, ResetSignal, Signal

#: Bytes of address space of the registers.
REGISTERS = 0x200
#: Channels of AXI by who sends: what the NPU drives, and what it reads.
_FIELDS = {
    "ar": ("valid addr len size burst cache prot id", "ready"),
    "aw": ("valid addr len size burst cache prot id", "ready"),
    "w": ("valid data strb last", "ready"),
    "r": ("ready", "valid data resp last id"),
    "b": ("ready", "valid resp id"),
}


class Npu(LiteXModule):
    """An NPU of a folder that `tilewright rtl` wrote, with addresses and data of 32 bits, as LiteX has.

    Attributes:
        bus: AXI master to memory.
        control: AXI-Lite slave with the registers.
        ev: its event `done` is the level of the interrupt line; acknowledge it in the NPU's register IRQ_STATUS.
    """

    def __init__(self, platform: object, folder: Path) -> None:
        ports = (folder / "npu_axi.v").read_text()
        widths = {name: int(high or 0) + 1 for high, name in re.findall(r"put (?:\[(\d+):0\] )?(\w+)", ports)}
        if (widths["m_axi_araddr"], widths["m_axi_wdata"]) != (32, 32):
            found = f"{widths['m_axi_araddr']} and {widths['m_axi_wdata']}"
            raise ValueError(f"{folder}: addresses and data must have 32 bits, as those of tiny, not {found}")
        (top,) = re.findall(r"^module (\w+)", ports, re.MULTILINE)
        self.bus = axi.AXIInterface(widths["m_axi_wdata"], widths["m_axi_araddr"], id_width=1)
        self.control = axi.AXILiteInterface(data_width=32, address_width=32)
        self.ev = EventManager()
        self.ev.done = EventSourceLevel()
        self.ev.finalize()
        pins: dict[str, object] = {
            "i_aclk": ClockSignal(),
            "i_aresetn": ~ResetSignal(),
            "o_irq": self.ev.done.trigger,
        }
        for name in widths:
            if found := re.fullmatch(r"([ms])_axi_(ar|aw|w|r|b)(\w+)", name):
                side, channel, field = found.groups()
                interface = getattr(self.bus if side == "m" else self.control, channel)
                driven = field in _FIELDS[channel][0].split()
                output = driven == (side == "m")
                signal = getattr(interface, field, None)
                if signal is None and output:
                    continue
                if signal is None:  # LiteX has no such bits on AXI-Lite
                    signal = Signal(widths[name])
                pins[f"{'o' if output else 'i'}_{name}"] = signal[: widths[name]] if side == "s" else signal
        self.specials += Instance(top, **pins)
        for source in (folder / "npu.f").read_text().split():
            if source.endswith(".v"):
                platform.add_source(str(folder / source))  # type: ignore[attr-defined]


def add_npu(soc: object, folder: Path, origin: int) -> Npu:
    """Adds an NPU to a SoC as `soc.npu`, with its registers at `origin`, a multiple of 4096 in the CPU's range of
    input and output."""
    soc.npu = npu = Npu(soc.platform, folder)  # type: ignore[attr-defined]
    soc.bus.add_slave("npu", npu.control, SoCRegion(origin=origin, size=0x1000, cached=False))  # type: ignore[attr-defined]
    soc.bus.add_master("npu", master=npu.bus)  # type: ignore[attr-defined]
    soc.irq.add("npu", use_loc_if_exists=True)  # type: ignore[attr-defined]
    return npu
