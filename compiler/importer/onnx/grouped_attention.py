"""GroupQueryAttention of com.microsoft: causal attention with a cache of keys and values, RoPE, windows and sinks."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.importer.onnx.attention_core import (
    MS,
    cast,
    default_scale,
    heads,
    joined,
    scores,
    shaped,
    weighted,
)
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.importer.onnx.rotary import consecutive_positions, rotated

_CPU_LEAVES_OUT = {12: "k_scale", 13: "v_scale", 14: "q_norm_weight", 15: "k_norm_weight"}


class _Lengths(Struct, frozen=True):
    """The positions of the new keys of each sequence.

    Attributes:
        total: keys that scores have columns for, `total_sequence_length`.
        past: tensor [batch] of the keys before the new ones, int64.
        prompt: True if the new keys are the only ones.
        even: True if all sequences are known to have `total` keys, so that `past` is a constant of equal numbers.
    """

    batch: int
    new: int
    total: int
    past: str
    prompt: bool
    even: bool


@handles("GroupQueryAttention", domain=MS)
def group_query_attention(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports GroupQueryAttention. Inputs query (or q, k and v side by side), key, value, past_key, past_value,
    seqlens_k, total_sequence_length (a constant at compile time: it decides shapes), cos_cache, sin_cache,
    position_ids, attention_bias, head_sink; outputs output, present_key, present_value, output_qk.

    Rows of present_key and present_value behind a sequence's own are 0, as in onnxruntime where past and present are
    separate tensors.
    """
    _check(node)
    q, k, v = _heads(builder, node)
    lengths = _lengths(builder, node, builder.shape(q)[0], builder.shape(q)[2])
    if node.attrs.get("do_rotary", 0):
        q, k = _rotated(builder, node, q, k, lengths)
    kv = []
    for index, new in ((3, k), (4, v)):
        present = _present(builder, node, node.input(index), new, lengths)
        if node.output(index - 2):
            builder.emit("Identity", [present], [node.output(index - 2)])
        kv.append(_columns(builder, present, lengths.total))
    _attend(builder, node, q, kv[0], kv[1], lengths)


def _check(node: OnnxNode) -> None:
    node.accept("sliding_window_cache", 0)
    node.accept("causal", 0, 1)
    for name in ("k_quant_type", "v_quant_type"):
        node.accept(name, "", "NONE")
    node.accept("qk_output", 0, 1, 2)
    window = int(node.attrs.get("local_window_size", -1))
    if window != -1 and (window < 1 or not node.attrs.get("causal", 1)):
        raise UnsupportedError(
            f"{node.label}: local_window_size={window} is not supported; -1 and, where causal is 1, 1 and more are"
        )
    for index, what in _CPU_LEAVES_OUT.items():
        if node.input(index):
            raise UnsupportedError(f"{node.label}: {what} {node.input(index)!r} is not supported; it must be left out")
    for first, second in ((1, 2), (3, 4), (7, 8)):
        if bool(node.input(first)) != bool(node.input(second)):
            raise CompileError(f"{node.label}: inputs {first} and {second} belong together")


def _heads(builder: OnnxBuilder, node: OnnxNode) -> tuple[str, str, str]:
    count, shared = node.positive("num_heads", 0), node.positive("kv_num_heads", 0)
    if count % shared:
        raise CompileError(f"{node.label}: kv_num_heads={shared} must divide num_heads={count}")
    if node.input(1):
        parts = [heads(builder, node, node.input(i), n) for i, n in enumerate((count, shared, shared))]
    else:
        parts = [builder.fresh() for _ in range(3)]
        whole = heads(builder, node, node.input(0), count + 2 * shared)
        builder.emit("Split", [whole, builder.ints("sizes", [count, shared, shared])], parts, {"axis": 1})
    q, k, v = parts
    if {builder.shape(k), builder.shape(v)} != {(builder.shape(q)[0], shared, *builder.shape(q)[2:])}:
        found = ", ".join(str(list(builder.shape(x))) for x in (q, k, v))
        raise CompileError(f"{node.label}: heads of q, k and v do not fit: {found}")
    return q, k, v


