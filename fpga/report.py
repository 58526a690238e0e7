"""What a build used and how fast it is, from the tools' own reports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path as File
from typing import Any

from fpga.board import BLOCK_RAM, MEMORIES, Board
from fpga.cells import Capacity, Used
from fpga.errors import FpgaError
from isa.config import NpuConfig

#: The file of a build with its `Report`.
REPORT = "report.json"


@dataclass(frozen=True)
class Path:
    """The slowest path: cells it leaves and reaches, its delay in ns and how much of it is logic, cells between."""

    start: str
    end: str
    delay_ns: float
    logic_ns: float
    cells: int


@dataclass(frozen=True)
class Timing:
    """Highest clock in MHz and what limits it."""

    fmax_mhz: float
    path: Path


def timing(routing: Mapping[str, Any]) -> Timing:
    """From nextpnr's `--report`: the slowest clock of the design."""
    fmax = {name: clock["achieved"] for name, clock in routing["fmax"].items()}
    name = min(fmax, key=lambda n: fmax[n])
    paths = [p for p in routing["critical_paths"] if _clock(p["from"]) == name == _clock(p["to"])]
    steps = paths[0]["path"]
    logic = [s for s in steps if s["type"] != "routing"]
    return Timing(
        fmax_mhz=fmax[name],
        path=Path(
            start=steps[0]["from"]["cell"],
            end=steps[-1]["to"]["cell"],
            delay_ns=round(sum(s["delay"] for s in steps), 3),
            logic_ns=round(sum(s["delay"] for s in logic), 3),
            cells=sum(s["type"] == "logic" for s in steps),
        ),
    )


def _clock(edge: str) -> str:
    return edge.removeprefix("posedge ").removeprefix("negedge ")


@dataclass(frozen=True, kw_only=True)
class Report:
    """A build. Times in seconds; `cpu_seconds` is processor time. `memory` is
    one of `fpga.board.MEMORIES`; `memory_kib` and `baud` are 0 where the NPU uses the memory and the bus of a
    processor; `note` is what must be known of the result."""

    board: str
    config: str
    fingerprint: str
    clock_mhz: float
    memory_kib: int
    baud: int
    seed: int
    used: Used
    capacity: Capacity
    timing: Timing
    seconds: float
    cpu_seconds: float
    bitstream: str
    bitstream_bytes: int
    sha256: str
    note: str = ""
    memory: str = BLOCK_RAM

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """For a table: what, value."""
        u, c = self.used, self.capacity
        path = self.timing.path
        return [
            ("clock", f"{self.clock_mhz:.2f} MHz, highest {self.timing.fmax_mhz:.1f} MHz"),
            *(
                (title, f"{have:g} of {of} ({100 * have / of:.0f} %)")
                for title, have, of in (
                    ("LUT", u.lut, c.lut), ("FF", u.ff, c.ff), ("DSP", u.dsp, c.dsp), ("block RAM", u.bram, c.bram)
                )
            ),
            *([("memory", f"{self.memory_kib} KiB, {MEMORIES[self.memory]}")] if self.memory_kib else []),
            *([("serial line", f"{self.baud} baud")] if self.baud else []),
            ("slowest path", f"{path.delay_ns:.1f} ns, {path.logic_ns:.1f} ns of it logic, {path.cells} cells"),
            ("  from", path.start),
            ("  to", path.end),
            ("time", f"{self.seconds:.0f} s, {self.cpu_seconds:.0f} s of CPU"),
            ("bitstream", f"{self.bitstream}, {self.bitstream_bytes} bytes, SHA-256 {self.sha256[:16]}"),
            *([("note", self.note)] if self.note else []),
        ]  # fmt: skip


def conclude(
    folder: File,
    board: Board,
    config: NpuConfig,
    *,
    images: Sequence[str],
    routing: str,
    spent: tuple[float, float],
    clock_mhz: float,
    **values: Any,
) -> Report:
    """Writes the report of a finished build.

    Parameters:
        images: files of the build that are of no use where the clock is not reached; the first is the bitstream.
        routing: nextpnr's report, a file of the folder.
        spent: seconds and CPU seconds.
        values: the other fields of the report.

    Raises:
        FpgaError: the clock is not reached; then there are no images.
    """
    data = (folder / images[0]).read_bytes()
    report = Report(
        board=board.name,
        config=config.name,
        fingerprint=config.fingerprint,
        clock_mhz=clock_mhz,
        capacity=board.capacity,
        timing=timing(json.loads((folder / routing).read_text())),
        seconds=round(spent[0], 1),
        cpu_seconds=round(spent[1], 1),
        bitstream=images[0],
        bitstream_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        **values,
    )
    (folder / REPORT).write_text(json.dumps(report.to_dict(), indent=2) + "\n", encoding="utf-8")
    if report.timing.fmax_mhz < clock_mhz:
        for name in images:
            (folder / name).unlink()
        raise FpgaError(
            f"{config.name} on {board.name} reaches {report.timing.fmax_mhz:.1f} MHz of {clock_mhz:.1f}; "
            f"give a lower --clock-mhz or another --seed (report in {folder / REPORT})"
        )
    return report


def read_report(folder: File) -> Report:
    """The report of the build in a folder. Raises `FpgaError` if there is none."""
    file = folder / REPORT
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        parts = {
            "used": Used(**values["used"]),
            "capacity": Capacity(**values["capacity"]),
            "timing": Timing(values["timing"]["fmax_mhz"], Path(**values["timing"]["path"])),
        }
        return Report(**(values | parts))
    except OSError as error:
        raise FpgaError(f"{file}: {error.strerror}; a build writes it") from None
    except (ValueError, KeyError, TypeError) as error:
        raise FpgaError(f"{file}: no report of a build ({type(error).__name__})") from None
