"""`python -m fpga.formal [PROOF ...]`: the proofs about what boards put around the NPU."""

import sys

from fpga.formal.proofs import PROOFS, SOURCES
from hw.formal.command import main

if __name__ == "__main__":
    sys.exit(main("python -m fpga.formal", PROOFS, SOURCES))
