"""The log of schedules of NPU steps, one JSON object per line: `cat` joins logs.

A finding holds the decisions for every NPU step of one program, by the content of the steps (not of the weights), and
the exact cycles of that program without and with them, and what the search made small: the same for all findings of a
log.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.common.store import append_records, cache_folder, read_records, sources_digest
from tilewright.compiler.errors import CompileError
from tilewright.errors import UsageError
from tilewright.runtime.energy import meter
from tilewright.store.files import check_writable
from tilewright.tuning.objective import Objective

if TYPE_CHECKING:
    from tilewright.compiler.npu.schedule.decisions import Decisions

VERSION = 1
ENVIRONMENT = "TILEWRIGHT_TUNING"


@dataclass(frozen=True)
class Finding:
    """The result of tuning one program.

    Attributes:
        model, config: names, for people.
        compiler: digest of the sources that turn decisions into cycles.
        program: digest of the program's steps in order.
        steps: decisions of each step, by `decisions.signature`.
        default_cycles, cycles: of the whole program, without and with the decisions.
        objective, unit: what was made small; lines without it are of cycles.
        default_figure, figure: of the objective, as the cycles.
    """

    model: str
    config: str
    compiler: str
    program: str
    steps: Mapping[str, Decisions]
    default_cycles: int
    cycles: int
    objective: Objective
    unit: str
    default_figure: float
    figure: float

    def to_dict(self) -> dict[str, Any]:
        """The finding as a record of the log."""
        return asdict(self) | {"steps": {step: d.to_dict() for step, d in self.steps.items()}}


class TuningLog:
    """The findings in a file.

    Args:
        path: read if it exists; lines that are damaged or of another version are left out and counted in `skipped`.

    Raises:
        UsageError: it cannot be read, or has findings for several objectives.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.findings: list[Finding] = []
        self.skipped = 0
        try:
            records = list(read_records(path, VERSION))
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, UnicodeDecodeError) as error:
            if isinstance(error, PermissionError) and not os.access(path.parent, os.X_OK):
                return  # a folder that this user cannot use has none
            raise UsageError(f"cannot read the tuning log {path}: {error}") from None
        for record in records:
            found = None if record is None else _finding(record)
            if found is not None:
                self.findings.append(found)
            else:
                self.skipped += 1
        made_for = sorted({found.objective for found in self.findings})
        if len(made_for) > 1:
            raise UsageError(f"{path} joins schedules tuned for {' and '.join(made_for)}: keep a log for each")

    @property
    def objective(self) -> Objective:
        """Objective of the findings; cycles where there are none."""
        return self.findings[0].objective if self.findings else Objective.CYCLES

    def require(self, objective: Objective) -> None:
        """Raises `UsageError` if its findings are for another objective."""
        made_for = self.objective
        if self.findings and made_for is not objective:
            raise UsageError(
                f"{self.path} is a log of schedules tuned for {made_for} (in {made_for.unit}), not for {objective}: "
                "name another log"
            )

    def best(self, step: str) -> Decisions | None:
        """The decisions for a step from the finding with the largest gain, those of this compiler first."""
        able = [f for f in self.findings if step in f.steps]
        if not able:
            return None
        now = compiler_digest(self.objective)
        best = min(able, key=lambda f: (f.compiler != now, f.figure / f.default_figure))
        return best.steps[step]

    def proven(self, program: str, steps: Mapping[str, Decisions]) -> Finding | None:
        """The finding that measured exactly this program with exactly these decisions, by this compiler."""
        now = compiler_digest(self.objective)
        for found in self.findings:
            if found.program == program and found.compiler == now and dict(found.steps) == dict(steps):
                return found
        return None

    def add(self, finding: Finding) -> None:
        """Appends to the file and to `findings`."""
        self.check_writable()
        append_records(self.path, VERSION, [finding.to_dict()])
        self.findings.append(finding)

    def check_writable(self) -> None:
        """Raises `UsageError` if findings could not be added."""
        if self.path.parent == cache_folder():
            self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.is_file():
            check_writable(self.path)
        elif not os.access(self.path, os.W_OK):  # findings are appended: the folder may be anybody's
            raise UsageError(f"cannot write {self.path}: {os.strerror(errno.EACCES)}")

    def digest(self) -> str:
        """SHA-256 of the findings, 64 hex digits."""
        return hashlib.sha256(json.dumps([f.to_dict() for f in self.findings]).encode()).hexdigest()


def _finding(values: dict[str, Any]) -> Finding | None:
    from tilewright.compiler.npu.schedule.decisions import Decisions  # the back end, which an empty log does not need

    try:
        values["steps"] = {str(step): Decisions.from_dict(d) for step, d in values["steps"].items()}
        old = {
            "objective": "cycles",
            "unit": "cycles",
            "default_figure": values["default_cycles"],
            "figure": values["cycles"],
        }
        values = old | values
        found = Finding(**values | {"objective": Objective(values["objective"])})
        known = found.unit == found.objective.unit and found.cycles > 0 and found.default_cycles > 0
        return found if known and 0 < found.figure <= found.default_figure < math.inf else None
    except (ValueError, TypeError, KeyError, AttributeError, CompileError):
        return None


def open_log(path: str | Path | None = None, objective: Objective = Objective.CYCLES) -> TuningLog | None:
    """The log at `path`, else in $TILEWRIGHT_TUNING, else the objective's in the user's cache folder; None where that
    says "off"."""
    chosen = str(path) if path is not None else os.environ.get(ENVIRONMENT, "")
    if chosen == "off":
        return None
    return TuningLog(Path(chosen) if chosen else default_path(objective))


def default_path(objective: Objective = Objective.CYCLES) -> Path:
    return cache_folder() / ("tuning.jsonl" if objective is Objective.CYCLES else f"tuning-{objective}.jsonl")


def program_digest(signatures: Iterable[str]) -> str:
    """Returns the digest of a program, from the signatures of its NPU steps in order: 24 hex digits."""
    return hashlib.sha256(" ".join(signatures).encode()).hexdigest()[:24]


@functools.cache
def compiler_digest(objective: Objective = Objective.CYCLES) -> str:
    """Returns a digest of the sources that turn decisions into instructions, and these into figures of the objective:
    24 hex digits."""
    found = sources_digest("common/**/*", "isa/**/*", "compiler/npu/**/*", "simulator/**/*")
    if objective is not Objective.CYCLES:
        model = sources_digest("hw/**/*", "fpga/area/*", "energy/*") + repr(meter().load())
        found = hashlib.sha256((found + model).encode()).hexdigest()
    return found[:24]