def _lengths(builder: OnnxBuilder, node: OnnxNode, batch: int, new: int) -> _Lengths:
    total = int(builder.need_const(node.input(6), "total_sequence_length").reshape(-1)[0])
    if total < new:
        raise CompileError(f"{node.label}: total_sequence_length={total} is less than the {new} of the query")
    ends = shaped(builder, cast(builder, node.input(5), np.int64), [-1])
    if builder.shape(ends) != (batch,):
        raise CompileError(f"{node.label}: seqlens_k has {builder.shape(ends)[0]} numbers for {batch} sequences")
    prompt, given = total == new, builder.const(ends)
    least = 0 if prompt else new - 1
    if given is not None and not np.all((given >= least) & (given < total)):
        raise CompileError(f"{node.label}: seqlens_k {given.tolist()} must lie in {least}..{total - 1}")
    builder.graph.limits[ends] = least, total - 1
    if prompt:
        return _Lengths(batch, new, total, builder.ints("past", [0] * batch), True, True)
    past = builder.emit("Sub", [ends, builder.ints("less", [new - 1])])
    known = builder.const(past)
    return _Lengths(batch, new, total, past, False, known is not None and bool(np.all(known == total - new)))


def _rotated(builder: OnnxBuilder, node: OnnxNode, q: str, k: str, lengths: _Lengths) -> tuple[str, str]:
    """Rotates q and k by RoPE. Only the first position of a prompt is used."""
    cos, sin, given = node.input(7), node.input(8), node.input(9)
    if not cos:
        raise CompileError(f"{node.label}: do_rotary=1 needs cos_cache and sin_cache")
    if given and lengths.prompt:
        first = builder.emit(
            "Slice", [shaped(builder, given, [-1]), *(builder.ints("bound", [n]) for n in (0, 1, 0, 1))]
        )
        positions = consecutive_positions(builder, first, lengths.batch, lengths.new)
    else:
        positions = given or consecutive_positions(builder, lengths.past, lengths.batch, lengths.new)
    interleaved = bool(node.attrs.get("rotary_interleaved", 0))
    turn = lambda x: rotated(builder, node, x, cos, sin, positions, interleaved)
    return turn(q), turn(k)


def _present(builder: OnnxBuilder, node: OnnxNode, past: str, new: str, lengths: _Lengths) -> str:
    """Emits the cache [batch, heads, rows, head_size]: each sequence's own rows, the new ones, then zeros."""
    batch, count, _, size = builder.shape(new)
    before = builder.shape(past)[2] if past and len(builder.shape(past)) == 4 else 0
    if past and (
        builder.shape(past) != (batch, count, before, size) or builder.tensor(past).dtype != _kind(builder, new)
    ):
        raise UnsupportedError(
            f"{node.label}: past {past!r} of {builder.tensor(past).dtype} {list(builder.shape(past))} is not "
            f"supported; {_kind(builder, new)} [{batch}, {count}, rows, {size}] is"
        )
    rows = max(lengths.total, before)
    if lengths.even:
        kept = lengths.total - lengths.new
        if kept > before:
            raise CompileError(f"{node.label}: {kept} keys before the new ones, of which the past holds {before}")
        parts = [_columns(builder, past, kept)] if kept else []
        rest = [_zeros(builder, new, rows - lengths.total)] if rows > lengths.total else []
        parts = [*parts, new, *rest]
        return builder.emit("Concat", parts, attrs={"axis": 2}) if len(parts) > 1 else new
    source = builder.emit("Concat", [*([past] if before else []), new, _zeros(builder, new, 1)], attrs={"axis": 2})
    place = builder.ints("row", range(rows))
    start = shaped(builder, lengths.past, [batch, 1])
    moved = builder.emit("Sub", [builder.emit("Add", [place, builder.ints("past", [before])]), start])
    end = builder.emit("Add", [start, builder.ints("new", [lengths.new])])
    zero = builder.ints("zeros", [before + lengths.new])
    index = builder.emit("Where", [builder.emit("Less", [place, end]), moved, zero])
    index = builder.emit("Where", [builder.emit("Less", [place, start]), place, index])
    if batch == 1:
        return builder.emit("Gather", [source, shaped(builder, index, [rows])], attrs={"axis": 2})
    length = before + lengths.new + 1
    flat = shaped(builder, builder.emit("Transpose", [source], attrs={"perm": [0, 2, 1, 3]}), [-1, count, size])
    offsets = builder.constant("sequence", np.arange(batch, dtype=np.int64)[:, None] * length)
    found = builder.emit("Gather", [flat, builder.emit("Add", [index, offsets])], attrs={"axis": 0})
    return builder.emit("Transpose", [found], attrs={"perm": [0, 2, 1, 3]})


