"""The proofs about the NPU: what is stated, how far it holds, and a deliberate fault that each property must find."""

from __future__ import annotations

from verification.formal.bus import axi_proofs, register_proofs
from verification.formal.gemm import proofs as gemm_proofs
from verification.formal.issue import loop_proofs, progress_proofs
from verification.formal.issue import proofs as issue_proofs
from verification.formal.machines import WIDE, WIDEST
from verification.formal.proof import Proof, on
from verification.formal.transfer import coded_proofs, load_proofs, move_proofs, store_proofs
from verification.formal.vector import lane_proofs, requantizer_proofs, row_proofs, steps_proofs, wide_proofs
from verification.formal.vector import proofs as vector_proofs

_AXI = {proof.name: proof for proof in axi_proofs.PROOFS}
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
    *axi_proofs.PROOFS,
    *progress_proofs.PROOFS,
    *register_proofs.PROOFS,
    *move_proofs.PROOFS,
    *load_proofs.PROOFS,
    *coded_proofs.PROOFS,
    *store_proofs.PROOFS,
    *(
        on(_AXI[name], config, str(config.axi_data_bits), quick=True)
        for name in ("axi_read", "axi_write")
        for config in (WIDE, WIDEST)
    ),
)
