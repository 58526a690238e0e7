"""Python's side of `native/bridge.h`: functions that LiteRT's threads call, in the order of the struct there.

Each is called with the GIL taken and must not raise: an exception becomes a line for LiteRT's error.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.common import store
from tilewright.common.errors import TilewrightError
from tilewright.common.text import suggest
from tilewright.compiler.options import CompileOptions
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.litert.part import Part, Piece, Target
from tilewright.litert.plan import Plan, SeenNode, make_plan
from tilewright.litert.report import Report, log
from tilewright.runtime.backends import preset_of
from tilewright.runtime.devices import Device, Runner

ERROR_BYTES = 1024
OPTIONS = ("device", "config", "claim", "effort", "threads", "cache", "model")
"""Option names that `load_delegate(..., options=)` accepts."""

_Words = ctypes.POINTER(ctypes.c_int32)
_Places = ctypes.POINTER(ctypes.c_void_p)
_Sizes = ctypes.POINTER(ctypes.c_size_t)
_Names = ctypes.POINTER(ctypes.c_char_p)
_Text = ctypes.c_void_p  # an address: LiteRT's memory, or the buffer for an error
_Number = ctypes.c_int64
_Size = ctypes.c_size_t


_Function: Any = ctypes.CFUNCTYPE
_FUNCTIONS: list[tuple[str, Any]] = [
    ("open", _Function(_Number, _Names, _Names, _Size, _Text)),
    ("close", _Function(None, _Number)),
    ("plan", _Function(_Number, _Number, _Text, _Size, _Words, _Size, _Words, _Size, ctypes.POINTER(ctypes.c_uint8))),
    ("forget", _Function(None, _Number)),
    ("part", _Function(_Number, _Number, _Words, _Size, _Text)),
    ("release", _Function(None, _Number)),
    ("shape", _Function(_Number, _Number, _Words, _Size, _Words, _Size, _Text)),
    ("run", _Function(_Number, _Number, _Places, _Sizes, _Size, _Text)),
]


class Bridge(ctypes.Structure):
    """The functions the library calls."""

    _fields_ = _FUNCTIONS


@dataclass
class _Opened:
    """A delegate: where its parts run. `model` is for graphs whose file is not found in LiteRT's memory."""

    target: Target
    runner: Runner
    lock: threading.Lock
    model: bytes | None


_numbers = itertools.count(1)
_opened: dict[int, _Opened] = {}
_plans: dict[int, tuple[Plan, _Opened]] = {}
_parts: dict[int, Part] = {}


def alive() -> tuple[int, int, int]:
    """Returns the number of live delegates, plans and parts."""
    return len(_opened), len(_plans), len(_parts)


def bridge() -> Bridge:
    """The functions, to be kept as long as the library is connected."""
    functions = (_open, _close, _plan, _forget, _part, _release, _shape, _run)
    return Bridge(*(kind(function) for (_, kind), function in zip(_FUNCTIONS, functions, strict=True)))


def open_delegate(options: Mapping[str, str]) -> _Opened:
    """A delegate with the options LiteRT was given, all of them texts.

    Raises:
        TilewrightError: an option that is not accepted, or a device that is not there.
    """
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise UsageError(f"unknown option {unknown[0]!r}{suggest(unknown[0], OPTIONS)}; accepted: {', '.join(OPTIONS)}")
    name = options.get("device", "functional")
    config = NpuConfig.load(options["config"] if "config" in options else preset_of(name) or "base")
    chosen = CompileOptions(effort=_integer(options, "effort", 1), threads=_integer(options, "threads", 1))
    cache, claim = _one_of(options, "cache", "on", "off"), _one_of(options, "claim", "npu", "all")
    model = None
    if "model" in options:
        try:
            model = store.read(options["model"])
        except OSError as error:
            raise UsageError(f"{options['model']}: cannot be read: {error.strerror}") from None
    return _Opened(Target(config, chosen, cache == "on", claim == "all"), Device(name, config), threading.Lock(), model)


def _one_of(options: Mapping[str, str], name: str, usual: str, other: str) -> str:
    found = options.get(name, usual)
    if found not in (usual, other):
        raise UsageError(f"{name} must be {usual!r} or {other!r}, not {found!r}")
    return found


def _integer(options: Mapping[str, str], name: str, otherwise: int) -> int:
    try:
        return int(options.get(name, otherwise))
    except ValueError:
        raise UsageError(f"{name} must be a number, not {options[name]!r}") from None


# What the library calls.


