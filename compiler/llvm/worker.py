"""The process side of `tilewright.compiler.llvm.parallel`. It reads pickled jobs from standard input, takes numbers of
jobs from the pipe whose descriptor is its argument, and writes (number, object) to standard output for each.
"""

from __future__ import annotations

import os
import pickle
import sys

from tilewright.compiler.llvm.emit import emit
from tilewright.compiler.llvm.parallel import numbers


def main() -> None:
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no result
    jobs = pickle.load(sys.stdin.buffer)
    for number in numbers(int(sys.argv[1])):
        pickle.dump((number, emit(jobs[number])), output)
        output.flush()


if __name__ == "__main__":
    main()
