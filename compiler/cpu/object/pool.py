"""Threads that run kernels together.

Between two kernels the threads look for the next one for a while, in native code, before they sleep: to wake one takes
as long as many a kernel. There is one pool for each number of threads in a process.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

from tilewright.compiler.cpu.target import Target

_SPINS = 2000  # looks at a number before a thread sleeps or gives way, some 100 us
_LINE = 64  # bytes that no two threads should write
# The state, a line each: how many kernels were posted; the entry point of the last one and its two arguments; the
# kernel's counter; how many threads are inside the kernel, less _CLOSED while none may enter. A thread that comes when
# the others are done already is not waited for.
_STATE = 4 * _LINE
_CLOSED = 1 << 32
_FIELDS = f"""
  %ep = getelementptr i8, ptr %state, i64 {_LINE}
  %tp = getelementptr i8, ptr %state, i64 {_LINE + 8}
  %mp = getelementptr i8, ptr %state, i64 {_LINE + 16}
  %counter = getelementptr i8, ptr %state, i64 {2 * _LINE}
  %inside = getelementptr i8, ptr %state, i64 {3 * _LINE}"""
_CODE = f"""
declare i32 @sched_yield()

define i64 @tw_work(ptr %state, i64 %part, i64 %seen, i64 %spins) {{
entry:{_FIELDS}
  br label %head
head:
  %done = phi i64 [ %seen, %entry ], [ %posted, %leave ]
  br label %spin
spin:
  %n = phi i64 [ 0, %head ], [ %n1, %more ]
  %posted = load atomic i64, ptr %state seq_cst, align 8
  %new = icmp ne i64 %posted, %done
  br i1 %new, label %enter, label %more
more:
  PAUSE
  %n1 = add i64 %n, 1
  %again = icmp slt i64 %n1, %spins
  br i1 %again, label %spin, label %out
out:
  ret i64 %done
enter:
  %before = atomicrmw add ptr %inside, i64 1 seq_cst
  %open = icmp sge i64 %before, 0
  br i1 %open, label %run, label %leave
run:
  %what = load ptr, ptr %ep
  %table = load ptr, ptr %tp
  %memory = load ptr, ptr %mp
  call void %what(ptr %table, ptr %memory, i64 %part, ptr %counter)
  br label %leave
leave:
  %after = atomicrmw sub ptr %inside, i64 1 seq_cst
  br label %head
}}

define void @tw_post(ptr %state, ptr %what, ptr %table, ptr %memory, i64 %spins) {{
entry:{_FIELDS}
  store ptr %what, ptr %ep
  store ptr %table, ptr %tp
  store ptr %memory, ptr %mp
  store atomic i64 0, ptr %counter seq_cst, align 8
  %opened = atomicrmw add ptr %inside, i64 {_CLOSED} seq_cst
  %counted = atomicrmw add ptr %state, i64 1 seq_cst
  call void %what(ptr %table, ptr %memory, i64 0, ptr %counter)
  %closed = atomicrmw sub ptr %inside, i64 {_CLOSED} seq_cst
  br label %wait
wait:
  br label %spin
spin:
  %n = phi i64 [ 0, %wait ], [ %n1, %more ]
  %left = load atomic i64, ptr %inside seq_cst, align 8
  %ready = icmp sle i64 %left, -{_CLOSED}
  br i1 %ready, label %out, label %more
more:
  PAUSE
  %n1 = add i64 %n, 1
  %again = icmp slt i64 %n1, %spins
  br i1 %again, label %spin, label %yield
yield:
  %ignored = call i32 @sched_yield()
  br label %wait
out:
  ret void
}}
"""
_PAUSE = "call void @llvm.x86.sse2.pause()"


class Pool:
    """Threads that call an entry point together with the calling thread.

    Args:
        threads: their number, including the calling one.
    """

    def __init__(self, threads: int) -> None:
        self._work, self._post = _native()
        self._memory = ctypes.create_string_buffer(_STATE + _LINE)
        address = ctypes.addressof(self._memory)
        self._state = ctypes.c_void_p(address + -address % _LINE)
        ctypes.c_int64.from_address(self._state.value + 3 * _LINE).value = -_CLOSED  # type: ignore[operator]
        self._posted = 0
        self._awake = threading.Condition()
        self._alone = threading.Lock()
        for part in range(1, threads):
            name = f"tilewright-kernel-{part}"
            threading.Thread(target=self._serve, args=(part,), name=name, daemon=True).start()

    def run(self, entry: int, table: ctypes.Array[ctypes.c_void_p], workspace: int) -> None:
        """Calls `entry(table, workspace, part, counter)` here and in every other thread that arrives in time; returns
        when all have left it.
        """
        with self._alone:
            with self._awake:
                self._posted += 1
                self._awake.notify_all()
            self._post(self._state, entry, table, workspace, _SPINS)

    def _serve(self, part: int) -> None:
        done = 0
        while True:
            with self._awake:
                while self._posted == done:
                    self._awake.wait()
            done = self._work(self._state, part, done, _SPINS)


@lru_cache(maxsize=1)
def _native() -> tuple[Any, Any]:
    """The two native functions above, compiled."""
    Target.host()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.get_default_triple()
    declared = "declare void @llvm.x86.sse2.pause()\n" if triple.startswith(("x86", "i686")) else ""
    code = declared + _CODE.replace("PAUSE", _PAUSE if declared else "")
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(code), llvm.Target.from_triple(triple).create_target_machine()
    )
    engine.finalize_object()
    word, pointer = ctypes.c_int64, ctypes.c_void_p
    work = ctypes.CFUNCTYPE(word, pointer, word, word, word)(engine.get_function_address("tw_work"))
    post = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, pointer, word)(engine.get_function_address("tw_post"))
    _ENGINES.append(engine)
    return work, post


_ENGINES: list[llvm.ExecutionEngine] = []
_POOLS: dict[tuple[int, int], Pool] = {}
_MAKING = threading.Lock()


def pool_of(threads: int) -> Pool:
    """The pool of this process; a forked child has none of its parent's threads."""
    with _MAKING:
        key = os.getpid(), threads
        if key not in _POOLS:
            _POOLS[key] = Pool(threads)
        return _POOLS[key]
