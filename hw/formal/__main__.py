"""`python -m tilewright.hw.formal [PROOF ...]`: the proofs about the NPU."""

import sys

from tilewright.hw.formal.command import main
from tilewright.hw.formal.proofs import PROOFS

if __name__ == "__main__":
    sys.exit(main("python -m tilewright.hw.formal", PROOFS))
