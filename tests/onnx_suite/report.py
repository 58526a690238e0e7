"""Writes the results of the suite into docs/onnx.md, between its two marks.

python -m tests.onnx_suite.report build/onnx-suite docs/onnx.md
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import onnx

from tests.onnx_suite import suite
from tests.onnx_suite.exclusions import EXCLUDED

START, END = "<!-- results: make onnx-suite -->", "<!-- end of results -->"
RUNS = {
    "cpu": "CPU",
    "npu": "NPU",
    "ahead": "one program ahead of time",
}


def results(folder: Path) -> str:
    """The tables, from the runners' `cpu.json`, `npu.json` and `ahead.json`."""
    counts: dict[str, Counter[tuple[str, str]]] = {}
    for run in RUNS:
        rows = [suite.Result(**row) for row in json.loads((folder / f"{run}.json").read_text())]
        counts[run] = Counter((kind, r.status) for r in rows for kind in (r.kind, "all"))
    lines = [
        f"onnx {onnx.__version__}. Tests that pass:",
        "",
        f"| kind | tests | {' | '.join(RUNS.values())} |",
        f"|---|---|{'---|' * len(RUNS)}",
    ]
    for kind in [*suite.KINDS, "all"]:
        total = sum(counts["cpu"][kind, s] for s in suite.STATUSES)
        lines.append(f"| {kind} | {total} | {' | '.join(str(counts[run][kind, 'pass']) for run in RUNS)} |")
    dynamic = counts["ahead"]["all", "dynamic"]
    wrong = sum(counts[run]["all", s] for run in RUNS for s in ("fail", "error"))
    lines += [
        "",
        f"In the last column {dynamic} models need compiling while they run. Failures in all three runs: {wrong}.",
        f"Excluded are {len(EXCLUDED)} tests:",
        "",
        "| tests | why |",
        "|---|---|",
    ]
    reasons: dict[str, list[str]] = {}
    for name, reason in EXCLUDED.items():
        reasons.setdefault(reason, []).append(f"`{name.removeprefix('test_').removesuffix('_cpu')}`")
    lines += [f"| {', '.join(names)} | {reason} |" for reason, names in reasons.items()]
    return "\n".join(lines)


def main() -> int:
    folder, page = map(Path, sys.argv[1:])
    text = page.read_text()
    head, rest = text.split(START)
    _, tail = rest.split(END)
    page.write_text(f"{head}{START}\n{results(folder)}\n{END}{tail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
