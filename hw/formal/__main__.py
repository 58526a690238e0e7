"""`python -m hw.formal [PROOF ...]`: the proofs about the NPU."""

import sys

from hw.formal.command import main
from hw.formal.proofs import PROOFS

if __name__ == "__main__":
    sys.exit(main("python -m hw.formal", PROOFS))
