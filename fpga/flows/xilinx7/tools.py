"""The place-and-route tools of Zynq-7000 and Artix-7: those of the system, or Debian's packages unpacked into a folder.

pip has none of them. Debian unstable has packages; they need newer libraries than most systems have, so the packages
of those libraries are unpacked with them and the tools run with the loader that came along. Nothing is installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tilewright.common import temporary
from tilewright.common.store import cache_folder
from tilewright.fpga.errors import FpgaError

NEXTPNR = "nextpnr-himbaechel-xilinx"
FRAMES2BIT = "xc7frames2bit"
PACKAGES = (NEXTPNR, "prjxray", "prjxray-database")
SUITE = "sid"
MIRROR = "http://deb.debian.org/debian"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
#: The family of an FPGA in the database, by the beginning of its name.
FAMILIES = {"xc7z": "zynq7", "xc7a": "artix7"}
_DATABASE = Path("usr/share/prjxray/database")
_CHIPS = Path("usr/share/nextpnr/himbaechel/xilinx")
#: Kept files of the packages: tools, libraries, and of the databases those of Zynq and of the XC7A100T.
_KEPT = (
    f"./usr/bin/{NEXTPNR}",
    f"./usr/bin/{FRAMES2BIT}",
    "./usr/lib/",
    *(f"./{_CHIPS}/chipdb-{chip}" for chip in ("xc7z", "xc7a100t")),
    f"./{_DATABASE}/zynq7/",
    *(f"./{_DATABASE}/artix7/{name}" for name in ("ppips_", "segbits_", "xc7a100t/tilegrid", "xc7a100tcsg324-1/")),
)


#: What follows the name of an FPGA: its package.
_PACKAGE = re.compile(r"(?:clg|csg)\d")


@dataclass(frozen=True)
class Tools:
    """Command lines of the tools, and the folder of the database.

    Attributes:
        nextpnr, frames2bit: command lines to be followed by arguments.
        database: folder of the databases of all families.
        chips: folder with nextpnr's databases; None if nextpnr knows it.
    """

    nextpnr: tuple[str, ...]
    frames2bit: tuple[str, ...]
    database: Path
    chips: Path | None

    def nextpnr_for(self, part: str) -> tuple[str, ...]:
        """The command line of nextpnr for an FPGA, to be followed by arguments."""
        chips = () if self.chips is None else ("--chipdb", str(self.chips / f"chipdb-{device_of(part)}.bin"))
        return (*self.nextpnr, "--device", part, *chips)

    def database_of(self, part: str) -> Path:
        """The database of the family of an FPGA. Raises `FpgaError` if there is none."""
        found = self.database / FAMILIES[part[:4]]
        if not (found / device_of(part) / "tilegrid.json").exists():
            raise FpgaError(f"no database of {device_of(part)} in {found}; `tilewright fpga fetch-tools` gets it")
        return found

    def ps7_inputs(self) -> dict[str, int]:
        """Width of every input of PS7 that fabric can drive, from the database. Raises `FpgaError`."""
        try:
            ports = json.loads((self.database / "zynq7" / "ps7_ports.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FpgaError(f"no ports of PS7 in {self.database}: {error}") from None
        return {n: p["width"] for n, p in ports.items() if p["class"] == "normal" and p["direction"] == "input"}


def device_of(part: str) -> str:
    """The name of an FPGA without package and speed, the form used in the databases."""
    return _PACKAGE.split(part)[0]


def folder() -> Path:
    """The folder of the tools that `fetch` downloads: `xilinx7-tools` in the cache folder."""
    return cache_folder() / "xilinx7-tools"


def find() -> Tools:
    """Finds the tools on PATH, else those fetched. Raises `FpgaError` naming the command that gets them."""
    nextpnr, frames2bit = shutil.which(NEXTPNR), shutil.which(FRAMES2BIT)
    if nextpnr and frames2bit and (Path("/") / _DATABASE).is_dir():
        return Tools((nextpnr,), (frames2bit,), Path("/") / _DATABASE, None)
    root = folder()
    loader = next(iter(sorted((root / "usr/lib").glob("*/ld-linux*.so.*"))), None)
    if loader is None or not (root / _DATABASE).is_dir():
        raise FpgaError(
            f"{NEXTPNR}, {FRAMES2BIT} and prjxray-database are not installed; `tilewright fpga fetch-tools` unpacks "
            f"them from Debian's packages into {root}"
        )
    start = (str(loader), "--library-path", str(loader.parent))
    commands = [(*start, str(root / "usr/bin" / name)) for name in (NEXTPNR, FRAMES2BIT)]
    return Tools(commands[0], commands[1], root / _DATABASE, root / _CHIPS)


def fetch(mirror: str = MIRROR, progress: Callable[[str], None] = lambda text: None) -> tuple[list[str], int]:
    """Downloads the packages with apt, which checks their signatures, and unpacks them into `folder()`.

    Returns:
        Names of the packages files, and their bytes.

    Raises:
        FpgaError: apt or dpkg is missing, or failed.
    """
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise FpgaError(f"{tool} is missing: fetching needs a Debian-like system; install {', '.join(PACKAGES)}")
    if not Path(KEYRING).exists():
        raise FpgaError(f"{KEYRING} is missing; apt-get install debian-archive-keyring")
    root = folder()
    root.parent.mkdir(parents=True, exist_ok=True)
    with temporary.Folder(prefix="xilinx7-tools-", dir=root.parent) as scratch:
        apt = Path(scratch) / "apt"
        for name in ("lists/partial", "cache/archives/partial", "state"):
            (apt / name).mkdir(parents=True)
        (apt / "status").touch()  # nothing counts as installed: libraries come along
        (apt / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror} {SUITE} main\n", encoding="utf-8")
        (apt / "apt.conf").write_text(_apt_configuration(apt), encoding="utf-8")
        progress(f"package lists of {mirror} {SUITE}")
        _apt(apt, "update", "-o", "APT::Update::Error-Mode=any")
        progress(f"downloading {', '.join(PACKAGES)} and their libraries")
        _apt(apt, "install", "--yes", "--download-only", "--no-install-recommends", *PACKAGES)
        packages = sorted((apt / "cache/archives").glob("*.deb"))
        made = Path(scratch) / "root"
        for package in packages:
            progress(f"unpacking {package.name.partition('_')[0]}")
            _unpack(package, made)
        if root.exists():
            shutil.rmtree(root)
        made.rename(root)
        return [p.name for p in packages], sum(p.stat().st_size for p in packages)


def _apt_configuration(apt: Path) -> str:
    settings = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State": apt / "state",
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "true",
    }
    return "".join(f'{key} "{value}";\n' for key, value in settings.items())


def _apt(apt: Path, *arguments: str) -> None:
    environment = os.environ | {"APT_CONFIG": str(apt / "apt.conf"), "LC_ALL": "C"}
    done = subprocess.run(
        ["apt-get", "--quiet", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("E:")] or ["no message"]
        raise FpgaError(f"apt-get {arguments[0]}: {errors[0].removeprefix('E: ')}")


def _unpack(package: Path, root: Path) -> None:
    """Unpacks the kept files of one package below `root`."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            archive.extraction_filter = getattr(tarfile, "tar_filter", None)  # older Pythons have none
            for member in archive:
                if member.name.startswith(_KEPT) and not member.isdir():
                    archive.extract(member, root)
    if process.returncode:
        raise FpgaError(f"dpkg-deb cannot read {package.name}")
