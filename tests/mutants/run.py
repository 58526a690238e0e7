"""Looks for faults, each in a process of its own: a fault may break what drives the machine."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hw.sim.device import RtlDevice
from isa.config import NpuConfig
from tests.common.rtl_trials import LIMIT, Trial
from tests.mutants.faults import Fault

#: Of a process that looks at one fault, after which it is ended; one takes a second or two.
SECONDS = 600


@dataclass(frozen=True)
class Found:
    """A fault, the trial that found it ("" for none), and how."""

    fault: Fault
    trial: str
    how: str


def look(config: NpuConfig, library: Path, faults: Iterable[Fault], trials: Sequence[Trial]) -> Iterator[Found]:
    """Runs the trials on each fault until one finds it; gives each fault as soon as it is known.

    Raises:
        AssertionError: a trial finds something without a fault, before the first or after the last.
    """
    for each in (Fault(0, "", "", ()), *faults, Fault(0, "", "", ())):  # none at the end too: sources may have changed
        found = _look(config, library, each, trials)  # in a process of its own too: threads are not forked
        assert each.number or not found.trial, f"{found.trial} without a fault: {found.how}"
        if each.number:
            yield found


def _look(config: NpuConfig, library: Path, fault: Fault, trials: Sequence[Trial]) -> Found:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        signal.alarm(SECONDS)  # one that hangs is found by its end
        for trial in trials:
            try:
                how = trial.run(
                    lambda at: RtlDevice(config, library=library, fault=fault.number, limit=LIMIT, origin=at)
                )
            except Exception as error:  # whatever a faulty machine makes of what looks at it
                how = f"{type(error).__name__}: {error}"
            if how:
                os.write(writer, f"{trial.name}\n{how.splitlines()[0][:200]}".encode())
                break
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        name, _, how = pipe.read().decode(errors="replace").partition("\n")
    _, status = os.waitpid(child, 0)
    if status:
        name, how = name or "a crash", f"ended with status {status}"
    return Found(fault, name, how)


def summary(config: NpuConfig, seed: int, count: int, found: Sequence[Found]) -> dict[str, Any]:
    """Figures, as JSON knows them."""
    killed = [f for f in found if f.trial]
    by_module: dict[str, dict[str, int]] = {}
    for name in sorted({f.fault.module for f in found}):
        here = [f for f in found if f.fault.module == name]
        by_module[name or "(none)"] = {"faults": len(here), "found": sum(bool(f.trial) for f in here)}
    return {
        "config": config.name,
        "seed": seed,
        "sample": count,
        "faults": len(found),
        "found": len(killed),
        "by": Counter(f.trial.split()[0] for f in killed),
        "modules": by_module,
        "survivors": [asdict(f.fault) for f in found if not f.trial],
    }