def _attend(builder: OnnxBuilder, node: OnnxNode, q: str, k: str, v: str, lengths: _Lengths) -> None:
    """Emits Softmax over the visible keys: those up to the query, in a window of the last `local_window_size`."""
    dtype = builder.tensor(q).dtype
    found = scores(builder, q, k, default_scale(node, builder.shape(q)[3]))
    cap = float(node.attrs.get("softcap", 0.0))
    if cap > 0:
        limit = builder.constant("softcap", cap, np.float32)
        found = builder.emit("Mul", [builder.emit("Tanh", [builder.emit("Div", [found, limit])]), limit])
    if node.input(10):
        found = builder.emit("Add", [found, cast(builder, node.input(10), np.float32)])
    seen = _visible_keys(builder, node, lengths)
    lowest = builder.constant("unseen", -np.inf, np.float32)
    if int(node.attrs.get("qk_output", 0)) == 1 and node.output(3):
        none = builder.constant("unseen", 0, np.float32)
        shown = builder.emit("Where", [seen, found, none]) if seen else found
        builder.bind(cast(builder, shown, dtype), node.output(3))
    found = builder.emit("Where", [seen, found, lowest]) if seen else found
    sink = node.input(11)
    if node.attrs.get("smooth_softmax", 0) == 1 or sink:
        count = builder.shape(found)[1]
        column = shaped(builder, cast(builder, sink, np.float32), [1, count, 1, 1]) if sink else ""
        column = column or builder.constant("sink", np.zeros((1, count, 1, 1), np.float32))
        column = builder.emit("Expand", [column, builder.ints("shape", [*builder.shape(found)[:3], 1])])
        found = builder.emit("Concat", [found, column], attrs={"axis": -1})
    probabilities = builder.emit("Softmax", [found], attrs={"axis": -1})
    if builder.shape(found)[3] > lengths.total:
        probabilities = _columns(builder, probabilities, lengths.total, 3)
    if int(node.attrs.get("qk_output", 0)) == 2 and node.output(3):
        builder.bind(cast(builder, probabilities, dtype), node.output(3))
    builder.bind(cast(builder, joined(builder, weighted(builder, probabilities, v)), dtype), node.output(0))


def _visible_keys(builder: OnnxBuilder, node: OnnxNode, lengths: _Lengths) -> str:
    """The keys visible to each query, [batch or 1, 1, queries, keys] of bool; "" where all queries see all keys."""
    place, causal = np.arange(lengths.total), bool(node.attrs.get("causal", 1))
    window = int(node.attrs.get("local_window_size", -1))
    if not causal and lengths.even and not lengths.prompt:
        return ""
    if not causal:
        end = builder.emit("Add", [cast(builder, node.input(5), np.int64), builder.ints("one", [1])])
        return builder.emit("Less", [builder.constant("key", place), shaped(builder, end, [-1, 1, 1, 1])])
    steps = np.arange(lengths.new)[:, None]
    if lengths.even:
        own = steps + lengths.total - lengths.new
        near = (place <= own) & ((place > own - window) | (window < 0))
        return "" if near.all() else builder.constant("seen", near[None, None])
    own_place = builder.emit("Add", [shaped(builder, lengths.past, [-1, 1, 1, 1]), builder.constant("step", steps)])
    key = builder.constant("key", place)
    seen = builder.emit("LessOrEqual", [key, own_place])
    if window > 0:
        oldest = builder.emit("Sub", [own_place, builder.ints("window", [window])])
        seen = builder.emit("And", [seen, builder.emit("Greater", [key, oldest])])
    return seen


def _columns(builder: OnnxBuilder, x: str, count: int, axis: int = 2) -> str:
    if builder.shape(x)[axis] == count:
        return x
    return builder.emit("Slice", [x, *(builder.ints("bound", [n]) for n in (0, count, axis, 1))])


def _zeros(builder: OnnxBuilder, like: str, rows: int) -> str:
    batch, count, _, size = builder.shape(like)
    return builder.constant("zeros", np.zeros((batch, count, rows, size), _kind(builder, like)))


def _kind(builder: OnnxBuilder, x: str) -> np.dtype:
    return builder.tensor(x).dtype
