"""Compiled programs by the content of what they were compiled from, so that a second compile is instant.

A key covers the model's bytes, configuration, shapes, options, the compiler's own sources and the host's processor.
Files live in $TILEWRIGHT_CACHE (else the user's cache folder) under `programs/`; one that is damaged, or
not signed by the user, is compiled again.
TILEWRIGHT_PROGRAM_CACHE=off switches this off.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite

from tilewright.common import store
from tilewright.compiler.cpu import findings
from tilewright.compiler.cpu.target import Target, poisoned
from tilewright.isa.program import Program, ProgramError
from tilewright.store import trust

if TYPE_CHECKING:
    import onnx

DISK_BYTES = 1 << 30  # above this the programs not used for longest are deleted


def directory() -> Path:
    """The folder of cached programs."""
    return store.cache_folder() / "programs"


@functools.cache
def _sources() -> str:
    """Names everything that decides how a model is compiled."""
    sources = store.sources_digest("common/**/*", "isa/**/*", "compiler/**/*", "simulator/**/*")
    return f"{sources} {llvmlite.__version__} {Target.host()} {platform.python_version()}"


def key(model: str | Path | bytes | onnx.ModelProto, *options: Any) -> str | None:
    """A hex digest; None if nothing is to be kept: switched off, or weights in other files, which are not seen here."""
    if os.environ.get("TILEWRIGHT_PROGRAM_CACHE") == "off":
        return None
    if isinstance(model, str) and "\n" in model:  # MLIR text
        content = model.encode()
    elif isinstance(model, str | Path):
        content = store.read(model)
    elif isinstance(model, bytes):
        content = model
    else:
        content = model.SerializeToString(deterministic=True)
    if b"location" in content:
        return None
    digest = hashlib.sha256(content)
    known = _sources(), findings.digest(Target.host()), poisoned()
    digest.update(json.dumps([*known, *options], sort_keys=True, default=str).encode())
    return digest.hexdigest()


def find(name: str) -> Program | None:
    """The program kept under a key."""
    path = directory() / f"{name}.twp"
    try:
        program = Program.load(path)
    except ProgramError:
        return None
    if not trust.is_trusted(program):  # somebody else's file
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return program


def keep(name: str, program: Program) -> None:
    """Keeps a program; without a place to write, nothing happens."""
    store.keep(directory() / f"{name}.twp", program.to_bytes())
    store.trim(directory(), "*.twp", DISK_BYTES)
