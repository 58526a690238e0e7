"""`python -m hw.formal [PROOF ...]`: proves, then checks that every property finds its fault."""

from __future__ import annotations

import argparse
import sys
import time

from hw.formal.engine import FormalError
from hw.formal.proofs import PROOFS, finds_fault, timed


def main() -> int:
    """0 if everything holds, 1 if something does not."""
    parser = argparse.ArgumentParser(prog="python -m hw.formal", description=__doc__)
    parser.add_argument("proof", nargs="*", help=f"one of {', '.join(p.name for p in PROOFS)} (default: all)")
    parser.add_argument("--no-faults", action="store_true", help="prove only")
    arguments = parser.parse_args()
    if unknown := set(arguments.proof) - {p.name for p in PROOFS}:
        parser.error(f"unknown proof {sorted(unknown)[0]!r}")
    failed = False
    for proof in PROOFS:
        if arguments.proof and proof.name not in arguments.proof:
            continue
        try:
            print(f"{proof.name:13} {proof.bound:30} {timed(proof):6.1f} s", flush=True)
            for p in () if arguments.no_faults else proof.properties:
                start = time.monotonic()
                found = finds_fault(proof, p.name)
                failed |= not found
                word = "finds its fault" if found else "DOES NOT FIND ITS FAULT"
                print(f"  {p.name:12} {word:30} {time.monotonic() - start:6.1f} s", flush=True)
        except FormalError as error:
            failed = True
            print(f"FAILED {error}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
