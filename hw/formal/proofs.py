"""The proofs about the NPU: what is stated, how far it holds, and a deliberate fault that each property must find."""

from __future__ import annotations

from hw.formal import (
    bus_benches,
    bus_proofs,
    coded_proofs,
    gemm_proofs,
    issue_proofs,
    lane_proofs,
    load_proofs,
    loop_proofs,
    move_proofs,
    progress_proofs,
    register_proofs,
    requantizer_proofs,
    row_proofs,
    steps_proofs,
    store_proofs,
    vector_proofs,
    wide_proofs,
)
from hw.formal.proof import Proof, on

_BUS = {proof.name: proof for proof in bus_proofs.PROOFS}
PROOFS: tuple[Proof, ...] = (
    *issue_proofs.PROOFS,
    *loop_proofs.PROOFS,
    *gemm_proofs.PROOFS,
    *requantizer_proofs.PROOFS,
    *lane_proofs.PROOFS,
    *row_proofs.PROOFS,
    *steps_proofs.PROOFS,
    *vector_proofs.PROOFS,
    *wide_proofs.PROOFS,
    *bus_proofs.PROOFS,
    *progress_proofs.PROOFS,
    *register_proofs.PROOFS,
    *move_proofs.PROOFS,
    *load_proofs.PROOFS,
    *coded_proofs.PROOFS,
    *store_proofs.PROOFS,
    *(
        on(_BUS[name], config, str(config.axi_data_bits), quick=True)
        for name in ("axi_read", "axi_write")
        for config in (bus_benches.WIDE, bus_benches.WIDEST)
    ),
)
