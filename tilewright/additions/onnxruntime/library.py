"""The shared library that onnxruntime loads: C++ in `native/`, compiled on first use and kept."""

from __future__ import annotations

import ctypes
import functools
import json
import sys
from pathlib import Path

from tilewright.common.installation import import_root
from tilewright.common.native import Library, shared_library, with_texts
from tilewright.common.version import tilewright_version
from tilewright.onnxruntime.wire import LINE

_SOURCES = Path(__file__).resolve().parent / "native"


def onnxruntime_library() -> str:
    """Path of the library for `onnxruntime.register_execution_provider_library`, built if it is not there.

    It starts its compiler process with the Python that called this, also in programs that are not Python. Any
    onnxruntime from 1.23 on loads it.

    Raises:
        BuildError: no compiler, or it failed.
    """
    release = tilewright_version().partition(" ")[2] or "0.0.0"  # onnxruntime wants numbers
    texts = {"TW_PYTHON": sys.executable, "TW_ROOT": str(import_root()), "TW_VERSION": release}
    return str(with_texts(shared_library(source()), "onnxruntime", texts))


def source() -> Library:
    """The provider's library, without the texts of this Python."""
    return Library(
        _SOURCES / "provider.cpp",
        ["-O2", "-fvisibility=hidden", "-pthread", f"-DTW_LINE={LINE}"],
        [*_SOURCES.glob("*.h"), *_SOURCES.glob("*.cpp")],
        group="onnxruntime",
        name="provider",
        title="the execution provider",
    )


@functools.cache
def _loaded() -> ctypes.CDLL:
    """The library in this process, the one that onnxruntime has if it is registered."""
    loaded = ctypes.CDLL(onnxruntime_library())
    loaded.tilewright_reports.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    loaded.tilewright_reports.restype = ctypes.c_size_t
    return loaded


def reports() -> list[dict[str, object]]:
    """Reports on the graphs of the last sessions of this process, oldest first: see `Claim.describe`."""
    size = 0
    while True:
        text = ctypes.create_string_buffer(size)
        needed = _loaded().tilewright_reports(text, size)
        if needed <= size:
            parsed: list[dict[str, object]] = json.loads(text.raw[:needed])
            return parsed
        size = needed


def compiler_process() -> int:
    """Number of the compiler process that was started last in this process, 0 before the first."""
    return int(_loaded().tilewright_process())
