"""Paths of the checkout, so that a test may move without counting folders."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Links in the package `tilewright` and the folders of the repository that they lead to.
LINKS = {
    path.name: path.resolve().relative_to(ROOT).as_posix()
    for path in (ROOT / "tilewright").iterdir()
    if path.is_symlink()
}
#: Folders of the repository that are packages of these names within `tilewright`.
PARTS = tuple(sorted(name for name, folder in LINKS.items() if name == folder))
#: Packages of `tilewright` beside its core, in the folder `tilewright/additions`.
ADDITIONS = tuple(sorted(name for name, folder in LINKS.items() if name != folder))


def source_name(path: str) -> str:
    """The path of a module in the repository, from the path it was imported by, which may lead over a link."""
    name = path.removeprefix(f"{ROOT}/")
    package, _, rest = name.partition("/")
    link, _, below = rest.partition("/")
    return f"{LINKS[link]}/{below}" if package == "tilewright" and link in LINKS else name


def imported_path(source: Path) -> str:
    """The path that a module is imported by, which may lead over a link, from where it lies in the repository: what
    `source_name` is the inverse of."""
    for link, folder in LINKS.items():
        if source.is_relative_to(ROOT / folder):
            return str(ROOT / "tilewright" / link / source.relative_to(ROOT / folder))
    return str(source)
