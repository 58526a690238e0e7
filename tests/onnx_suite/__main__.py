"""Runs ONNX's backend test suite on Tilewright and prints what passes, by kind.

python -m tests.onnx_suite                                  everything, two to four minutes on 2 cores
python -m tests.onnx_suite --kind node -k 'resize|upsample'  part of it
python -m tests.onnx_suite --npu --json found.json          quantised parts on the NPU
python -m tests.onnx_suite --onnxruntime                    through onnxruntime, with the execution provider
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

from tests.onnx_suite import exclusions, pool, provider, suite

TIMEOUT = 300.0  # seconds per test


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.onnx_suite", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", action="append", choices=list(suite.KINDS), help="kind of test; repeatable")
    parser.add_argument("-k", metavar="PATTERN", default="", help="regular expression that names must contain")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--npu", action="store_true", help="give quantised parts to the NPU")
    parser.add_argument(
        "--constant-inputs",
        action="store_true",
        help="compile ahead of time, given what decides shapes; nothing is compiled while it runs",
    )
    parser.add_argument(
        "--onnxruntime", action="store_true", help="through onnxruntime; the execution provider takes what it can"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every result")
    parser.add_argument("-q", action="store_true", help="no list of failures")
    args = parser.parse_args()

    if args.onnxruntime:
        both = provider.load()
        tests, run = both[0], functools.partial(provider.run_provided, both)
    else:
        tests = suite.load(args.npu, args.constant_inputs)
        run = functools.partial(suite.run, tests)
    names = [n for n, (kind, _) in tests.items() if (not args.kind or kind in args.kind) and re.search(args.k, n)]
    results = []
    died = lambda name, reason: suite.Result(tests[name][0], name, "error", reason, TIMEOUT)
    for _, result in pool.run(run, names, args.jobs, TIMEOUT, died):
        results.append(result)
        if sys.stderr.isatty():
            print(f"\r{len(results)} of {len(names)}", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    if not args.onnxruntime:
        results = [exclusions.judged(r) for r in results]
    results.sort(key=lambda r: (list(suite.KINDS).index(r.kind), r.name))
    if not args.q:
        for r in results:
            if r.status not in suite.GOOD:
                print(f"{r.status:5} {r.name}: {r.reason}")
    print(suite.table(results))
    if args.onnxruntime:
        print(
            f"{sum(r.reason == provider.TAKEN for r in results)} of those that pass ran as programs, or parts of them"
        )
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps([asdict(r) for r in results], indent=1))
    return 0 if all(r.status in suite.GOOD for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
