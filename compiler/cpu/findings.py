"""Schedules found by measurement, one JSON object per line, so that logs can be sent and joined with `cat`.

A line holds the schedule of one kernel, by the kernel's signature and the processor it was measured on; later lines
win. The log is `cpu-tuning.jsonl` in $TILEWRIGHT_CACHE (else the user's cache folder), or the file that
$TILEWRIGHT_CPU_TUNING names; "off" there uses none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewright.common.store import append_records, cache_folder, read_records
from tilewright.compiler.cpu.target import Target

VERSION = 1
ENVIRONMENT = "TILEWRIGHT_CPU_TUNING"


@dataclass(frozen=True)
class Finding:
    """The measured schedule of one kernel.

    Attributes:
        processor: name from `processor`.
        kernel: signature.
        schedule: the fields that differ from the default schedule.
        default_seconds, seconds: time of one run, by the default and by this schedule.
    """

    processor: str
    kernel: str
    schedule: Mapping[str, Any]
    default_seconds: float
    seconds: float


def processor(target: Target) -> str:
    """The name of a target that schedules depend on: the processor and a hash of all its features."""
    return f"{target.cpu or target.triple} {hashlib.sha256(repr(target).encode()).hexdigest()[:16]}"


def path() -> Path | None:
    """The path of the log, None where it is switched off."""
    chosen = os.environ.get(ENVIRONMENT, "")
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen)
    return cache_folder() / "cpu-tuning.jsonl"


def found(target: Target) -> Mapping[str, Mapping[str, Any]]:
    """Schedules by signature for a processor; empty where there is no log. Damaged lines are left out."""
    file = path()
    try:
        stamp = file.stat() if file is not None else None
    except OSError:
        return {}
    if file is None or stamp is None:
        return {}
    return _read(file, stamp.st_mtime_ns, stamp.st_size).get(processor(target), {})


@functools.lru_cache(maxsize=4)
def _read(file: Path, modified: int, size: int) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    by_processor: dict[str, dict[str, Mapping[str, Any]]] = {}
    try:
        records = [record for record in read_records(file, VERSION) if record is not None]
    except (OSError, UnicodeDecodeError):
        return {}
    for record in records:
        with contextlib.suppress(ValueError, TypeError):
            entry = Finding(**record)
            by_processor.setdefault(entry.processor, {})[entry.kernel] = dict(entry.schedule)
    return by_processor


def add(findings: Iterable[Finding], file: Path) -> None:
    """Appends findings to a log, which is made if missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    append_records(file, VERSION, map(asdict, findings))


def digest(target: Target) -> str:
    """A hash that changes when the schedules for a processor do."""
    return hashlib.sha256(json.dumps(found(target), sort_keys=True).encode()).hexdigest()
