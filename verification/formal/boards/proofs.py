"""The proofs about what boards put around the NPU. docs/verification/formal.md has their table."""

from __future__ import annotations

from verification.formal.boards import memory_benches, sdram_proofs, zynq_benches
from verification.formal.engine import Cut
from verification.formal.proof import Proof, Property

PROOFS: tuple[Proof, ...] = (
    Proof(
        "split",
        zynq_benches.split,
        True,
        1,
        (
            Property(
                "stable",
                "`BurstSplitter`, AR and AW: valid stays until ready, address and length do not change",
                Cut("splitter.ar_sent"),
            ),
            Property(
                "legal",
                "`BurstSplitter`: pieces are INCR, of 1 to 16 whole beats, and do not cross 4 KiB",
                Cut("splitter.ar_end"),
            ),
            Property(
                "whole",
                "`BurstSplitter`: the pieces of a burst follow each other from its first byte to its last",
                Cut("splitter.aw_sent"),
            ),
            Property(
                "r_last",
                "`BurstSplitter`, R: all beats pass, RLAST is with the last beat of a burst and no other",
                Cut("splitter.ar_end"),
            ),
            Property(
                "b_once",
                "`BurstSplitter`, B: one response for a burst, with that of its last piece",
                Cut("splitter.aw_end"),
            ),
            Property(
                "b_error",
                "`BurstSplitter`, B: an error exactly if a piece of the burst had one",
                Cut("splitter.axi__b__resp"),
            ),
        ),
    ),
    Proof(
        "split_beats",
        zynq_benches.split_beats,
        True,
        1,
        (
            Property(
                "wlast",
                "`BurstSplitter`, W: WLAST is with every 16th beat of a burst and its last",
                Cut("splitter.beat"),
            ),
            Property(
                "w_stable",
                "`BurstSplitter`, W: beats pass as they are when they are taken; valid stays until ready, data and "
                "WLAST do not change",
                Cut("splitter.hp_wlast"),
            ),
        ),
    ),
    Proof(
        "bridge_reads",
        zynq_benches.bridge_reads,
        True,
        1,
        (
            Property(
                "stable",
                "`RegisterBridge`, R: valid stays until ready, data, response, RLAST and ID do not change",
                Cut("bridge.gp_rvalid"),
            ),
            Property(
                "beats",
                "`RegisterBridge`, R: as many beats as ARLEN says, RLAST with the last, with the ID of the burst",
                Cut("bridge.gp_rlast"),
            ),
            Property(
                "refused",
                "`RegisterBridge`: bursts outside the window and wrapping ones read nothing and answer with an error",
                Cut("bridge.ar_refused"),
            ),
            Property(
                "access",
                "`RegisterBridge`, AXI4-Lite: AR stays until ready; one read at a time, and no beat before its answer",
                Cut("bridge.axil__ar__valid"),
            ),
        ),
    ),
    Proof(
        "bridge_writes",
        zynq_benches.bridge_writes,
        True,
        1,
        (
            Property(
                "b_once",
                "`RegisterBridge`, B: one response for a burst, behind its last beat, with its ID",
                Cut("bridge.gp_bvalid"),
            ),
            Property(
                "b_stable",
                "`RegisterBridge`, B: valid stays until ready, the response does not change",
                Cut("bridge.gp_bresp"),
            ),
            Property(
                "access",
                "`RegisterBridge`, AXI4-Lite: AW and W stay until ready; one write for a beat with all its strobes, "
                "done before B",
                Cut("bridge.axil__w__data"),
            ),
            Property(
                "refused",
                "`RegisterBridge`: bursts outside the window, wrapping and narrow ones answer with an error",
                Cut("bridge.aw_refused"),
            ),
        ),
    ),
    Proof(
        "block_ram",
        memory_benches.block_ram,
        False,
        14,
        (
            Property(
                "r_stable",
                "Block RAM, R: valid stays until ready, data, response, RLAST and ID do not change",
                Cut("memory.axi__r__valid", 14),
            ),
            Property(
                "r_beats",
                "Block RAM, R: as many beats as ARLEN says, in the order of the bursts, RLAST with the last",
                Cut("memory.axi__r__last", 14),
            ),
            Property(
                "b_stable",
                "Block RAM, B: valid stays until ready, response and ID do not change",
                Cut("memory.axi__b__resp", 10),
            ),
            Property(
                "b_once",
                "Block RAM, B: one response for a burst, behind its address and its last beat",
                Cut("memory.axi__b__valid", 10),
            ),
        ),
    ),
    Proof(
        "segments",
        memory_benches.segments,
        True,
        1,
        (
            Property(
                "stable",
                "SDRAM, `Splitter`: a segment stays until it is taken",
                Cut("splitter.o_valid"),
            ),
            Property(
                "whole",
                "SDRAM, `Splitter`: the segments of a burst follow each other from its first beat to its last, which "
                "is marked",
                Cut("splitter.ends"),
            ),
            Property(
                "legal",
                "SDRAM, `Splitter`: no segment crosses a multiple of a segment",
                Cut("splitter.ends"),
            ),
        ),
    ),
    *sdram_proofs.PROOFS,
)
