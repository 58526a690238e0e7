"""Process side of the schedule search: reads a pickled job from standard input, writes the costs to standard output."""

from __future__ import annotations

import pickle
import sys

from tilewright.compiler.npu.schedule.search import measure_policy


def main() -> None:
    config, layers, outside, share, measure, memory = pickle.load(sys.stdin.buffer)
    costs = {policy: measure_policy(config, layers, outside, policy, measure, memory) for policy in share}
    sys.stdout.buffer.write(pickle.dumps(costs))


if __name__ == "__main__":
    main()
