"""Figures that a command measured, as a file that says which command."""

from __future__ import annotations

import json
import shlex
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.store import write_atomically

#: The key of the command.
COMMAND = "command"


def write_with_command(
    path: Path, parser: ArgumentParser, arguments: Sequence[str], figures: Mapping[str, Any]
) -> None:
    """Writes figures as JSON, with the command that measured them; makes the folder.

    Args:
        path: of the file.
        parser: of the command line; its `prog` is how one calls it.
        arguments: of the command line.
        figures: what JSON knows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {COMMAND: f"{parser.prog} {shlex.join(arguments)}".strip()} | dict(figures)
    write_atomically(path, json.dumps(values, indent=2) + "\n")
