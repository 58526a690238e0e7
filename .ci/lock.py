"""Writes the files with exact versions of all dependencies: `make lock`, `make lock UPGRADE=--upgrade`.

constraints.txt is what `make venv` installs, .ci/release.txt what `make release` does, both with the hashes of every
file for every platform. .ci/torch.txt and .ci/extras.txt only pin versions, of what few targets add to the environment:
PyTorch, from whichever index the machine has for it, and what `make test-ip`, `make site` and `make notebooks` need.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def main() -> None:
    """Today's versions stay unless --upgrade is given."""
    build = ROOT / "build" / "build-system.in"  # builds the editable install, but is no dependency of the package
    build.parent.mkdir(exist_ok=True)
    build.write_text("\n".join(PROJECT["build-system"]["requires"]))
    lock(
        "constraints.txt", "what `make venv` installs", "pyproject.toml", build, "--extra", "test", "--generate-hashes"
    )
    needed = ("pyproject.toml", build, "--extra", "release", "-c", "constraints.txt", "--generate-hashes")
    lock(".ci/release.txt", "what `make release` and `make lock` need", *needed)
    torch = ("pyproject.toml", "--extra", "test-torch", "--extra", "test", "-c", "constraints.txt")
    lock(".ci/torch.txt", "what `make test-torch` installs", *torch)
    extras = ("pyproject.toml", "--extra", "ip", "--extra", "site", "--extra", "notebooks", "-c", "constraints.txt")
    lock(".ci/extras.txt", "what `make test-ip`, `make site` and `make notebooks` install", *extras)


def lock(name: str, what: str, *arguments: object) -> None:
    """Resolves `arguments` (requirement files and options of `uv pip compile`) into the file `name`."""
    options = ["--universal", "--python-version", "3.11", "--no-header", "--no-annotate", "--quiet", "-o", name]
    subprocess.run(
        [sys.executable, "-m", "uv", "pip", "compile", *map(str, arguments), *options, *sys.argv[1:]],
        cwd=ROOT,
        check=True,
    )
    path = ROOT / name
    path.write_text(f"# Exact versions of {what} (Python 3.11 to 3.14). Written by `make lock`.\n" + path.read_text())


if __name__ == "__main__":
    main()
