"""Writes the golden texts again: all of them, or those named on the command line."""

from __future__ import annotations

import sys

from tests.unit.compiler.npu.golden import FOLDER, cases


def main(names: list[str]) -> None:
    known = cases()
    unknown = set(names) - set(known)
    if unknown:
        raise SystemExit(f"no golden case {', '.join(sorted(unknown))}; the cases are {', '.join(sorted(known))}")
    for name in names or known:
        text = known[name].text()
        if not known[name].path.exists() or known[name].path.read_text() != text:
            known[name].path.write_text(text)
            print("written", known[name].path.name)
    for path in sorted(FOLDER.glob("*.txt")):
        if path.stem not in known:
            path.unlink()
            print("removed", path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
