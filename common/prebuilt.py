"""Finds the native libraries that a wheel brings, so that a machine without a C++ compiler can use them.

`.ci/prebuilt.py` builds them for a release into the folder `prebuilt/` beside this file, with a folder for each level
of an instruction set. A checkout has none.
"""

from __future__ import annotations

import functools
import os
import platform
import sys
from pathlib import Path

FOLDER = Path(__file__).absolute().parent / "prebuilt"
#: Oldest glibc that the libraries run with: that of manylinux_2_17.
GLIBC = (2, 17)
_LEVEL_3 = ("avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")
#: By `platform.machine()`: folders, the best first, and what a processor must have for one, in the words of
#: /proc/cpuinfo.
LEVELS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "x86-64-v4": (*_LEVEL_3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"),
        "x86-64-v3": _LEVEL_3,
        "x86-64": (),
    },
    "aarch64": {"aarch64": ()},
}


def find(file: str) -> Path | None:
    """The library of this name, made of the sources that are here, that is the best for this processor; else None."""
    return next((path for folder in folders() if (path := folder / file).is_file()), None)


def levels(machine: str, libc: str, flags: frozenset[str]) -> list[str]:
    """The folders whose libraries run on a machine, the best first.

    Args:
        machine: as `platform.machine()`.
        libc: as `os.confstr("CS_GNU_LIBC_VERSION")`, "glibc 2.36"; "" for another C library.
        flags: of /proc/cpuinfo.
    """
    name, _, version = libc.partition(" ")
    if name != "glibc" or tuple(map(int, version.split(".")[:2])) < GLIBC:
        return []
    return [level for level, needed in LEVELS.get(machine, {}).items() if flags.issuperset(needed)]


@functools.cache
def folders() -> list[Path]:
    """The folders of this machine that are there."""
    if not FOLDER.is_dir() or sys.platform != "linux":
        return []
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        libc = ""
    return [FOLDER / level for level in levels(platform.machine(), libc, _flags()) if (FOLDER / level).is_dir()]


def _flags() -> frozenset[str]:
    """The flags of the first processor in /proc/cpuinfo, which x86-64 alone has."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as processors:
            for line in processors:
                if line.startswith("flags"):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()
