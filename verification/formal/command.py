"""The command line of proofs: proves, then checks that every property finds its fault."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from verification.formal.engine import FormalError
from verification.formal.proof import Proof, digest_of_benches, finds_fault, timed
from verification.measured import SOURCES, write_with_command


def main(prog: str, proofs: tuple[Proof, ...]) -> int:
    """0 if everything holds, 1 if something does not.

    Args:
        prog: how it is called.
        proofs: there are.
    """
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument("proof", nargs="*", help=f"one of {', '.join(p.name for p in proofs)} (default: all)")
    parser.add_argument("--no-faults", action="store_true", help="prove only")
    parser.add_argument("--json", type=Path, help="write what was proved, and which faults were found, here")
    arguments = parser.parse_args()
    if unknown := set(arguments.proof) - {p.name for p in proofs}:
        parser.error(f"unknown proof {sorted(unknown)[0]!r}")
    failed = False
    rows: list[dict[str, Any]] = []
    for proof in proofs:
        if arguments.proof and proof.name not in arguments.proof:
            continue
        names = [p.name for p in proof.properties]
        row: dict[str, Any] = {"proof": proof.name, "bound": proof.bound, "properties": names}
        row |= {"proved": False, "faults_found": 0}
        rows.append(row)
        try:
            print(f"{proof.name:13} {proof.bound:30} {timed(proof):6.1f} s", flush=True)
            row["proved"] = True
            for p in () if arguments.no_faults else [p for p in proof.properties if p.fault]:
                start = time.monotonic()
                found = finds_fault(proof, p.name)
                failed |= not found
                row["faults_found"] += found
                word = "finds its fault" if found else "DOES NOT FIND ITS FAULT"
                print(f"  {p.name:12} {word:30} {time.monotonic() - start:6.1f} s", flush=True)
        except FormalError as error:
            failed = True
            print(f"FAILED {error}", flush=True)
    if arguments.json:
        values = {
            SOURCES: digest_of_benches(proofs),
            "faults": not arguments.no_faults,
            "all": len(proofs),
            "proofs": rows,
        }
        write_with_command(arguments.json, parser, sys.argv[1:], values)
    return int(failed)
