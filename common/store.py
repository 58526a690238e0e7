"""What is kept between runs: where, and the digest of the sources a result depends on."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_SOURCES = (".py", ".cpp", ".h")


def cache_folder() -> Path:
    """$TILEWRIGHT_CACHE, else tilewright/ in $XDG_CACHE_HOME or ~/.cache."""
    named = os.environ.get("TILEWRIGHT_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright"


def sources_digest(*patterns: str) -> str:
    """64 hex digits over paths and contents of sources.

    Args:
        patterns: of files below the folder that holds the packages, as `Path.glob` takes them; what is not Python or
            C++ is left out.
    """
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in _ROOT.glob(pattern) if path.suffix in _SOURCES}):
        digest.update(str(path.relative_to(_ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
