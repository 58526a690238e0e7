"""Runs the AArch64 wheel under qemu and compares it with this machine: `python .ci/aarch64.py WHEEL`, `make test-arm`.

Debian's Python for arm64 and the wheel with its dependencies are unpacked into build/aarch64, so that nothing is
installed on this machine. The digits are compiled and run there and here: outputs and cycles must be equal.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "aarch64"
PACKAGES = ("python3.11-minimal", "libpython3.11-stdlib", "libc6", "libstdc++6")
#: Tags of the platforms whose wheels its C library runs, glibc 2.36.
PLATFORMS = ("manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in range(17, 37)))
RUNS = [("tiny", "cycle"), ("base", "cycle"), ("wide", "functional")]


def main() -> None:
    """Runs all of `RUNS` in both places. Ends the program where they differ."""
    if len(sys.argv) != 2 or not (wheel := Path(sys.argv[1]).resolve()).is_file():
        sys.exit(f"usage: {sys.argv[0]} WHEEL; {' '.join(sys.argv[1:])} is no file")
    emulator = shutil.which("qemu-aarch64") or sys.exit("qemu-aarch64 not found: apt-get install qemu-user")
    root = FOLDER / "root"
    if not (root / "usr/bin/python3.11").is_file():
        unpack_debian(root)
    site = FOLDER / "site"
    shutil.rmtree(site, ignore_errors=True)
    install(wheel, site)
    there = {"HOME": str(FOLDER / "home"), "PATH": "", "PYTHONPATH": str(site), "PYTHONHOME": str(root / "usr")}
    python = [emulator, "-L", str(root), str(root / "usr/bin/python3.11")]
    failed = 0
    for config, backend in RUNS:
        command = ["-m", "tilewright", "run", str(ROOT / "examples/digits/digits_int8.onnx"), "--config", config,
                   "--backend", backend, "--json", "-"]  # fmt: skip
        here, emulated = result([sys.executable, *command], dict(os.environ)), result([*python, *command], there)
        print(f"{config}, {backend}: {here['cycles'] or 'no'} cycles; {'equal' if here == emulated else emulated}")
        failed += here != emulated
    sys.exit(1 if failed else 0)


def unpack_debian(root: Path) -> None:
    """Unpacks Debian's packages for arm64, with all they depend on. Its apt has folders of its own."""
    apt = FOLDER / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    (apt / "apt.conf").write_text(
        'APT::Architecture "arm64";\nAPT::Architectures {"arm64";};\n'
        f'Dir::State::lists "{apt}/lists";\nDir::State::status "{apt}/status";\nDir::Cache "{apt}/cache";\n'
    )
    environment = os.environ | {"APT_CONFIG": str(apt / "apt.conf")}
    quiet = ["apt-get", "-qq", "-y", "-o", "Debug::NoLocking=1"]
    subprocess.run([*quiet, "update"], env=environment, check=True)
    wanted = [*quiet, "--no-install-recommends", "--download-only", "install", *PACKAGES]
    subprocess.run(wanted, env=environment, check=True, stdout=subprocess.DEVNULL)
    for package in sorted(apt.glob("cache/archives/*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)


def install(wheel: Path, site: Path) -> None:
    """Installs the wheel and what it depends on into a folder, in the versions of constraints.txt."""
    constraints = FOLDER / "constraints.txt"
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    constraints.write_text("\n".join(re.findall(r"^[\w.\[\]-]+==[^\s\\;]+", text, re.MULTILINE)), encoding="utf-8")
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", site,
         "--only-binary=:all:", "--python-version", "3.11", *platforms, "-c", constraints, wheel],
        check=True,
    )  # fmt: skip


def result(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Outputs and cycles of a run, or its error."""
    done = subprocess.run(command, env=environment, cwd=FOLDER, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    found = json.loads(done.stdout)
    return {"outputs": found["outputs"], "cycles": found.get("cycles")}


if __name__ == "__main__":
    main()
