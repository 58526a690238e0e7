"""Strings, on arrays of Python strings."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tilewright.dynamic.host.operators import HostNode, host_op
from tilewright.dynamic.values import Value, describe, strings


def _strings(call: HostNode, values: Sequence[Value], index: int = 0) -> np.ndarray:
    value = values[index]
    if not isinstance(value, np.ndarray) or value.dtype != np.object_:
        raise call.error(f"needs a tensor of strings, not {describe(value)}")
    return value


def _map(function: Any, array: np.ndarray, dtype: Any = np.object_) -> np.ndarray:
    """Applies `function` to every element."""
    out = np.empty(array.shape, dtype)
    for index in np.ndindex(*array.shape):
        out[index] = function(array[index])
    return out


@host_op("Constant")
def constant(call: HostNode, values: list[Value]) -> list[Value]:
    ((key, value),) = call.attrs.items()
    if key not in ("value", "value_string", "value_strings"):
        raise call.error(f"{key} is no constant of strings")
    return [strings(np.asarray(value, np.object_))]


@host_op("StringSplit")
def string_split(call: HostNode, values: list[Value]) -> list[Value]:
    """Splits strings along a new last axis, padded with empty strings; also returns the number of pieces of each."""
    x, limit = _strings(call, values), int(call.attrs.get("maxsplit", -1))
    pieces = [text.split(call.attrs.get("delimiter") or None, limit) for text in x.reshape(-1)]
    longest = max(map(len, pieces), default=0)
    out = np.full((len(pieces), longest), "", np.object_)
    for row, found in zip(out, pieces):
        row[: len(found)] = found
    counts = np.array([len(p) for p in pieces], np.int64)
    return [out.reshape(*x.shape, longest), counts.reshape(x.shape)]


_CASES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}


@host_op("StringNormalizer")
def string_normalizer(call: HostNode, values: list[Value]) -> list[Value]:
    """Drops stop words, then changes case; one empty string where nothing is left."""
    x, attrs = _strings(call, values), call.attrs
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise call.error(f"takes shapes [C] and [1, C], not {list(x.shape)}")
    change = _CASES.get(attrs.get("case_change_action", "NONE"))
    if change is None:
        raise call.error(f"case_change_action={attrs['case_change_action']!r}; accepted: {', '.join(_CASES)}")
    fold = _CASES["NONE" if attrs.get("is_case_sensitive", 0) else "LOWER"]
    stops = {fold(word) for word in attrs.get("stopwords", [])}
    kept = [change(word) for word in x.reshape(-1) if fold(word) not in stops] or [""]
    return [strings(kept).reshape((1, -1) if x.ndim == 2 else -1)]


@host_op("Cast", "CastLike")
def cast(call: HostNode, values: list[Value]) -> list[Value]:
    """Casts numbers to strings in their shortest decimal form, and back."""
    x = np.asarray(values[0])
    to = call.attrs.get("to")
    if call.op == "CastLike":
        like = np.asarray(values[1]).dtype
        to = onnx.TensorProto.STRING if like == np.object_ else helper.np_dtype_to_tensor_dtype(like)
    to = getattr(onnx.TensorProto, to) if isinstance(to, str) else int(to or 0)
    if to == onnx.TensorProto.STRING:
        return [x if x.dtype == np.object_ else strings(x.astype(np.float32).astype(np.str_))
                if x.dtype.kind == "V" or x.dtype.name == "bfloat16" else strings(x.astype(np.str_))]  # fmt: skip
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(to))
    try:
        if dtype.kind in "iu":
            return [_map(int, _strings(call, values), dtype)]
        return [_map(float, _strings(call, values), np.float64).astype(dtype)]
    except (ValueError, OverflowError) as error:
        raise call.error(f"cannot make {dtype} of a string: {error}") from None


@host_op("TfIdfVectorizer")
def tf_idf(call: HostNode, values: list[Value]) -> list[Value]:
    """Counts n-grams, their elements 1 to max_skip_count + 1 apart; single words are counted once."""
    attrs, x = call.attrs, np.asarray(values[0])
    shortest, longest = int(attrs["min_gram_length"]), int(attrs["max_gram_length"])
    column = dict(_pool(call))
    width = max(attrs["ngram_indexes"]) + 1
    found = np.zeros((1 if x.ndim == 1 else x.shape[0], width), np.float32)
    weight = np.zeros(width, np.float32)
    weight[attrs["ngram_indexes"]] = attrs.get("weights") or 1.0
    for row, words in zip(found, x.reshape(found.shape[0], -1).tolist()):
        grams: Counter[tuple[Any, ...]] = Counter()
        for n, apart in itertools.product(range(shortest, longest + 1), range(1, int(attrs["max_skip_count"]) + 2)):
            if n > 1 or apart == 1:
                starts = range(len(words) - apart * (n - 1))
                grams.update(tuple(words[s : s + apart * (n - 1) + 1 : apart]) for s in starts)
        for gram, count in grams.items():
            if gram in column:
                row[column[gram]] += count
    if attrs["mode"] == "IDF":
        found = np.where(found > 0, weight, np.float32(0))
    elif attrs["mode"] == "TFIDF":
        found = found * weight
    elif attrs["mode"] != "TF":
        raise call.error(f"mode={attrs['mode']!r}; accepted: TF, IDF, TFIDF")
    return [found.reshape(*x.shape[:-1], width)]


def _pool(call: HostNode) -> list[tuple[tuple[Any, ...], int]]:
    """Every n-gram of the pool and the column it is counted in."""
    attrs = call.attrs
    words = attrs.get("pool_strings") or attrs.get("pool_int64s") or []
    ends = [*attrs["ngram_counts"][1:], len(words)]
    grams = [
        tuple(words[at : at + n])
        for n, (start, end) in enumerate(zip(attrs["ngram_counts"], ends), 1)
        for at in range(start, end, n)
    ]
    if len(grams) != len(attrs["ngram_indexes"]):
        raise call.error(f"{len(grams)} n-grams in the pool, {len(attrs['ngram_indexes'])} ngram_indexes")
    return list(zip(grams, attrs["ngram_indexes"]))


_UNUSED = {"strings": "_Unused", "int64s": -1, "floats": -0.0}
_DEFAULT = {"strings": "default_string", "int64s": "default_int64", "floats": "default_float"}
_DTYPE: dict[str, Any] = {"strings": np.object_, "int64s": np.int64, "floats": np.float32}


@host_op("LabelEncoder", domain="ai.onnx.ml")
def label_encoder(call: HostNode, values: list[Value]) -> list[Value]:
    """Replaces every element by its value in a table; NaN is a key like others."""
    attrs, x = call.attrs, np.asarray(values[0])
    if "classes_strings" in attrs:
        return _by_class(call, attrs["classes_strings"], x)
    keys, _, _ = _table_side(call, "keys")
    results, default, dtype = _table_side(call, "values")
    if len(keys) != len(results):
        raise call.error(f"{len(keys)} keys for {len(results)} values")
    table = dict(zip(map(_key, keys), results))
    return [_map(lambda v: table.get(_key(v), default), x, dtype)]


def _key(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return "nan" if isinstance(value, float) and value != value else value


def _table_side(call: HostNode, side: str) -> tuple[list[Any], Any, Any]:
    """Keys or values of the table, what stands for unknown keys, and the type."""
    attrs = call.attrs
    tensor = attrs.get(f"{side}_tensor")
    if tensor is not None:
        flat = strings(tensor) if tensor.dtype.kind in "OUS" else tensor
        kind = "strings" if flat.dtype == np.object_ else "int64s" if flat.dtype.kind in "iu" else "floats"
        given = attrs.get("default_tensor")
        default = _UNUSED[kind] if given is None else np.asarray(given).reshape(-1)[0]
        return flat.reshape(-1).tolist(), default.decode() if isinstance(default, bytes) else default, flat.dtype
    for kind, dtype in _DTYPE.items():
        if f"{side}_{kind}" in attrs:
            entries = attrs[f"{side}_{kind}"]
            entries = np.asarray(entries, np.float32).tolist() if kind == "floats" else entries
            return entries, attrs.get(_DEFAULT[kind], _UNUSED[kind]), dtype
    raise call.error(f"has no {side}")


@host_op("CategoryMapper", domain="ai.onnx.ml")
def category_mapper(call: HostNode, values: list[Value]) -> list[Value]:
    attrs = call.attrs
    return _by_class(call, attrs["cats_strings"], np.asarray(values[0]), attrs["cats_int64s"])


def _by_class(call: HostNode, names: list[str], x: np.ndarray, numbers: list[int] | None = None) -> list[Value]:
    """Maps names to numbers (positions, if none are given) or numbers to names, by the type of `x`."""
    numbers = list(range(len(names))) if numbers is None else numbers
    if x.dtype == np.object_:
        to_number, missing = dict(zip(names, numbers)), call.attrs.get("default_int64", -1)
        return [_map(lambda v: to_number.get(v, missing), x, np.int64)]
    to_name, unknown = dict(zip(numbers, names)), call.attrs.get("default_string", "_Unused")
    return [_map(lambda v: to_name.get(int(v), unknown), x)]
