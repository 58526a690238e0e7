"""C for the core of a board without a host: clang, lld and compiler-rt as `ziglang` of PyPI carries them."""

from __future__ import annotations

import importlib.util
import os
import re
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright import driver
from tilewright.common.installation import install_extra
from tilewright.common.store import cache_folder
from tilewright.errors import UsageError

#: Sources of the programs, and of the NPU's driver.
DRIVER = Path(driver.__file__).parent / "c"
SOURCES = DRIVER / "standalone"
_FLAGS = (
    "-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m", "-Os", "-std=c99", "-ffreestanding", "-fno-builtin",
    "-ffunction-sections", "-fdata-sections", "-fno-stack-protector", "-fno-pic", "-g", "-Wall", "-Wextra", "-Werror",
    "-static", "-Wl,--gc-sections",
)  # fmt: skip
_LOAD = 1  # PT_LOAD
_SYMBOLS = 2  # SHT_SYMTAB


@dataclass(frozen=True)
class Linked:
    """A program at its addresses.

    Attributes:
        payload: bytes from its first address on.
        entry: address of its first instruction.
        symbols: addresses by name.
    """

    payload: bytes
    entry: int
    symbols: Mapping[str, int]


class MissingSymbols(UsageError):
    """Raised where sources need symbols that no library of the core has.

    Attributes:
        wanted: symbols by the name of the source that wants them.
    """

    def __init__(self, wanted: Mapping[str, Sequence[str]]) -> None:
        text = "; ".join(f"{source} wants {', '.join(names)}" for source, names in wanted.items())
        super().__init__(f"the core's library lacks symbols: {text}")
        self.wanted = wanted


def require() -> None:
    """Raises `UsageError` where the compiler is missing."""
    if importlib.util.find_spec("ziglang") is None:
        raise UsageError(f"ziglang, the C compiler for the core, is not installed: {install_extra('standalone')}")


def link(
    folder: Path, sources: Sequence[Path], *, start: int, values: Mapping[str, int], includes: Sequence[Path] = ()
) -> Linked:
    """Compiles and links a program.

    Args:
        folder: what is generated for it, and where the result goes.
        sources: C, assembly and objects.
        start: address of its first byte.
        values: numbers for the linker script.
        includes: folders of headers, after `folder` and those of the driver.

    Raises:
        MissingSymbols: something is in no library.
        UsageError: no compiler, or it fails.
    """
    require()
    script = folder / "program.ld"
    numbers = {"MEMORY_START": start, **values}
    text = "".join(f"{name} = 0x{value:x};\n" for name, value in numbers.items())
    script.write_text(text + (SOURCES / "program.ld").read_text(encoding="utf-8"), encoding="utf-8")
    headers = [folder, SOURCES, SOURCES / "include", DRIVER, *includes]
    elf = folder / "program.elf"
    command = [
        sys.executable, "-m", "ziglang", "cc", *_FLAGS, *(f"-I{path}" for path in headers), "-T", str(script),
        "-o", str(elf), *map(str, sources),
    ]  # fmt: skip
    places = {f"ZIG_{kind}_CACHE_DIR": str(cache_folder() / "zig") for kind in ("GLOBAL", "LOCAL")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **places}
    )
    if done.returncode:
        if wanted := _missing(done.stderr):
            raise MissingSymbols(wanted)
        found = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["?"]
        raise UsageError(f"the C compiler failed: {found[0].strip()}")
    return read_elf(elf.read_bytes(), start)


def _missing(errors: str) -> dict[str, list[str]]:
    """Undefined symbols in messages of lld, by the file that needs them."""
    found: dict[str, list[str]] = {}
    symbol = ""
    for line in errors.splitlines():
        if match := re.search(r"undefined symbol: (\S+)", line):
            symbol = match[1]
        elif symbol and (match := re.search(r">>> (?:referenced by)?.*?([\w.]+\.(?:o|c|S))\b", line)):
            names = found.setdefault(match[1], [])
            if symbol not in names:
                names.append(symbol)
    return found


def read_elf(data: bytes, start: int) -> Linked:
    """The contents of a linked 32-bit ELF file from address `start` on."""
    entry, programs, sections = struct.unpack_from("<III", data, 24)
    program_bytes, program_count, section_bytes, section_count = struct.unpack_from("<HHHH", data, 42)
    payload = bytearray()
    for n in range(program_count):
        kind, offset, address, _, size = struct.unpack_from("<5I", data, programs + n * program_bytes)
        if kind == _LOAD and size:
            payload += bytes(address + size - start - len(payload))
            payload[address - start : address - start + size] = data[offset : offset + size]
    symbols = {}
    headers = [struct.unpack_from("<10I", data, sections + n * section_bytes) for n in range(section_count)]
    for _, kind, _, _, offset, size, names, *_ in headers:
        for at in range(offset, offset + size, 16) if kind == _SYMBOLS else ():
            name, value = struct.unpack_from("<II", data, at)
            text = headers[names][4] + name
            symbols[data[text : data.index(b"\0", text)].decode()] = value
    return Linked(bytes(payload), entry, symbols)
