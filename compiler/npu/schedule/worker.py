"""Worker process of the schedule search: reads a pickled job, and writes costs and warnings to standard output."""

from __future__ import annotations

import pickle
import sys
import warnings

from tilewright.compiler.npu.schedule.search import measure_policy


def main() -> None:
    """Measures the policies of the job on standard input."""
    problem, share = pickle.load(sys.stdin.buffer)
    with warnings.catch_warnings(record=True) as said:
        costs = {policy: measure_policy(problem, policy) for policy in share}
    sys.stdout.buffer.write(pickle.dumps((costs, [str(warning.message) for warning in said])))


if __name__ == "__main__":
    main()
