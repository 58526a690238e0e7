"""Looks for faults, in processes of their own: a fault may break what drives the machine."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from tilewright.hw.sim.device import RtlDevice
from tilewright.hw.verilog import TOP
from tilewright.isa.config import NpuConfig
from verification.coverage.points import TOGGLES, Point, Waiver, read_waivers
from verification.measured import SOURCES
from verification.mutants.faults import Fault, Sample
from verification.rtl_text import digest_of_rtl
from verification.trials.trial import LIMIT, Make, Trial

#: Trials that are run without a fault behind the last one: enough to see that sources have changed.
_AT_THE_END = 16
#: Of the processor, for one fault, after which its process is ended; one takes a second or two.
SECONDS = 600
#: The key of `Sample.digest`.
_DRAWN_FROM = "drawn_from"
#: Faults that no trial finds and no proof settles, and why.
REVIEWED = Path(__file__).with_name("reviewed.toml")


@dataclass(frozen=True)
class Found:
    """A fault, and the trial that finds it.

    Attributes:
        fault: which.
        trial: that found it, "" for none.
        how: what the trial saw.
        seconds: of the processor, that it took.
        nothing: it is proved that nobody can see it.
    """

    fault: Fault
    trial: str
    how: str = ""
    seconds: float = 0
    nothing: bool = False

    @property
    def explained(self) -> bool:
        """Whether the fault is found, or there is nothing to find."""
        return bool(self.trial) or self.nothing

    @property
    def reviewed(self) -> str:
        """The reviewer's reason why no trial finds the fault; "" if nobody has looked into it."""
        return reviewed().get((self.fault.mode, self.fault.place), "")

    def waived(self, waivers: Iterable[Waiver]) -> str:
        """Why the bit it is in need not change in any trial, which then cannot see it; "" if there is no reason."""
        signal, _, bit = self.fault.place.rpartition("[")
        point = Point(TOGGLES, TOP, f"{signal}[{bit}:0->1")
        return next((waiver.reason for waiver in waivers if waiver.way != "1->0" and waiver.fits(point)), "")


@functools.cache
def reviewed() -> dict[tuple[str, str], str]:
    """Reasons, by mode and place of faults."""
    entries = tomllib.loads(REVIEWED.read_text(encoding="utf-8"))["fault"]
    return {(entry["mode"], place): entry["reason"] for entry in entries for place in entry["places"]}


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
    """Runs the trials in a process, which keeps what the simulators say of them. One that a fault ends gives this fault
    as its last."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _report(config, library, faults, trials, writer)
    os.close(writer)
    reported = 0
    with os.fdopen(reader, "rb") as pipe:
        for reported, line in enumerate(pipe, 1):
            yield Found(faults[reported - 1], *json.loads(line))
    _, status = os.waitpid(child, 0)
    if reported < len(faults):
        yield Found(faults[reported], "a crash", f"ended with status {status}")


def _report(
    config: NpuConfig, library: Path, faults: Sequence[Fault], trials: Sequence[Trial], writer: int
) -> NoReturn:
    """Writes a line for each fault: the trial that finds it, how, and how long that took. Trials that have found most
    of the faults of the same module go first."""
    finders: Counter[tuple[str, str]] = Counter()
    for fault in faults:
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # one that hangs is found by its end
        name = how = ""
        some = trials if fault.number or fault is faults[0] else trials[:_AT_THE_END]
        for trial in sorted(some, key=lambda trial: -finders[fault.module, trial.name]):
            try:
                how = trial.run(_maker(config, library, fault.number))
            except Exception as error:  # whatever a faulty machine makes of what looks at it
                how = f"{type(error).__name__}: {error}"
            if how:
                name, how = trial.name, how.splitlines()[0][:200]
                finders[fault.module, name] += 1
                break
        os.write(writer, (json.dumps([name, how, round(time.process_time() - start, 2)]) + "\n").encode())
    os._exit(0)


def _maker(config: NpuConfig, library: Path, fault: int) -> Make:
    return lambda at: RtlDevice(config, library=library, fault=fault, limit=LIMIT, origin=at)


def summary(drawn: Sample, seed: int, count: int, found: Sequence[Found]) -> dict[str, Any]:
    """Figures, as JSON knows them."""
    killed = [f for f in found if f.trial]
    waivers = read_waivers(drawn.config)
    left = [(f, f.waived(waivers)) for f in found if not f.explained]
    looked_into = [(f, f.reviewed) for f, waived in left if not waived]
    by_module: dict[str, dict[str, int]] = {}
    for name in sorted({f.fault.module for f in found}):
        here = [f for f in found if f.fault.module == name]
        by_module[name or "(none)"] = {"faults": len(here), "found": sum(bool(f.trial) for f in here)}
    return {
        "config": drawn.config.name,
        SOURCES: digest_of_rtl(drawn.config),
        _DRAWN_FROM: drawn.digest,
        "seed": seed,
        "sample": count,
        "faults": len(found),
        "found": len(killed),
        "by": Counter(f.trial.split()[0] for f in killed),
        "modules": by_module,
        "equivalent": [asdict(f.fault) for f in found if f.nothing],
        "waived": [asdict(f.fault) | {"reason": reason} for f, reason in left if reason],
        "reviewed": [asdict(f.fault) | {"reason": reason} for f, reason in looked_into if reason],
        "survivors": [asdict(f.fault) for f, reason in looked_into if not reason],
        "seconds": round(sum(f.seconds for f in found)),
        "each": {f.fault.number: (f.trial, f.seconds, f.nothing) for f in found},
    }


def kept(file: Path, drawn: Sample, seed: int, count: int) -> list[Found]:
    """Reads the explained faults of this sample from a file of `summary`, if there is one. Those not explained are
    worth another look, by trials that there are now."""
    return [each for each in _read(file, drawn, seed, count) if each.explained]


def left_open(file: Path, drawn: Sample, seed: int, count: int) -> set[int]:
    """Returns the numbers of the faults that are not explained."""
    return {each.fault.number for each in _read(file, drawn, seed, count) if not each.explained}


def _read(file: Path, drawn: Sample, seed: int, count: int) -> list[Found]:
    if not file.is_file():
        return []
    figures = json.loads(file.read_text(encoding="utf-8"))
    same = (seed, count, drawn.digest)
    if tuple(figures.get(key) for key in ("seed", "sample", _DRAWN_FROM)) != same:
        return []
    return [
        Found(drawn.faults[int(number) - 1], trial, "", seconds, nothing)
        for number, (trial, seconds, nothing) in figures["each"].items()
    ]
