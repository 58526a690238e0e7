"""Loads object code into this process, by LLVM's own linker; nothing is compiled again."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence

import llvmlite.binding as llvm

from tilewright.compiler.cpu.object.pool import pool_of
from tilewright.compiler.cpu.target import Target
from tilewright.compiler.errors import CompileError

_ELF = b"\x7fELF"


class LoadedSegment:
    """A loaded segment: call it with the addresses of its buffers and of its workspace.

    Args:
        tracker: keeps the code alive.
        address: address of the entry point.
    """

    def __init__(self, tracker: llvm.ResourceTracker, address: int) -> None:
        self._tracker = tracker
        self._entry = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)

    def __call__(self, buffers: Sequence[int], workspace: int | None = None) -> None:
        self.bound(buffers, workspace)()

    def bound(self, buffers: Sequence[int], workspace: int | None = None) -> Callable[[], None]:
        """A call with these addresses: making their table takes longer than a small kernel."""
        table = (ctypes.c_void_p * max(len(buffers), 1))(*buffers)
        return functools.partial(self._entry, table, ctypes.c_void_p(workspace or 0))


class ThreadedSegment:
    """A loaded segment of several threads; see `LoadedSegment`.

    Args:
        tracker: keeps the code alive.
        address: address of the entry point.
        threads: number of threads that the segment was compiled for.
    """

    def __init__(self, tracker: llvm.ResourceTracker, address: int, threads: int) -> None:
        self._tracker = tracker
        self._address, self._threads = address, threads

    def __call__(self, buffers: Sequence[int], workspace: int | None = None) -> None:
        self.bound(buffers, workspace)()

    def bound(self, buffers: Sequence[int], workspace: int | None = None) -> Callable[[], None]:
        """See `LoadedSegment.bound`."""
        table = (ctypes.c_void_p * max(len(buffers), 1))(*buffers)
        return lambda: pool_of(self._threads).run(self._address, table, workspace or 0)


def load(object_code: bytes, symbol: str, threads: int = 1) -> Callable[..., None]:
    """Loads the entry point `symbol` of an object for this machine.

    Args:
        object_code: ELF relocatable object, as in `Segment.object_code`.
        symbol: its entry point.
        threads: number of threads it was compiled for.

    Returns:
        `f(buffers, workspace)`: addresses of inputs, constants and outputs in the segment's order, and of
        `workspace_bytes` bytes aligned to 64 (may be None when that is 0).
    """
    if not object_code.startswith(_ELF):
        raise CompileError(f"the kernel {symbol!r} is no object code: {len(object_code)} bytes")
    Target.host()  # asks the system for what kernels may need
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    # JITLink puts all sections of an object side by side. MCJIT may put them farther apart than code can reach, in a
    # process with many libraries, and ends the process then.
    engine = llvm.create_lljit_compiler(machine, use_jit_link=True)
    library = llvm.JITLibraryBuilder().add_object_img(object_code).add_current_process().export_symbol(symbol)
    tracker = library.link(engine, symbol)
    address = tracker[symbol]
    if not address:
        raise CompileError(f"object code has no symbol {symbol!r}")
    return LoadedSegment(tracker, address) if threads == 1 else ThreadedSegment(tracker, address, threads)
