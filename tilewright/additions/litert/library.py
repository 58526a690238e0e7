"""The shared library that LiteRT loads: built on first use, and connected with this process."""

from __future__ import annotations

import atexit
import ctypes
import functools
from pathlib import Path

from tilewright.common.native import BuildError, Library, shared_library
from tilewright.litert.bridge import Bridge, bridge

_SOURCES = Path(__file__).resolve().parent / "native"


def litert_delegate() -> str:
    """The delegate's shared library, for `ai_edge_litert.interpreter.load_delegate`.

    >>> delegate = load_delegate(tilewright.litert_delegate())
    >>> interpreter = Interpreter("model.tflite", experimental_delegates=[delegate])

    Raises:
        BuildError: there is no C++ compiler, or it failed.
    """
    path = build()
    _connected(str(path))
    return str(path)


def build() -> Path:
    """The library, built if it is not there. Raises `BuildError`."""
    return shared_library(source())


def source() -> Library:
    """The delegate's library."""
    return Library(
        _SOURCES / "delegate.cpp",
        ["-O2", "-fvisibility=hidden"],
        [*_SOURCES.glob("*.h"), *_SOURCES.glob("*.cpp")],
        group="litert",
        name="delegate",
        title="the LiteRT delegate",
    )


@functools.cache
def _connected(path: str) -> tuple[ctypes.CDLL, Bridge]:
    """The library, which calls this process from now on until Python shuts down."""
    library = ctypes.CDLL(path)
    connect = library.tilewright_litert_connect
    connect.argtypes, connect.restype = [ctypes.POINTER(Bridge)], None
    library.tilewright_litert_bridge_bytes.restype = ctypes.c_size_t
    if library.tilewright_litert_bridge_bytes() != ctypes.sizeof(Bridge):
        raise BuildError(f"{path} and tilewright/litert/bridge.py disagree")
    functions = bridge()
    connect(ctypes.byref(functions))
    atexit.register(connect, None)
    return library, functions
