"""Figures that a command measured, as a file that says which command, when, and on which design."""

from __future__ import annotations

import json
import shlex
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.common.store import write_atomically

#: The keys of the command, of the day, and of the digest of what was measured.
COMMAND, DAY, SOURCES = "command", "day", "sources"


def today() -> str:
    """Returns the day, UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def write_with_command(
    path: Path, parser: ArgumentParser, arguments: Sequence[str], figures: Mapping[str, Any]
) -> None:
    """Writes figures as JSON, with the command that measured them and the day (UTC); makes the folder.

    Args:
        path: of the file.
        parser: of the command line; its `prog` is how one calls it.
        arguments: of the command line.
        figures: what JSON knows; under `SOURCES` the digest of what was measured.
    """
    assert SOURCES in figures, "figures without the digest of what they are of"
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {COMMAND: f"{parser.prog} {shlex.join(arguments)}".strip()} | dict(figures) | {DAY: today()}
    write_atomically(path, json.dumps(values, indent=2) + "\n")
