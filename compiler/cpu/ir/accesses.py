"""Finds the parameters a function reads and writes, in its text alone."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from msgspec import Struct

from tilewright.compiler.errors import CompileError

_PARAMETERS = re.compile(r"@[\w.]+\(([^)]*)\)")
_POINTER = re.compile(r"ptr (?:noalias )?(%[\w.]+|@[\w.]+|null)")
_RESULT = re.compile(r"\s*(%[\w.]+) = (.*)")
_CALL = re.compile(r"call [^@]*(@[\w.]+)\((.*)\)")
#: Intrinsics with pointers, and their memory accesses; others have no pointers or are functions of the module.
_INTRINSICS = {
    "@llvm.masked.load": "read", "@llvm.x86.tileloadd64": "read", "@llvm.x86.ldtilecfg": "read",
    "@llvm.masked.store": "write", "@llvm.x86.tilestored64": "write", "@llvm.prefetch": "",
}  # fmt: skip


class Accesses(Struct, frozen=True):
    """Numbers of the parameters that a function reads, and of those that it writes."""

    read: frozenset[int]
    written: frozenset[int]


def accesses(name: str, functions: Mapping[str, str]) -> Accesses:
    """Finds the parameters that the function `name`, with @, reads and writes.

    Args:
        functions: definitions by name, with those of the functions that it calls.

    Raises:
        CompileError: the text has an instruction on pointers that is not known here.
    """
    text = functions[name]
    called = {other for other in _called(text) if other in functions}
    return _accesses(text, tuple((other, accesses(other, functions)) for other in sorted(called)))


def _called(text: str) -> set[str]:
    return {m.group(1) for m in _CALL.finditer(text)}


@functools.lru_cache(maxsize=512)
def _accesses(text: str, callees: tuple[tuple[str, Accesses], ...]) -> Accesses:
    head, *lines = text.splitlines()
    known = dict(callees)
    match = _PARAMETERS.search(head)
    assert match is not None
    parameters = [p.split()[-1] for p in match.group(1).split(", ")] if match.group(1) else []
    place: dict[str, int] = {p: k for k, p in enumerate(parameters)}  # of pointers into a parameter's memory
    read: set[int] = set()
    written: set[int] = set()
    for line in lines:
        if "ptr " not in line:
            continue
        found = _RESULT.match(line)
        result, what = (found.group(1), found.group(2)) if found else ("", line.strip())
        pointers = _POINTER.findall(what)
        bases = {place[p] for p in pointers if p in place}
        if what.startswith("getelementptr"):
            if pointers[0] in place:
                place[result] = place[pointers[0]]
        elif what.startswith("load"):
            read |= bases
        elif what.startswith("store") and len(pointers) == 1:
            written |= bases
        elif what.startswith("atomicrmw"):
            read |= bases
            written |= bases
        elif "call " in what:
            calls = _CALL.search(what)
            assert calls is not None
            reads, writes = _of_call(calls.group(1), calls.group(2), known, place)
            read |= reads
            written |= writes
        elif bases and not what.startswith("ptrtoint"):
            raise CompileError(f"kernel broken: what {what!r} does to memory is not known")
    return Accesses(frozenset(read), frozenset(written))


def _of_call(
    name: str, arguments: str, known: Mapping[str, Accesses], place: Mapping[str, int]
) -> tuple[set[int], set[int]]:
    """The parameters that a call reads and writes."""
    if name in known:
        given = [a.split()[-1] for a in arguments.split(", ")]
        at = lambda numbers: {place[given[n]] for n in numbers if given[n] in place}
        return at(known[name].read), at(known[name].written)
    bases = {place[p] for p in _POINTER.findall(arguments) if p in place}
    how = next((how for start, how in _INTRINSICS.items() if name.startswith(start)), None)
    if how is None and bases:
        raise CompileError(f"kernel broken: what {name} does to memory is not known")
    return (bases if how == "read" else set()), (bases if how == "write" else set())
