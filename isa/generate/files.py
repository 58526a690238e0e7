"""Generated files kept in the repository: written by a command, checked by the same with --check."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tilewright.common.store import write_atomically

ROOT = Path(__file__).resolve().parents[2]
#: Functions that make the text of a file, by its path below the repository.
Outputs = Mapping[Path, Callable[[], str]]


def stale(outputs: Outputs, root: Path = ROOT) -> list[Path]:
    """The files that differ from their generated text."""

    def differs(path: Path, text: str) -> bool:
        return not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text

    return [path for path, make in outputs.items() if differs(path, make())]


def main(outputs: Outputs, command: str, arguments: Sequence[str], root: Path = ROOT) -> int:
    """Runs the command line of a package's generated files; returns the exit status.

    Args:
        command: the command that writes the files, for messages.
        arguments: none to write stale files, `--check` to report them and fail.
    """
    if list(arguments) not in ([], ["--check"]):
        print(f"usage: {command} [--check]", file=sys.stderr)
        return 2
    old = stale(outputs, root)
    if arguments:
        for path in old:
            print(f"{path} is stale: run {command}", file=sys.stderr)
        return int(bool(old))
    for path in old:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(root / path, outputs[path]())
        print(f"wrote {path}")
    return 0
