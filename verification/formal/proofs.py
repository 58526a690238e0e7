"""The proofs about the NPU. What each property states, and a deliberate fault that it must find, are in its bench."""

from __future__ import annotations

from verification.formal.bus import proofs as bus
from verification.formal.gemm import proofs as gemm
from verification.formal.issue import proofs as issue
from verification.formal.proof import Proof
from verification.formal.transfer import proofs as transfer
from verification.formal.vector import proofs as vector

PROOFS: tuple[Proof, ...] = (*issue.PROOFS, *gemm.PROOFS, *vector.PROOFS, *bus.PROOFS, *transfer.PROOFS)
