"""Builds the native libraries of the sources at hand for the wheel: `python .ci/prebuilt.py SOURCES`.

They go to `common/prebuilt/` in the folder of sources, one folder for each level of the x86-64 instruction set, and
run with any glibc from 2.17 on. Zig's C++ compiler, which pip installs in one exact version, makes the same bytes on
every machine.
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

_TARGET = "x86_64-linux-gnu.2.17"
_LEVEL_2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf")
_LEVEL_3 = (*_LEVEL_2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
#: By level: the features that clang may use. With `-mcpu` Zig would build its C++ library anew for each level.
_FEATURES = {
    "x86-64": (),
    "x86-64-v3": _LEVEL_3,
    "x86-64-v4": (*_LEVEL_3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vnni"),
}
_SIZES = (4, 8, 16, 32, 64)


def main() -> None:
    """Builds all libraries of the sources in the folder named on the command line."""
    root = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(root))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path in pool.map(lambda task: build(root, *task), tasks()):
            print(path.relative_to(root), path.stat().st_size)


def tasks() -> Iterator[tuple[str, Library]]:
    """Each library with each level it is built for.

    What computes is built for processors with AVX2, and the machines of the presets for AVX-512, too; older processors
    build their own.
    """
    from tilewright.compiler.npu.coding import stream
    from tilewright.compiler.npu.emit import assembler
    from tilewright.isa.config import PRESETS
    from tilewright.litert import library as litert
    from tilewright.onnxruntime import library as onnxruntime
    from tilewright.simulator import cycle, native

    for module in (assembler, stream, litert, onnxruntime):
        yield "x86-64", module.source()
    yield "x86-64-v3", cycle.source()
    presets = {(config.block_in, config.block_out) for config in PRESETS.values()}
    for block_in in _SIZES:
        for block_out in _SIZES:
            yield "x86-64-v3", native.source(block_in, block_out)
            if (block_in, block_out) in presets:
                yield "x86-64-v4", native.source(block_in, block_out)


def build(root: Path, level: str, library: Library) -> Path:
    """Builds a library for one level. Ends the program where the compiler fails."""
    path = root / "common" / "prebuilt" / level / library.portable_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    arguments = [argument for argument in library.command() if argument != "-march=native"]
    arguments += [w for name in _FEATURES[level] for w in ("-Xclang", "-target-feature", "-Xclang", f"+{name}")]
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", "c++", "-target", _TARGET, "-s", "-Wno-psabi", f"-ffile-prefix-map={root}=.",
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
