"""A proof: its bench and depth, and how it is run."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.common import temporary
from tilewright.isa.config import NpuConfig
from verification.formal.bench import Bench, Property
from verification.formal.engine import FormalError, models
from verification.rtl_text import digest_of_all


@dataclass(frozen=True)
class Proof:
    """A bench and how it is proved: by induction over `cycles` (unbounded), or for the first `cycles` after reset."""

    name: str
    bench: Callable[..., Bench]
    induction: bool
    cycles: int
    quick: bool = True  # part of the tests; the others run with `make formal`

    @functools.cached_property
    def properties(self) -> tuple[Property, ...]:
        """Properties that the bench states, in its order."""
        return tuple(self.bench(None).properties.values())

    @property
    def bound(self) -> str:
        return f"unbounded, induction over {self.cycles}" if self.induction else f"{self.cycles} cycles"


def on(proof: Proof, config: NpuConfig, suffix: str, *, quick: bool = False) -> Proof:
    """Returns the proof on another machine."""
    bench = functools.partial(proof.bench, c=config)
    return replace(proof, name=f"{proof.name}_{suffix}", bench=bench, quick=quick)


def prove(proof: Proof) -> None:
    """Raises `FormalError` with smtbmc's last words if a property of the proof fails."""
    with temporary.Folder(prefix="tilewright-formal-") as folder:
        (model,) = models([(proof.bench(None).rtlil(), None)], Path(folder))
        # Induction over k cycles needs the first k cycles as its base.
        good, log = model.bounded(proof.cycles + proof.induction)
        if good and proof.induction:
            good, log = model.induction(proof.cycles)
    if not good:
        raise FormalError(f"{proof.name}: {' '.join(line.strip() for line in log.splitlines()[-3:])}")


def finds_fault(proof: Proof, name: str) -> bool:
    """Returns whether property `name`, alone, fails within the fault's depth from reset once its net is cut."""
    return not faults_not_found(proof, [name])


def faults_not_found(proof: Proof, names: Sequence[str]) -> list[str]:
    """Returns the properties, of `names`, whose fault is not found: each alone holds for the fault's depth from reset
    though its net is cut."""
    known = {p.name: p.fault for p in proof.properties if p.fault}
    faults = [known[name] for name in names]
    with temporary.Folder(prefix="tilewright-formal-") as folder:
        built = models([(proof.bench(name).rtlil(), fault) for name, fault in zip(names, faults)], Path(folder))
        return [name for name, fault, model in zip(names, faults, built) if model.bounded(fault.depth)[0]]


def digest_of_benches(proofs: Iterable[Proof]) -> str:
    """Returns 12 hex digits over the elaborated benches: what is proved about which RTL, in whatever files it lies."""
    return digest_of_all(proof.bench(None).digest() for proof in proofs)


def table(proofs: tuple[Proof, ...]) -> str:
    """Returns proofs as a Markdown table."""
    lines = ["| proof | property | statement | bound |", "|---|---|---|---|"]
    for proof in proofs:
        lines += [f"| `{proof.name}` | `{p.name}` | {p.statement} | {proof.bound} |" for p in proof.properties]
    return "\n".join(lines) + "\n"


def timed(proof: Proof) -> float:
    """Proves and returns seconds."""
    start = time.monotonic()
    prove(proof)
    return time.monotonic() - start
