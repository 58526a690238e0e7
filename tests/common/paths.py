"""Where the checkout lies, so that a test may move without counting folders."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Folders of the repository that are packages within `tilewright`, which has links to them.
PARTS = tuple(sorted(path.name for path in (ROOT / "tilewright").iterdir() if path.is_symlink()))
