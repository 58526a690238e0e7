"""Files of measured figures, with the command, the date and the design they were measured on."""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.common.store import write_atomically

#: The keys of the command, of the day, and of the sources.
COMMAND, DAY, SOURCES = "command", "day", "sources"
_ROOT = Path(__file__).resolve().parents[1]


def rtl_sources() -> list[Path]:
    """The Python sources of the RTL: those of `hw` without its simulation, and the tables of `isa`."""
    design = (path for path in (_ROOT / "hw").rglob("*.py") if path.parent.name != "sim")
    return sorted([*design, *(_ROOT / "isa").glob("*.py")])


def digest_of_sources(sources: Iterable[Path] | None = None) -> str:
    """12 hex digits of a hash over some sources, by default those of the RTL."""
    found = hashlib.sha256()
    for source in sorted(sources or rtl_sources()):
        found.update(source.read_bytes())
    return found.hexdigest()[:12]


def today() -> str:
    """Today's date, UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def write_with_command(
    path: Path, parser: ArgumentParser, arguments: Sequence[str], figures: Mapping[str, Any]
) -> None:
    """Writes figures as JSON, with the command that measured them, the day (UTC) and `digest_of_sources` of the RTL,
    unless they have one of other sources; makes the folder.

    Args:
        path: of the file.
        parser: of the command line; its `prog` is how one calls it.
        arguments: of the command line.
        figures: what JSON knows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {COMMAND: f"{parser.prog} {shlex.join(arguments)}".strip(), SOURCES: digest_of_sources()} | dict(figures)
    values[DAY] = today()
    write_atomically(path, json.dumps(values, indent=2) + "\n")
