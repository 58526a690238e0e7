"""Keeps the coverage of finished trials in a file, so that an interrupted run can go on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from tilewright.common.store import write_atomically
from tilewright.isa.config import NpuConfig
from verification.rtl_text import digest_of_rtl
from verification.trials.trial import Trial


@dataclass
class Kept:
    """Coverage of some trials on one machine.

    Attributes:
        machine: fingerprint of its configuration, and digest of its RTL.
        trials: their names.
        counts: as Verilator has them, by its name of a point.
        seen: functional bins.
    """

    machine: str
    trials: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seen: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, config: NpuConfig, file: Path | None) -> Kept:
        """Reads the coverage kept of this machine; empty where the file has none."""
        machine = f"{config.fingerprint} {digest_of_rtl(config)}"
        if file is not None and file.is_file():
            found = json.loads(file.read_text(encoding="utf-8"))
            if found["machine"] == machine:
                return cls(machine, found["trials"], Counter(found["counts"]), set(found["seen"]))
        return cls(machine)

    def write(self, file: Path) -> None:
        """Writes the coverage to a file; makes the folder."""
        file.parent.mkdir(parents=True, exist_ok=True)
        values = {"machine": self.machine, "trials": self.trials, "counts": self.counts, "seen": sorted(self.seen)}
        write_atomically(file, json.dumps(values))

    def left(self, some: Iterable[Trial], at_once: int) -> Iterator[Sequence[Trial]]:
        """Yields the trials that have not run, a few at a time."""
        todo = iter([trial for trial in some if trial.name not in self.trials])
        while part := list(islice(todo, at_once)):
            yield part

    @property
    def trials_by_kind(self) -> Counter[str]:
        """Number of trials by kind."""
        return Counter(name.split()[0] for name in self.trials)
