"""Files for those that read them."""

from __future__ import annotations

from pathlib import Path


def placed(folder: Path, name: str, data: bytes) -> str:
    """Returns the path of a new file in the folder."""
    path = folder / name
    path.write_bytes(data)
    return str(path)
