"""Figures that a command measured, as a file that says which command, when, and on which design."""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.store import write_atomically

#: The keys of the command, of the day, and of the sources.
COMMAND, DAY, SOURCES = "command", "day", "sources"
_ROOT = Path(__file__).resolve().parents[1]


def digest_of_sources() -> str:
    """12 hex digits over the sources that the RTL is made of."""
    found = hashlib.sha256()
    for source in sorted([*(_ROOT / "hw").glob("*.py"), *(_ROOT / "isa").glob("*.py")]):
        found.update(source.read_bytes())
    return found.hexdigest()[:12]


def write_with_command(
    path: Path, parser: ArgumentParser, arguments: Sequence[str], figures: Mapping[str, Any]
) -> None:
    """Writes figures as JSON, with the command that measured them, the day (UTC) and `digest_of_sources`; makes the
    folder.

    Args:
        path: of the file.
        parser: of the command line; its `prog` is how one calls it.
        arguments: of the command line.
        figures: what JSON knows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {COMMAND: f"{parser.prog} {shlex.join(arguments)}".strip()} | dict(figures)
    values |= {DAY: time.strftime("%Y-%m-%d", time.gmtime()), SOURCES: digest_of_sources()}
    write_atomically(path, json.dumps(values, indent=2) + "\n")
