"""Measured models of machines, kept by processor; `tilewright bench --host --write` writes them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from tilewright.common.store import cache_folder, write_atomically
from tilewright.compiler.cpu import findings
from tilewright.compiler.cpu.cost import THIS, HostModel
from tilewright.compiler.cpu.target import Target
from tilewright.isa.program_parts import WORK_KINDS


def model_file() -> Path:
    """The file with the fitted models of machines, by processor."""
    return cache_folder() / "host-models.json"


def calibrated() -> HostModel | None:
    """The model of this machine as it was measured, None where it was not."""
    try:
        found = json.loads(model_file().read_text())[findings.processor(Target.host())]
        model = HostModel(name=THIS, **found)
        return model if set(model.cycles) == set(WORK_KINDS) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(model: HostModel) -> Path:
    """Keeps a model of this machine. Returns the file."""
    path = model_file()
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        known = {}
    known[findings.processor(Target.host())] = {k: v for k, v in asdict(model).items() if k != "name"}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(known, indent=1).encode())
    return path
