"""The proofs: what is stated, how far it holds, and a deliberate fault that each property must find."""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hw.formal import benches, register_benches
from hw.formal.bench import Bench
from hw.formal.engine import Cut, FormalError, Model
from isa.config import NpuConfig


@dataclass(frozen=True)
class Property:
    """One line that says what holds in every cycle. `fault` must make it fail; None where all it is about is tied,
    which leaves no driver to cut."""

    name: str
    statement: str
    fault: Cut | None


@dataclass(frozen=True)
class Proof:
    """A bench and how it is proved: by induction over `cycles` (unbounded), or for the first `cycles` after reset."""

    name: str
    bench: Callable[..., Bench]
    induction: bool
    cycles: int
    properties: tuple[Property, ...]
    quick: bool = True  # part of the tests; the others run with `make formal`

    @property
    def bound(self) -> str:
        return f"unbounded, induction over {self.cycles}" if self.induction else f"{self.cycles} cycles"


PROOFS: tuple[Proof, ...] = (
    Proof(
        "queue",
        benches.queue,
        True,
        1,
        (
            Property(
                "order",
                "the entry at the output is the oldest one pushed and not popped",
                Cut("queue.o_payload"),
            ),
            Property(
                "conservation",
                "`level` counts pushes minus pops: nothing is lost or there twice",
                Cut("queue.level"),
            ),
            Property(
                "overflow",
                "never more than `depth` entries; it takes entries exactly while there is room",
                Cut("queue.i_ready"),
            ),
        ),
    ),
    Proof(
        "semaphores",
        benches.semaphores,
        True,
        1,
        (
            Property(
                "counted",
                "a counter is the number of gives minus takes: each counts once, whatever the engines do in one cycle",
                Cut("semaphores.total1"),
            ),
            Property(
                "not_negative",
                "no counter goes below 0",
                Cut("semaphores.takes__0__grant"),
            ),
            Property(
                "limit",
                "no counter goes beyond 255 without an error",
                Cut("semaphores.beyond1", 68),
            ),
            Property(
                "overflow",
                "the error is raised exactly one cycle after that in which a counter would go beyond 255",
                Cut("semaphores.beyond1"),
            ),
            Property(
                "grant",
                "an engine gets its two counts together, when it asks and both are there",
                Cut("semaphores.gemm_able"),
            ),
            Property(
                "priority",
                "an engine that could have both is refused exactly when a lower one could have one of them, or another "
                "took it in the cycle before",
                Cut("semaphores.gemm_able"),
            ),
        ),
    ),
    Proof(
        "axi_read",
        benches.axi_read,
        True,
        1,
        (
            Property(
                "stable",
                "AR: valid stays until ready, address and length do not change",
                Cut("read.ar__valid"),
            ),
            Property(
                "legal",
                "AR: 1 to `burst_beats` whole beats that do not cross 4 KiB, if the requests are such",
                Cut("read.ar__len"),
            ),
            Property(
                "outstanding",
                "at most `read_outstanding` bursts are in flight",
                Cut("read.owners.i_ready"),
            ),
            Property(
                "accepted",
                "R: a beat for FETCH, and after a halt any beat, is taken at once; one for LOAD when LOAD takes it",
                Cut("read.r__ready"),
            ),
        ),
    ),
    Proof(
        "axi_write",
        benches.axi_write,
        True,
        1,
        (
            Property(
                "aw_stable",
                "AW: valid stays until ready, address and length do not change",
                Cut("write.aw__valid"),
            ),
            Property(
                "w_stable",
                "W: valid stays until ready; data, strobes and WLAST do not change",
                Cut("write.w__data"),
            ),
            Property(
                "legal",
                "AW: 1 to `burst_beats` whole beats that do not cross 4 KiB, if the bursts are such",
                Cut("write.aw__len"),
            ),
            Property(
                "no_orphan",
                "every W beat belongs to a burst that is or was on AW, bursts do not overlap",
                Cut("write.w__valid"),
            ),
            Property(
                "wlast",
                "WLAST is with the last beat of a burst and no other, after a halt too",
                Cut("write.w__last"),
            ),
            Property(
                "outstanding",
                "at most `write_outstanding` bursts wait for their response",
                Cut("write.pending.i_ready"),
            ),
            Property(
                "b_accepted",
                "B: a response is taken within `write_outstanding` cycles (SYNCs before it complete first)",
                Cut("write.b__ready"),
            ),
        ),
    ),
    Proof(
        "write_drain",
        benches.write_drain,
        False,
        12,
        (
            Property(
                "ends",
                "after a halt a begun burst gets its AW and all its beats, one per cycle if the memory takes them",
                Cut("write.w__valid"),
            ),
        ),
    ),
    Proof(
        "load_accepts",
        benches.load_accepts,
        False,
        14,
        (
            Property(
                "accepted",
                "R: LOAD takes every beat within 5 cycles (boxes without padding, VECTOR holds a bank for one cycle)",
                Cut("load.data.beat_ready", 16),
            ),
        ),
    ),
    Proof(
        "load_window",
        benches.load_window,
        True,
        2,
        (
            Property(
                "window",
                "LOAD: arbitrary instructions, eight arbitrary regions: bursts lie in the readable region they name, "
                "and are those that the read port is asked for",
                Cut("load.walker.inside2", 7),
            ),
            Property(
                "legal",
                "LOAD: bursts have 1 to `burst_beats` whole beats and do not cross 4 KiB",
                Cut("load.walker.reach", 7),
            ),
        ),
        quick=False,
    ),
    Proof(
        "store_window",
        benches.store_window,
        True,
        2,
        (
            Property(
                "window",
                "STORE: arbitrary instructions, eight arbitrary regions: bursts lie in the writable region they name",
                Cut("store.walker.inside2"),
            ),
            Property(
                "legal",
                "STORE: bursts have 1 to `burst_beats` whole beats and do not cross 4 KiB",
                Cut("store.walker.reach", 7),
            ),
        ),
        quick=False,
    ),
    Proof(
        "walker",
        benches.walker,
        True,
        1,
        (
            Property(
                "window",
                "every burst of an arbitrary box lies in its region, or is not asked for",
                Cut("walker.inside2", 7),
            ),
            Property(
                "legal",
                "bursts have 1 to `burst_beats` whole beats and do not cross 4 KiB",
                Cut("walker.reach", 7),
            ),
        ),
        quick=False,
    ),
    Proof(
        "fetch_window",
        benches.fetch_window,
        True,
        1,
        (
            Property(
                "window",
                "FETCH: arbitrary program registers, program and region: bursts lie in the readable region",
                Cut("fetch.present", 6),
            ),
            Property(
                "legal",
                "FETCH: bursts have 1 to `burst_beats` whole beats and do not cross 4 KiB",
                Cut("fetch.to_end", 7),
            ),
        ),
    ),
    Proof(
        "constants",
        benches.constants,
        False,
        1,
        (
            Property(
                "incr",
                "NPU: every burst is INCR, every beat has the width of the bus",
                None,
            ),
        ),
    ),
    Proof(
        "register_writes",
        register_benches.writes,
        True,
        1,
        (
            Property(
                "together",
                "AXI4-Lite: address and data of a write are taken in the same cycle",
                Cut("registers.axil__w__ready"),
            ),
            Property(
                "b_stable",
                "AXI4-Lite, B: valid stays until ready; the response is OKAY",
                Cut("registers.axil__b__valid", 60),
            ),
            Property(
                "b_answers",
                "AXI4-Lite, B: a response for every write, in the cycle after it is taken; one write at a time",
                Cut("registers.axil__b__valid", 60),
            ),
        ),
    ),
    Proof(
        "register_reads",
        register_benches.reads,
        False,
        60,
        (
            Property(
                "r_stable",
                "AXI4-Lite, R: valid stays until ready, data do not change; the response is OKAY",
                Cut("registers.axil__r__data", 60),
            ),
            Property(
                "r_answers",
                "AXI4-Lite, R: one answer for each address taken, none before it, and no other address before that",
                Cut("registers.axil__r__valid", 60),
            ),
        ),
    ),
    Proof(
        "reset",
        register_benches.reset,
        True,
        2,
        (
            Property(
                "quiet",
                "NPU: no VALID in the first cycle, nor in and after the third of a reset, whatever the state before",
                Cut("npu.axil__b__valid", 5),
            ),
        ),
        quick=False,
    ),
)  # fmt: skip