def _open(names: Any, values: Any, count: int, error: int) -> int:
    with _errors_to(error):
        given = {names[i].decode(): values[i].decode() for i in range(count)}
        opened = open_delegate(given)
        return _numbered(_opened, opened)
    return 0


def _close(number: int) -> None:
    with _errors_to(None):
        opened = _opened.pop(number, None)
        if opened is not None:
            with opened.lock:
                opened.runner.close()


def _plan(
    number: int, model: int | None, size: int, nodes: Any, node_words: int, tensors: Any, tensor_words: int, take: Any
) -> int:
    report = Report()
    try:
        opened = _opened[number]
        data = ctypes.string_at(model, size) if model and size else opened.model
        if not tensor_words:
            raise UsageError("this version of LiteRT lays out its structures in another way")
        if data is None:
            raise UsageError("it has no constants, by which its file is found: give the option model=FILE")
        seen = list(_nodes(nodes[:node_words]))
        plan = make_plan(data, opened.target, seen, _shapes(tensors, tensor_words))
        report = plan.report
        for position, (index, _, _) in enumerate(seen):
            take[position] = index in plan.taken
        return _numbered(_plans, (plan, opened)) if plan.taken else 0
    except TilewrightError as error:
        report.problem = str(error)
    except Exception as error:  # LiteRT keeps its graph, whatever happens here
        report.problem = f"{type(error).__name__}: {error}"
        log.exception("a graph is left to LiteRT")
    except KeyboardInterrupt:
        report.problem = "interrupted"
        return -1
    finally:
        report.keep()
    return 0


def _forget(number: int) -> None:
    _plans.pop(number, None)


def _part(number: int, lists: Any, words: int, error: int) -> int:
    with _errors_to(error):
        plan, opened = _plans[number]
        nodes, inputs, outputs = _lists(lists[:words])
        piece = plan.pieces.get(tuple(sorted(nodes)))
        if piece is None or piece.outputs != tuple(outputs):  # LiteRT cuts in another way than it used to
            piece = Piece.of(plan.source, opened.target, plan.survey, nodes, outputs)
        given = [i for i in inputs if i >= 0]
        part = Part(piece, opened.runner, opened.lock, [given.index(i) for i in piece.inputs])
        return _numbered(_parts, part)
    return 0


def _release(number: int) -> None:
    _parts.pop(number, None)


def _shape(number: int, tensors: Any, words: int, result: Any, room: int, error: int) -> int:
    with _errors_to(error):
        found = _parts[number].shape(_shapes(tensors, words))
        flat = [word for shape in found for word in (len(shape), *shape)]
        if len(flat) > room:
            raise UsageError(f"{len(flat)} words of shapes, there is room for {room}")
        for position, word in enumerate(flat):
            result[position] = word
        return len(flat)
    return -1


def _run(number: int, places: Any, sizes: Any, count: int, error: int) -> int:
    with _errors_to(error):
        _parts[number].run([place or 0 for place in places[:count]], sizes[:count])
        return 1
    return 0


# Helpers.


def _numbered(table: dict[int, Any], value: Any) -> int:
    number = next(_numbers)
    table[number] = value
    return number


@contextlib.contextmanager
def _errors_to(error: int | None) -> Iterator[None]:
    """Writes an exception's line to the library's buffer, of ERROR_BYTES."""
    try:
        yield
        return
    except TilewrightError as problem:
        text = str(problem)
    except BaseException as problem:  # ours or the user's Ctrl-C: it cannot pass through LiteRT
        text = f"{type(problem).__name__}: {problem}".rstrip(": ")
        log.debug("in the delegate", exc_info=True)
    if error:
        line = " ".join(text.split()).encode()[: ERROR_BYTES - 1]
        ctypes.memmove(error, line + b"\0", len(line) + 1)
    else:
        log.warning("%s", text)


def _lists(words: list[int]) -> list[list[int]]:
    """Splits words into lists, each preceded by its length."""
    found, at = [], 0
    while at < len(words):
        end = at + 1 + words[at]
        found.append(words[at + 1 : end])
        at = end
    return found


def _nodes(words: list[int]) -> Iterator[SeenNode]:
    parts = iter(_lists(words))
    for (index,), inputs, outputs in zip(parts, parts, parts):
        yield index, tuple(inputs), tuple(outputs)


def _shapes(tensors: Any, words: int) -> Mapping[int, tuple[int, ...]]:
    return dict(enumerate(tuple(shape) for shape in _lists(tensors[:words])))
