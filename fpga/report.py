"""Resources and speed of a build, from the tools' own reports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path as File
from typing import Any

from tilewright.fpga.board import BLOCK_RAM, MEMORIES, Board
from tilewright.fpga.cells import Capacity, Used
from tilewright.fpga.errors import FpgaError
from tilewright.isa.config import NpuConfig

#: The file of a build with its `Report`.
REPORT = "report.json"
#: End of the name of a memory's clock net, in Amaranth's and nextpnr's names of `tilewright.fpga.sdram.memory.MEMORY`.
MEMORY_CLOCK = "memory_clk"


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
    """Highest clock in MHz and its critical path; highest clock of the memory, 0 where it has none of its own."""

    fmax_mhz: float
    path: Path
    memory_fmax_mhz: float = 0


def timing(routing: Mapping[str, Any]) -> Timing:
    """Reads nextpnr's `--report`: the slowest clock of the design, and that of the memory."""
    fmax = {name: clock["achieved"] for name, clock in routing["fmax"].items()}
    memory = max((clock for name, clock in fmax.items() if name.endswith(MEMORY_CLOCK)), default=0)
    name = min((n for n in fmax if not n.endswith(MEMORY_CLOCK)), key=lambda n: fmax[n])
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
        memory_fmax_mhz=memory,
    )


def _clock(edge: str) -> str:
    return edge.removeprefix("posedge ").removeprefix("negedge ")


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of a build. Times in seconds; `cpu_seconds` is processor time. `memory` is one of
    `tilewright.fpga.board.MEMORIES`, `memory_mhz` its own clock or 0. `memory_kib` and `baud` are 0 where the NPU uses
    the memory and the bus of a processor; `note` is a limitation of the result.
    """

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
    memory_mhz: float = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """Rows of a table: (title, value)."""
        u, c = self.used, self.capacity
        path, memory_fmax = self.timing.path, self.timing.memory_fmax_mhz
        return [
            ("clock", f"{self.clock_mhz:.2f} MHz, highest {self.timing.fmax_mhz:.1f} MHz"),
            *(
                (title, f"{have:g} of {of} ({100 * have / of:.0f} %)")
                for title, have, of in (
                    ("LUT", u.lut, c.lut), ("FF", u.ff, c.ff), ("DSP", u.dsp, c.dsp), ("block RAM", u.bram, c.bram)
                )
            ),
            *([("memory", f"{self.memory_kib} KiB, {MEMORIES[self.memory]}")] if self.memory_kib else []),
            *([("its clock", f"{self.memory_mhz:.2f} MHz, highest {memory_fmax:.1f} MHz")] if self.memory_mhz else []),
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
    reached = report.timing
    what = ""
    if reached.fmax_mhz < clock_mhz:
        what = f"reaches {reached.fmax_mhz:.1f} MHz of {clock_mhz:.1f}; give a lower --clock-mhz or another --seed"
    elif reached.memory_fmax_mhz < report.memory_mhz:
        what = (
            f"reaches {reached.memory_fmax_mhz:.1f} MHz of {report.memory_mhz:.1f} for the clock of the memory; "
            "give another --seed"
        )
    if what:
        for name in images:
            (folder / name).unlink()
        raise FpgaError(f"{config.name} on {board.name} {what} (report in {folder / REPORT})")
    return report


def read_report(folder: File) -> Report:
    """The report of the build in a folder. Raises `FpgaError` if there is none."""
    file = folder / REPORT
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        parts = {
            "used": Used(**values["used"]),
            "capacity": Capacity(**values["capacity"]),
            "timing": Timing(**(values["timing"] | {"path": Path(**values["timing"]["path"])})),
        }
        return Report(**(values | parts))
    except OSError as error:
        raise FpgaError(f"{file}: {error.strerror}; a build writes it") from None
    except (ValueError, KeyError, TypeError) as error:
        raise FpgaError(f"{file}: no report of a build ({type(error).__name__})") from None
