"""`python -m tilewright.fpga.formal [PROOF ...]`: the proofs about what boards put around the NPU."""

import sys

from tilewright.fpga.formal.proofs import PROOFS, SOURCES
from tilewright.hw.formal.command import main

if __name__ == "__main__":
    sys.exit(main("python -m tilewright.fpga.formal", PROOFS, SOURCES))
