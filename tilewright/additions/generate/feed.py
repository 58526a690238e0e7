"""The entry points of a decoder, and what is fed to their inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from tilewright.common.text import one_line
from tilewright.compiler.graph.states import paired_by_name
from tilewright.compiler.importer.onnx.inputs import size_of
from tilewright.errors import UsageError
from tilewright.isa.program import TensorInfo

PREFILL, DECODE = "prefill", "decode"
"""Entry points: many tokens of a prompt in one run, and one token."""
LARGE_VOCABULARY = 4096
"""Tokens from which on a run of a prompt computes the logits of its last token alone."""


class Feed:
    """The inputs and outputs of one decoder entry point: token numbers, perhaps their positions, and logits."""

    def __init__(self, name: str, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> None:
        named = token_inputs(name, [t.name for t in inputs])
        by_name = {t.name: t for t in inputs}
        self._ids = by_name[named.ids]
        self._positions = by_name.get(named.positions or "")
        self._mask = by_name.get(named.mask or "")
        self.tokens = int(np.prod(self._ids.shape))
        if len(outputs) != 1 or not outputs[0].shape or self.tokens != (self._ids.shape or (1,))[-1]:
            found = ", ".join(f"{t.name} {list(t.shape)}" for t in [self._ids, *outputs])
            raise UsageError(f"{name} is no language model of one sequence with logits as its one output: {found}")
        self._logits = outputs[0]
        self.words = self._logits.shape[-1]
        rows = int(np.prod(self._logits.shape[:-1]))
        if rows not in (1, self.tokens):
            raise UsageError(
                f"{name} gives logits of {rows} of the {self.tokens} tokens of a run; runs of a prompt need those of "
                "every token or of the last one: with --prefill 1 (prefill=1) each run takes one token"
            )
        self.of_each = rows == self.tokens
        """Whether there are logits of every token; else of the last one, behind which no padding stands."""

    def inputs(self, tokens: Sequence[int], position: int) -> dict[str, np.ndarray]:
        """Pads the tokens to the entry point's length. The cache rows of the padding are overwritten before they are
        read."""
        padded = np.zeros(self.tokens, np.int64)
        padded[: len(tokens)] = tokens
        found = {self._ids.name: padded.reshape(self._ids.shape).astype(self._ids.dtype)}
        if self._positions is not None:
            wanted = self._positions
            places = position + np.arange(int(np.prod(wanted.shape)))
            found[wanted.name] = places.reshape(wanted.shape).astype(wanted.dtype)
        if self._mask is not None:
            found[self._mask.name] = mask(self._mask.shape, self._mask.dtype, position + self.tokens)
        return found

    def logits(self, outputs: Mapping[str, np.ndarray], tokens: int) -> np.ndarray:
        """Logits behind each of the first tokens of a run, or behind its last alone, float32 [tokens, vocabulary]."""
        return np.asarray(outputs[self._logits.name].reshape(-1, self.words)[:tokens])


def cache_size(shapes: Iterable[Sequence[object]]) -> int:
    """Positions that a cache of tensors [1, heads, positions, depth] holds; 0 where it leaves them open."""
    places = [shape[2] if len(shape) > 2 else 0 for shape in shapes]
    return min((size if isinstance(size, int) else 0 for size in places), default=0)


@dataclass(frozen=True)
class TokenInputs:
    """Names of inputs: token numbers, perhaps their positions, and perhaps a mask of the positions that hold tokens."""

    ids: str
    positions: str | None
    mask: str | None


def token_inputs(name: str, inputs: Sequence[str]) -> TokenInputs:
    """The inputs of a language model beside its cache.

    Raises:
        UsageError: inputs of other kinds.
    """
    positions = [n for n in inputs if "position" in n or "pos" in n.split("_")]
    masks = [n for n in inputs if n not in positions and "mask" in n.split("_")]
    ids = [n for n in inputs if n not in positions and n not in masks]
    if len(ids) != 1 or len(positions) > 1 or len(masks) > 1:
        raise UsageError(
            f"{name} takes {', '.join(inputs) or 'no inputs'} beside its cache; a language model takes token numbers "
            "(input_ids) and may take their positions (position_ids) and a mask of tokens (attention_mask)"
        )
    return TokenInputs(ids[0], *(found[0] if found else None for found in (positions, masks)))


def mask(shape: Sequence[int], dtype: str | np.dtype, tokens: int) -> np.ndarray:
    """A mask of so many tokens, the rest of [1, positions] 0."""
    return (np.arange(int(np.prod(shape))) < tokens).reshape(shape).astype(dtype)


def entry_shapes(model: str | Path | onnx.ModelProto, prefill: int | None) -> dict[str, dict[str, list[int]]]:
    """Shapes of the inputs of each entry point that a decoder can have.

    Args:
        prefill: tokens of a run of the prompt; None for as many as the cache holds.

    Raises:
        UsageError: it cannot be read, has no cache, or other inputs, or a size that does not fit the cache.
    """
    try:
        given = onnx.load(str(model), load_external_data=False) if isinstance(model, str | Path) else model
    except (DecodeError, OSError) as error:
        raise UsageError(f"{model}: not an ONNX model, or damaged: {one_line(error)}") from None
    graph, name = given.graph, Path(model).name if isinstance(model, str | Path) else given.graph.name
    weights = {x.name for x in graph.initializer}
    sizes = {x.name: [size_of(d) for d in x.type.tensor_type.shape.dim] for x in graph.input if x.name not in weights}
    cache = paired_by_name(list(sizes), [x.name for x in graph.output])
    if not cache:
        raise UsageError(
            f"{name} has no cache: no input called past... with an output called present... ({', '.join(sizes)})"
        )
    fed = token_inputs(name, [n for n in sizes if n not in cache])
    most = cache_size(sizes[n] for n in cache)
    if not most or any(not isinstance(size, int) for n in cache for size in sizes[n][1:]):
        raise UsageError(f"{name} leaves the size of its cache open; export it with a static cache")
    if prefill is not None and not 1 <= prefill <= most:
        raise UsageError(f"a run of the prompt takes 1..{most} tokens, the size of the cache of {name}, not {prefill}")

    def shape(n: str, tokens: int) -> list[int]:
        """The shape of an input; an open last size is that of the tokens, or of a mask that of the cache."""
        last = most if n == fed.mask else tokens
        return [size if isinstance(size, int) else (last if axis == len(sizes[n]) - 1 else 1)
                for axis, size in enumerate(sizes[n])]  # fmt: skip

    def shapes(tokens: int) -> dict[str, list[int]]:
        named = [n for n in (fed.ids, fed.positions, fed.mask) if n is not None]
        return {n: shape(n, tokens) for n in named}

    many = prefill or most
    open_ = not isinstance(sizes[fed.ids][-1] if sizes[fed.ids] else 1, int)
    found = {PREFILL: shapes(many)} if open_ and many > 1 else {}
    return found | {DECODE: shapes(1)}


def large_logits(model: str | Path | onnx.ModelProto) -> list[str]:
    """The output of logits if the vocabulary is large: those of a whole prompt would take as long as some layers."""
    given = onnx.load(str(model), load_external_data=False) if isinstance(model, str | Path) else model
    sizes = {x.name: [size_of(d) for d in x.type.tensor_type.shape.dim] for x in given.graph.output}
    large = [n for n, d in sizes.items() if not n.startswith("present") and d and isinstance(d[-1], int)]
    return [n for n in large if int(sizes[n][-1] or 0) >= LARGE_VOCABULARY]


def positions(entries: Mapping[str, Mapping[str, Sequence[int]]]) -> list[str]:
    """The inputs of positions, which rise by one, among those of entry points."""
    found = {token_inputs("", list(shapes)).positions for shapes in entries.values()}
    return sorted(name for name in found if name is not None)
