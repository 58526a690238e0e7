"""`python -m verification.formal [PROOF ...]`: the proofs about the NPU."""

import sys

from verification.formal.command import main
from verification.formal.proofs import PROOFS

if __name__ == "__main__":
    sys.exit(main("python -m verification.formal", PROOFS))
