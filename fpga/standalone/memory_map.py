"""Addresses of the core's slaves, for RTL, linker scripts and the C header of the firmware."""

from __future__ import annotations

from tilewright.isa.registers import REGISTER_SPACE

#: Byte addresses. The four highest bits choose; from 0x8000_0000 on the core does not cache.
BOOT, FLASH, MEMORY, NPU, IO = 0x0000_0000, 0x2000_0000, 0x4000_0000, 0x8000_0000, 0x9000_0000
#: Bits above these choose between the places.
PLACE_BITS = 28
#: Bytes of the RAM the core starts in. It holds the boot program with its data and, from its end down, the stack.
BOOT_BYTES = 8192
#: Words from IO on. UART: a read takes a byte, bit 8 is 1 if there was one; a write sends one, while bit 0 of
#: STATUS allows it. Bit 1: a byte came and had no room; reading clears it. TIMER_LO: cycles; reading it keeps
#: the upper half in TIMER_HI. LEDS: bits 1 to 3 are shown. The others are constants.
IO_REGISTERS = ("UART", "STATUS", "TIMER_LO", "TIMER_HI", "CLOCK_HZ", "MEMORY_BYTES", "FLASH_BYTES", "LEDS")
BYTE_CAME, MAY_SEND, OVERFLOW = 1 << 8, 1 << 0, 1 << 1


def c_header() -> str:
    """The memory map as macros for C and assembly."""
    values = {
        "BOOT": BOOT, "BOOT_BYTES": BOOT_BYTES, "FLASH": FLASH, "MEMORY": MEMORY, "NPU": NPU,
        "NPU_BYTES": REGISTER_SPACE, "BYTE_CAME": BYTE_CAME, "MAY_SEND": MAY_SEND, "OVERFLOW": OVERFLOW,
        **{f"IO_{name}": IO + 4 * n for n, name in enumerate(IO_REGISTERS)},
    }  # fmt: skip
    lines = [f"#define TW_SOC_{name} 0x{value:08x}" for name, value in values.items()]
    return "/* Written from fpga/standalone/memory_map.py. */\n" + "\n".join(lines) + "\n"
