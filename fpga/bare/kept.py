"""Runs of the tools outside of a build, whose results are kept on disk by a hash of their input."""

from __future__ import annotations

import functools
import hashlib
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.common import store
from tilewright.common.installation import install_extra
from tilewright.fpga.errors import FpgaError

if TYPE_CHECKING:
    from tilewright.fpga.flows.tools import Step


def run_named(step: Step, folder: Path, name: str) -> None:
    """Runs a tool by `tilewright.fpga.flows.tools.run`; messages name the design `name`. Raises `FpgaError`."""
    from tilewright.fpga.flows.tools import run  # the flows, which who looks up results does not need

    try:
        run(step, folder)
    except FpgaError as error:
        raise FpgaError(f"{name}: {str(error).partition(' (see ')[0]}") from None  # the folder is gone by then


@functools.cache
def tool_version(package: str) -> str:
    """The version of a tool's Python package. Raises `FpgaError` if it is missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        raise FpgaError(f"{package} is not installed: {install_extra('sweep')}") from None


def cache_file(kind: str, *content: str) -> Path:
    """The file that keeps the result for this content, in the folder `synthesis` of the cache."""
    digest = hashlib.sha256("\0".join(content).encode()).hexdigest()
    return store.cache_folder() / "synthesis" / f"{kind}-{digest[:32]}.json"


def read_json(path: Path) -> dict | None:
    """A kept result; None if there is none, or a damaged one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write_json(path: Path, value: dict) -> None:
    """Keeps a result; a folder that cannot be written only costs time."""
    store.keep(path, json.dumps(value))


def write_measured(path: Path, value: dict) -> None:
    """Writes measurements that the package ships. Raises `FpgaError` if the file cannot be written."""
    try:
        store.write_atomically(path, json.dumps(value, indent=1) + "\n")
    except OSError as problem:
        raise FpgaError(f"cannot write {path}: {problem.strerror}") from None
