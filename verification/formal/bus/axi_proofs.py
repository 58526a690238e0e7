"""Proofs about the AXI4 master."""

from __future__ import annotations

from verification.formal.bus import axi_benches
from verification.formal.engine import Cut
from verification.formal.proof import Proof, Property

PROOFS: tuple[Proof, ...] = (
    Proof(
        "axi_read",
        axi_benches.axi_read,
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
        axi_benches.axi_write,
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
        axi_benches.write_drain,
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
        "load_window",
        axi_benches.load_window,
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
        axi_benches.store_window,
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
        axi_benches.walker,
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
        axi_benches.fetch_window,
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
        axi_benches.constants,
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
)  # fmt: skip
