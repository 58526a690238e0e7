"""Where the checkout lies, so that a test may move without counting folders."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Folders of the repository that are packages within `tilewright`, which has links to them.
PARTS = tuple(sorted(path.name for path in (ROOT / "tilewright").iterdir() if path.is_symlink()))


def source_name(path: str) -> str:
    """Where a module lies in the repository, from the path it was imported by, which may lead over a link."""
    name = path.removeprefix(f"{ROOT}/")
    package, _, rest = name.partition("/")
    return rest if package == "tilewright" and rest.split("/")[0] in PARTS else name
