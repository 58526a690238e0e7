"""Proofs about GEMM and DEPTHWISE: `data_benches` says how they chain."""

from __future__ import annotations

import functools

from tilewright.isa.config import NpuConfig
from verification.formal.gemm import data_benches, step_benches
from verification.formal.proof import Proof


def _on(name: str, config: NpuConfig, cycles: int, *, induction: bool, quick: bool = False) -> Proof:
    """Returns a bench on a machine, which the name of the proof tells."""
    bench = functools.partial(getattr(step_benches if name == "gemm_steps" else data_benches, name), c=config)
    return Proof(f"{name}_{config.name.removeprefix('formal_')}", bench, induction, cycles, quick=quick)


PROOFS: tuple[Proof, ...] = (
    Proof("gemm_nest", step_benches.gemm_nest, False, 10, quick=False),
    Proof("gemm_nest_pairs", functools.partial(step_benches.gemm_nest, pairs=True), False, 10, quick=False),
    _on("gemm_steps", step_benches.SQUARE, 12, induction=False),
    _on("gemm_steps", step_benches.TALL, 12, induction=False),
    _on("gemm_steps", step_benches.FLAT, 12, induction=False),
    _on("gemm_steps", step_benches.PAIRS, 12, induction=False),
    _on("gemm_steps", step_benches.PACKED, 12, induction=False),
    _on("gemm_window", data_benches.SQUARE, 4, induction=True, quick=True),
    _on("gemm_window", data_benches.FLAT, 14, induction=False),
    _on("gemm_window", data_benches.PAIRS, 4, induction=True),
    _on("gemm_window", data_benches.PACKED, 4, induction=True),
    _on("gemm_window", data_benches.FLAT_PAIRS, 14, induction=False),
    _on("gemm_array", data_benches.SQUARE, 7, induction=False),
    _on("gemm_array", data_benches.TALL, 7, induction=False),
    _on("gemm_array", data_benches.FLAT, 7, induction=False),
    Proof("gemm_packed", data_benches.gemm_packed, True, 1, quick=False),
    _on("gemm_unpacked", data_benches.TALL_PACKED, 7, induction=False),
    _on("gemm_sums", data_benches.SQUARE, 8, induction=True, quick=True),
    _on("gemm_sums", data_benches.TALL, 8, induction=True),
    _on("gemm_sums", data_benches.FLAT, 9, induction=True),
    _on("gemm_sums", data_benches.PACKED, 8, induction=True),
    Proof("gemm_retire", data_benches.gemm_retire, True, 1, quick=False),
    Proof("gemm_settled", data_benches.gemm_settled, True, 8),
)
