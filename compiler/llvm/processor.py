"""The processor of this machine by LLVM's names, kept on disk: loading LLVM to ask for them takes 65 ms."""

from __future__ import annotations

import functools
import hashlib
import platform
from pathlib import Path

import llvmlite
import msgspec

from tilewright.common import store

#: Lines of /proc/cpuinfo that differ from one reading, or one core, to the next.
_PASSING = ("processor", "cpu MHz", "bogomips", "BogoMIPS", "apicid", "initial apicid", "core id", "physical id")
_FIRST_BYTES = 1 << 13  # more than the lines of one processor


class Processor(msgspec.Struct, frozen=True):
    """A processor by LLVM's names.

    Attributes:
        llvm: version of LLVM.
        triple: its target triple.
        cpu: its name, such as "skylake".
        features: what it has, by name.
        flags: the same as a string of features, such as "+avx2,-amx-int8".
    """

    llvm: tuple[int, ...]
    triple: str
    cpu: str
    features: dict[str, bool]
    flags: str


@functools.cache
def this_processor() -> Processor:
    """The processor of this process: as kept on disk, or by asking LLVM where the system does not say what it is."""
    about = _about()
    if about is None:
        return _asked()
    digest = hashlib.sha256(f"{llvmlite.__version__} {platform.machine()}\n{about}".encode()).hexdigest()
    path = store.cache_folder() / "processors" / digest
    kept = store.find_sealed(path)
    if kept is not None:
        try:
            return msgspec.json.decode(kept, type=Processor)
        except msgspec.MsgspecError:  # of another version
            pass
    found = _asked()
    store.keep_sealed(path, msgspec.json.encode(found))
    return found


def _about() -> str | None:
    """Returns the lines in which Linux describes the first processor, None on other systems."""
    try:
        with Path("/proc/cpuinfo").open("rb") as file:
            first = file.read(_FIRST_BYTES).decode(errors="replace").partition("\n\n")[0]
    except OSError:
        return None
    lines = [line for line in first.splitlines() if line.partition(":")[0].strip() not in _PASSING]
    return "\n".join(lines) if any(line.lower().startswith(("flags", "features", "isa")) for line in lines) else None


def _asked() -> Processor:
    """Loads LLVM, and asks it."""
    import llvmlite.binding as llvm

    found = llvm.get_host_cpu_features()
    version, triple, cpu = tuple(llvm.llvm_version_info), llvm.get_default_triple(), llvm.get_host_cpu_name()
    return Processor(version, triple, cpu, dict(found), found.flatten())
