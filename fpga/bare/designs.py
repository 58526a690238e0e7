"""The NPU as RTLIL, and digests of it, which measurements of cells, clocks and energy are stamped with.

A digest is that of the elaborated design, not of its sources: moving or renaming a module, editing a comment or writing
the same registers in another order leaves it, another gate or register changes it. Elaborating takes seconds, so
digests are kept by the state of the sources, and `changed` only looks up what is kept: no command waits for it.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tilewright.common import store
from tilewright.common.rtl_sources import RTL_FOLDERS
from tilewright.fpga.bare.kept import cache_file, read_json, tool_version, write_json
from tilewright.fpga.errors import FpgaError
from tilewright.isa.config import NpuConfig

TOP = "npu"
_TABLES = ("codes", "config", "error_codes", "fields", "instructions", "registers", "row_bits", "timing", "wide_bits")
#: What decides a design: the RTL and the tables it is generated from.
DESIGN_SOURCES = (*(f"{folder}/*" for folder in RTL_FOLDERS), *(f"isa/{name}.py" for name in _TABLES))
#: Attributes of RTLIL that make no gate: names of a signal's values, the generator's version, lines of the sources.
_REMARKS = re.compile(r"^ *attribute \\(?:enum_\w+|generator|src) .*\n", re.MULTILINE)
#: Numbers of cells and processes without a name of their own, which nothing refers to.
_NUMBERS = re.compile(r"^(  (?:cell \S+|process) )\$\d+$", re.MULTILINE)


@functools.cache
def sources_digest() -> str:
    """Digest of the sources that decide a design, 16 hex digits."""
    return store.sources_digest(*DESIGN_SOURCES)[:16]


def digest_of(design: str) -> str:
    """Digest of a design in RTLIL, 16 hex digits: of its modules, gates and registers, and their names, whatever the
    order in which they are written."""
    modules = _NUMBERS.sub(r"\1", _REMARKS.sub("", design)).split("\nend\n")
    text = "\nend\n".join(sorted("\n\n".join(sorted(_statements(module))) for module in modules))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _statements(module: str) -> list[str]:
    """The head, wires, memories, cells and processes of a module, between which RTLIL as Amaranth writes it has empty
    lines, and its connections, which it has a line each."""
    blocks = module.split("\n\n")
    return [part for block in blocks for part in (block.splitlines() if block.startswith("connect ") else [block])]


def rtlil_of(config: NpuConfig) -> str:
    """Elaborates the NPU into RTLIL, the language of Yosys, which takes seconds; keeps the digest on the way."""
    from tilewright.hw.npu import Npu  # Amaranth and the RTL, which who looks up digests does not need
    from tilewright.hw.verilog import component_rtlil

    text = component_rtlil(Npu(config), TOP)
    write_json(_kept(config), {"digest": digest_of(text)})
    return text


def digest(config: NpuConfig) -> str:
    """Digest of a configuration's design; elaborates it unless that was done before with these sources."""
    return known_digest(config) or digest_of(rtlil_of(config))


def known_digest(config: NpuConfig) -> str | None:
    """Digest of a configuration's design if it was elaborated before with these sources, else None."""
    try:
        found = read_json(_kept(config))
    except FpgaError:  # without Amaranth none was
        return None
    return found["digest"] if found else None


def stamped(points: Iterable[Mapping[str, Any]]) -> tuple[tuple[NpuConfig, str], ...]:
    """Configurations of stored calibration points, each with the digest of the design that was measured."""
    return tuple((NpuConfig.from_dict(point["config"]), point["design"]) for point in points)


def changed(measured: Iterable[tuple[NpuConfig, str]]) -> list[str] | None:
    """Names of the machines whose design is known to be another one now than the one that was measured.

    Args:
        measured: configurations with the digests of the designs that were measured, "" of a design that had no digest
            yet, which is another one.

    Returns:
        None if no design is known to have changed, but some were not elaborated yet with these sources.
    """
    known = [(config, old, known_digest(config)) for config, old in measured]
    others = [config.name for config, old, now in known if not old or now not in (None, old)]
    return others if others or all(now for _, _, now in known) else None


def _kept(config: NpuConfig) -> Path:
    return cache_file("statements", sources_digest(), tool_version("amaranth"), config.fingerprint)
