"""Builds the native libraries of the sources at hand for a wheel: `python .ci/prebuilt.py SOURCES MACHINE`.

They go to `common/prebuilt/` in the folder of sources, one folder for each level of the machine's instruction set, and
run with any glibc from 2.17 on. Zig's C++ compiler, which pip installs in one exact version, makes the same bytes on
every machine, for x86_64 and for aarch64.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.common.native import Library

_LEVEL_2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf")
_LEVEL_3 = (*_LEVEL_2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_MACHINES = ("x86_64", "aarch64")
#: By level: the features that clang may use. With `-mcpu` Zig would build its C++ library anew for each level.
_FEATURES = {
    "aarch64": (),
    "x86-64": (),
    "x86-64-v3": _LEVEL_3,
    "x86-64-v4": (*_LEVEL_3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vnni"),
}
_SIZES = (4, 8, 16, 32, 64)


def main() -> None:
    """Builds all libraries of the sources in the folder for the machine named on the command line."""
    if len(sys.argv) != 3 or sys.argv[2] not in _MACHINES:
        sys.exit(f"usage: {sys.argv[0]} SOURCES {'|'.join(_MACHINES)}")
    root, machine = Path(sys.argv[1]).resolve(), sys.argv[2]
    sys.path.insert(0, str(root))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path in pool.map(lambda task: build(root, machine, *task), tasks(machine)):
            print(path.relative_to(root), path.stat().st_size)


def tasks(machine: str) -> Iterator[tuple[str, Library]]:
    """Each library with each level it is built for.

    On x86_64, what computes is built for processors with AVX2, and the machines of the presets for AVX-512, too; older
    processors build their own. All processors of aarch64 have NEON, which the compiler uses.
    """
    from tilewright.compiler.npu.coding import stream
    from tilewright.compiler.npu.emit import assembler
    from tilewright.isa.config import PRESETS
    from tilewright.litert import library as litert
    from tilewright.onnxruntime import library as onnxruntime
    from tilewright.simulator import cycle, native

    least, computing, best = ("x86-64", "x86-64-v3", "x86-64-v4") if machine == "x86_64" else ("aarch64",) * 3
    for module in (assembler, stream, litert, onnxruntime):
        yield least, module.source()
    yield computing, cycle.source()
    presets = {(config.block_in, config.block_out) for config in PRESETS.values()}
    for block_in in _SIZES:
        for block_out in _SIZES:
            yield computing, native.source(block_in, block_out)
            if best != computing and (block_in, block_out) in presets:
                yield best, native.source(block_in, block_out)


def build(root: Path, machine: str, level: str, library: Library) -> Path:
    """Builds a library for one level of a machine. Ends the program where the compiler fails."""
    path = root / "common" / "prebuilt" / level / library.portable_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    arguments = [argument for argument in library.command() if argument != "-march=native"]
    arguments += [w for name in _FEATURES[level] for w in ("-Xclang", "-target-feature", "-Xclang", f"+{name}")]
    target = f"{machine}-linux-gnu.2.17"
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", "c++", "-target", target, "-s", "-Wno-psabi", f"-ffile-prefix-map={root}=.",
         *arguments, "-o", str(path)],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"cannot build {library.name} for {level}: {first_error(done.stderr)}")
    return path


def first_error(text: str) -> str:
    """The first error of a compiler's output."""
    lines = text.splitlines() or ["no output"]
    return next((line for line in lines if "error:" in line), lines[0])


if __name__ == "__main__":
    main()
