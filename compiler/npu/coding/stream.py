"""Streams of coded weights, encoded by C++ that is built on first use."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from tilewright.common.native import Library, shared_library
from tilewright.compiler.npu.coding.table import CodeTable
from tilewright.isa.codes import PART_BITS, QUEUE_BEATS, RESERVE, SLOT_BITS, START_ROUNDS, WORD_BITS, words_per_cycle
from tilewright.isa.config import NpuConfig

_SOURCE = Path(__file__).resolve().parent / "stream.cpp"


class Stream(Struct, frozen=True):
    """The stream of consecutive LOAD_CODEDs.

    Attributes:
        data: bytes in whole bus beats.
        beats: bus beats of each instruction.
    """

    data: bytes
    beats: list[int]


@functools.cache
def _library() -> ctypes.CDLL:
    """Loads the shared library of the encoder, built on first use.

    Raises:
        BuildError: there is no C++ compiler.
    """
    library = ctypes.CDLL(str(shared_library(source())))
    library.tw_encode_stream.restype = ctypes.c_int64
    return library


def source() -> Library:
    """The library of the encoder."""
    return Library(_SOURCE, ["-O3", "-Wall"], [_SOURCE], group="compiler", name="coding", title="the weight coder")


def encode_stream(config: NpuConfig, loads: Sequence[CodeTable | np.ndarray]) -> Stream:
    """Encodes tables and weights into the stream that LOAD_CODEDs read.

    Args:
        config: the machine.
        loads: for each instruction a table, or int8 tiles in the order of WGT, whose values all have a code in the
            table before them.

    Raises:
        BuildError: there is no C++ compiler.
    """
    lanes, width = config.weight_codes, words_per_cycle(config)
    pieces = [np.ascontiguousarray(p).reshape(-1).view(np.uint8) for p in loads if not isinstance(p, CodeTable)]
    tables = [t for t in loads if isinstance(t, CodeTable)]
    weights = np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)
    numbers = iter(range(len(tables)))
    rows = np.array(
        [(next(numbers), len(p.words)) if isinstance(p, CodeTable) else (-1, p.size // lanes) for p in loads], np.int64
    )
    words, symbols = (np.concatenate([getattr(t, name) for t in tables]) for name in ("words", "symbols"))
    spare = (1 + QUEUE_BEATS) * width + (RESERVE + START_ROUNDS) * lanes * (1 + len(tables))
    stream = np.zeros(weights.size + words.size + spare, np.uint16)
    beats = np.zeros(len(loads), np.int64)
    rule = np.array([SLOT_BITS, WORD_BITS, PART_BITS, START_ROUNDS, RESERVE, QUEUE_BEATS], np.uint32)

    def at(array: np.ndarray) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    written = _library().tw_encode_stream(
        at(weights), lanes, width, at(rule), at(rows), ctypes.c_int64(len(loads)), at(words), at(symbols), at(stream),
        at(beats),
    )  # fmt: skip
    assert written >= 0, "a table without a symbol of many slots"
    return Stream(stream[:written].astype("<u2").tobytes(), beats.tolist())
