"""`python -m verification.formal.boards [PROOF ...]`: the proofs about what boards put around the NPU."""

import sys

from verification.formal.boards.proofs import PROOFS
from verification.formal.command import main

if __name__ == "__main__":
    sys.exit(main("python -m verification.formal.boards", PROOFS))
