"""Builds the release of HEAD into a folder, the same bytes whenever and wherever it is built: `make release`.

There are three wheels: for manylinux on x86-64 and on AArch64, with the native libraries (`.ci/prebuilt.py`), and one
without, which builds them on first use. Beside them and the source archive it writes a CycloneDX list of all
components with their hashes (`*.cdx.json`) and SHA256SUMS. Only what is committed goes in. The release is built
twice, and a difference is an error.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Machines with a wheel of their own, and the oldest Linux that its native libraries run on, as wheels name it.
PLATFORMS = {"x86_64": "manylinux_2_17_x86_64", "aarch64": "manylinux_2_17_aarch64"}


def main() -> None:
    """Writes the release to the folder named on the command line."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER")
    commit = output("git", "rev-parse", "HEAD").strip()
    files, again = build(commit), build(commit)
    if different := [name for name in files if files[name] != again.get(name)]:
        sys.exit(f"not reproducible: {', '.join(different)}")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    files["SHA256SUMS"] = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items())
    ).encode()
    for name, data in sorted(files.items()):
        (folder / name).write_bytes(data)
        print(f"{folder / name}: {len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()[:16]}")


def build(commit: str) -> dict[str, bytes]:
    """The files of the release of a commit, by name."""
    epoch = output("git", "log", "-1", "--format=%ct", commit).strip()
    with tempfile.TemporaryDirectory() as temporary:
        source, made = Path(temporary, "source"), Path(temporary, "made")
        source.mkdir()
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # older Pythons have none
            tar.extractall(source)
        run = [sys.executable, "-m", "build", "--no-isolation", "--outdir", made]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["SOURCE_DATE_EPOCH"] = epoch
        subprocess.run([*run, source], env=environment, check=True, capture_output=True)
        for machine, platform in PLATFORMS.items():
            for folder in (source / "common" / "prebuilt", source / "build"):  # of the wheel before
                shutil.rmtree(folder, ignore_errors=True)
            subprocess.run(
                [sys.executable, source / ".ci" / "prebuilt.py", source, machine],
                env=environment, check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            subprocess.run(
                [*run, "--wheel", f"--config-setting=--build-option=--plat-name={platform}", source],
                env=environment, check=True, capture_output=True,
            )  # fmt: skip
        files = {path.name: path.read_bytes() for path in made.iterdir()}
        (archive_name,) = (name for name in files if name.endswith(".tar.gz"))
        files[archive_name] = normalised(files[archive_name], int(epoch))
        files[archive_name.removesuffix(".tar.gz") + ".cdx.json"] = components(source)
    return files


def normalised(archive: bytes, time: int) -> bytes:
    """A .tar.gz with its members in order of their names, with one time and without owners: setuptools writes the
    time of the build."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda m: m.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = time, 0, 0, "", ""
            member.pax_headers = {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return gzip.compress(packed.getvalue(), mtime=0)


def components(source: Path) -> bytes:
    """The CycloneDX list of what constraints.txt pins, with hashes. It has neither serial number nor time."""
    text = output(
        sys.executable, "-m", "cyclonedx_py", "requirements", str(source / "constraints.txt"), "--pyproject",
        str(source / "pyproject.toml"), "--output-reproducible",
    )  # fmt: skip
    return (json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n").encode()


def output(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