def _wide(proof: Proof, config: NpuConfig) -> Proof:
    """The same behind a wider bus."""
    bench = functools.partial(proof.bench, c=config)
    return replace(proof, name=f"{proof.name}_{config.axi_data_bits}", bench=bench)


_BY_NAME = {proof.name: proof for proof in PROOFS}
PROOFS += tuple(
    _wide(_BY_NAME[name], config) for name in ("axi_read", "axi_write") for config in (benches.WIDE, benches.WIDEST)
)


@contextlib.contextmanager
def _model(bench: Bench, fault: Cut | None = None) -> Iterator[Model]:
    with tempfile.TemporaryDirectory(prefix="tilewright-formal-") as folder:
        yield Model(bench.rtlil(), Path(folder), fault)


def prove(proof: Proof) -> None:
    """Raises `FormalError` with smtbmc's last words if a property of the proof fails."""
    bench = proof.bench(None)
    stated = [p.name for p in proof.properties]
    if sorted(stated) != sorted(bench.properties):
        raise FormalError(f"{proof.name}: bench has {bench.properties}, table has {stated}")
    with _model(bench) as model:
        # Induction over k cycles needs the first k cycles as its base.
        good, log = model.bounded(proof.cycles + proof.induction)
        if good and proof.induction:
            good, log = model.induction(proof.cycles)
    if not good:
        raise FormalError(f"{proof.name}: {' '.join(line.strip() for line in log.splitlines()[-3:])}")


def finds_fault(proof: Proof, name: str) -> bool:
    """Whether property `name`, alone, fails within the fault's depth from reset once its net is cut."""
    fault = next(p.fault for p in proof.properties if p.name == name)
    assert fault is not None
    with _model(proof.bench(name), fault) as model:
        return not model.bounded(fault.depth)[0]


def table(proofs: tuple[Proof, ...] = PROOFS) -> str:
    """Proofs as a Markdown table."""
    lines = ["| proof | property | statement | bound |", "|---|---|---|---|"]
    for proof in proofs:
        lines += [f"| `{proof.name}` | `{p.name}` | {p.statement} | {proof.bound} |" for p in proof.properties]
    return "\n".join(lines) + "\n"


def timed(proof: Proof) -> float:
    """Proves and returns seconds."""
    start = time.monotonic()
    prove(proof)
    return time.monotonic() - start
