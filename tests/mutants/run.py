"""Looks for faults, in processes of their own: a fault may break what drives the machine."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from hw.sim.device import RtlDevice
from isa.config import NpuConfig
from tests.common.rtl_trials import LIMIT, Make, Trial
from tests.mutants.equivalent import Verdict
from tests.mutants.faults import Fault

#: Of the processor, for one fault, after which its process is ended; one takes a second or two.
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
    left = [Fault(0, "", "", ()), *faults, Fault(0, "", "", ())]  # none at the end too: sources may have changed
    while left:
        for found in _look(config, library, list(left), trials):
            del left[0]
            assert found.fault.number or not found.trial, f"{found.trial} without a fault: {found.how}"
            if found.fault.number:
                yield found


def _look(config: NpuConfig, library: Path, faults: Sequence[Fault], trials: Sequence[Trial]) -> Iterator[Found]:
    """In a process, which keeps what the simulators say of the trials. One that a fault ends gives this fault as its
    last."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _tell(config, library, faults, trials, writer)
    os.close(writer)
    told = 0
    with os.fdopen(reader, "rb") as pipe:
        for told, line in enumerate(pipe, 1):
            trial, how = json.loads(line)
            yield Found(faults[told - 1], trial, how)
    _, status = os.waitpid(child, 0)
    if told < len(faults):
        yield Found(faults[told], "a crash", f"ended with status {status}")


def _tell(config: NpuConfig, library: Path, faults: Sequence[Fault], trials: Sequence[Trial], writer: int) -> NoReturn:
    """Writes a line for each fault: the trial that finds it, and how."""
    for fault in faults:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # one that hangs is found by its end
        name = how = ""
        for trial in trials:
            try:
                how = trial.run(_maker(config, library, fault.number))
            except Exception as error:  # whatever a faulty machine makes of what looks at it
                how = f"{type(error).__name__}: {error}"
            if how:
                name, how = trial.name, how.splitlines()[0][:200]
                break
        os.write(writer, (json.dumps([name, how]) + "\n").encode())
    os._exit(0)


def _maker(config: NpuConfig, library: Path, fault: int) -> Make:
    return lambda at: RtlDevice(config, library=library, fault=fault, limit=LIMIT, origin=at)


def summary(
    config: NpuConfig, seed: int, count: int, found: Sequence[Found], proofs: Mapping[int, Verdict] | None = None
) -> dict[str, Any]:
    """Figures, as JSON knows them. `proofs` says what was proved of those that no trial has found, by number."""
    nothing = {number for number, proof in (proofs or {}).items() if proof.equivalent}
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
        "equivalent": [asdict(f.fault) for f in found if f.fault.number in nothing],
        "survivors": [asdict(f.fault) for f in found if not f.trial and f.fault.number not in nothing],
    }
