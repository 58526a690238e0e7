"""A small language model with a KV cache, as decoders are exported: RoPE, RMSNorm, SwiGLU, grouped-query attention.

One graph serves prefill and decode: the number of tokens of a run, "sequence", is open. Keys and values of past tokens
come in as `past_key_values.L.key` and `.value`, and go out, with those of the new tokens put in their places, as
`present.L.key` and `.value` of the same shape. Token p lies in row p mod `window`, so that a model can go on for
ever with the last `window` tokens in view. A row is seen by token p if its number is at most p.
"""

from __future__ import annotations

import json
import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tilewright.zoo.builder import IR_VERSION, OPSET, Builder, Value

CHARACTERS = "\n" + "".join(sorted(c for c in string.printable if " " <= c <= "~"))
"""The vocabulary by default: a token a character."""

WHOLE = "whole"
"""Key in the metadata of a model of which everything between a token and its logits is to have 8 bits, or has."""

SEQUENCE = "sequence"
"""Name of the open size: tokens of a run."""

_ANY: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a decoder.

    Attributes:
        layers, width, hidden: depth, and features of a token outside and inside of the SwiGLU.
        heads, kv_heads: of queries, and of keys and values.
        window: tokens whose keys and values are kept.
        context: positions that the tables of RoPE have.
        vocabulary: text of each token.
        base: of the rates at which the pairs of RoPE turn.
        head: features of a head; None for width / heads.
        normed: True if each head of queries and keys is normalised before RoPE, as in Qwen3.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    window: int
    context: int
    vocabulary: Sequence[str]
    base: float = 10000.0
    head: int | None = None
    normed: bool = False

    def __post_init__(self) -> None:
        if self.head is None and (self.width % self.heads or self.width // self.heads % 2):
            raise ValueError(f"width must be an even multiple of the {self.heads} heads, not {self.width!r}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads must be a multiple of the {self.kv_heads} kv_heads, not {self.heads!r}")
        if not 1 <= self.window <= self.context:
            raise ValueError(f"window must be 1..{self.context}, the context, not {self.window!r}")

    @property
    def depth(self) -> int:
        """Features of a head."""
        return self.width // self.heads if self.head is None else self.head


@dataclass
class Weights:
    """float32 weights of a decoder, for tokens as rows.

    Attributes:
        embedding: [vocabulary, width]; the head is its transpose.
        norm: [width], before the head.
        layers: of each layer by name: `attention_norm`, `feed_norm` [width], `query`, `key`, `value`, `output`, `gate`,
            `up`, `down` [inputs, outputs]; with normed heads `query_norm`, `key_norm` [depth].
    """

    embedding: np.ndarray
    norm: np.ndarray
    layers: list[dict[str, np.ndarray]]

    @staticmethod
    def random(shape: Shape, seed: int) -> Weights:
        """Seeded weights whose activations have about unit variance."""
        random = np.random.default_rng(seed)

        def dense(inputs: int, outputs: int) -> np.ndarray:
            deviation = np.float32(1 / math.sqrt(inputs))
            return random.standard_normal((inputs, outputs), dtype=np.float32) * deviation

        def norm(size: int = shape.width) -> np.ndarray:
            return random.uniform(0.8, 1.2, size).astype(np.float32)

        width, queries, keys = shape.width, shape.heads * shape.depth, shape.kv_heads * shape.depth
        embedding = random.standard_normal((len(shape.vocabulary), width), dtype=np.float32)
        layers = [
            {
                "attention_norm": norm(), "query": dense(width, queries), "key": dense(width, keys),
                "value": dense(width, keys), "output": dense(queries, width), "feed_norm": norm(),
                "gate": dense(width, shape.hidden), "up": dense(width, shape.hidden),
                "down": dense(shape.hidden, width),
            }
            for _ in range(shape.layers)
        ]  # fmt: skip
        for layer in layers if shape.normed else ():
            layer |= {"query_norm": norm(shape.depth), "key_norm": norm(shape.depth)}
        return Weights(embedding, norm(), layers)


def rotary_tables(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of RoPE, each float32 [context, depth], halves equal."""
    rates = shape.base ** (-np.arange(0, shape.depth, 2) / shape.depth)
    angles = np.arange(shape.context)[:, None] * np.concatenate([rates, rates])
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def micro_llama(
    *,
    layers: int = 8,
    width: int = 64,
    heads: int = 16,
    kv_heads: int = 16,
    hidden: int = 256,
    window: int = 64,
    context: int = 1024,
    whole: bool = False,
    seed: int = 0,
) -> onnx.ModelProto:
    """Language model with a KV cache (Llama). input_ids, position_ids [1, sequence], past_* -> logits, present_*.

    `whole` is how it is quantised: norms, RoPE and the sums of layers in 8 bits, too.
    """
    shape = Shape(
        layers=layers, width=width, heads=heads, kv_heads=kv_heads, hidden=hidden, window=window, context=context,
        vocabulary=CHARACTERS,
    )  # fmt: skip
    model = decoder("micro_llama", shape, Weights.random(shape, seed))
    if whole:
        model.metadata_props.add(key=WHOLE, value="1")
    return model


def smollm2_135m(
    *, layers: int = 30, window: int = 256, context: int = 2048, vocabulary: int = 49152, seed: int = 0
) -> onnx.ModelProto:
    """SmolLM2-135M's shape with random weights, quantised as a whole. Inputs and outputs as of micro_llama."""
    return _published(
        "smollm2_135m", vocabulary, seed, layers=layers, width=576, heads=9, kv_heads=3, hidden=1536, window=window,
        context=context, base=100000.0,
    )  # fmt: skip


def tinyllama(
    *, layers: int = 22, window: int = 256, context: int = 2048, vocabulary: int = 32000, seed: int = 0
) -> onnx.ModelProto:
    """TinyLlama-1.1B's shape with random weights, quantised as a whole. Inputs and outputs as of micro_llama."""
    return _published(
        "tinyllama", vocabulary, seed, layers=layers, width=2048, heads=32, kv_heads=4, hidden=5632, window=window,
        context=context,
    )  # fmt: skip


def qwen3_0_6b(
    *, layers: int = 28, window: int = 256, context: int = 2048, vocabulary: int = 151936, seed: int = 0
) -> onnx.ModelProto:
    """Qwen3-0.6B's shape with random weights, quantised as a whole. Inputs and outputs as of micro_llama."""
    return _published(
        "qwen3_0_6b", vocabulary, seed, layers=layers, width=1024, heads=16, kv_heads=8, hidden=3072, window=window,
        context=context, base=1000000.0, head=128, normed=True,
    )  # fmt: skip


def _published(name: str, vocabulary: int, seed: int, **sizes: Any) -> onnx.ModelProto:
    """A decoder of a published model's sizes, with random weights, that is quantised as a whole."""
    texts = [*CHARACTERS, *(f"<{number}>" for number in range(len(CHARACTERS), vocabulary))]
    shape = Shape(vocabulary=texts[:vocabulary], **sizes)
    model = decoder(name, shape, Weights.random(shape, seed))
    model.metadata_props.add(key=WHOLE, value="1")
    return model


def decoder(name: str, shape: Shape, weights: Weights) -> onnx.ModelProto:
    """The ONNX model of these weights; in the metadata are its "vocabulary", a JSON list of texts, and its
    "context", the number of positions."""
    return _Decoder(name, shape).model(weights)


def prompts(model: onnx.ModelProto, count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Seeded random inputs of a `decoder`: whole caches of tokens, and nothing before them."""
    random = np.random.default_rng(seed)
    sizes = {x.name: [d.dim_value for d in x.type.tensor_type.shape.dim] for x in model.graph.input}
    empty = {name: np.zeros(shape, np.float32) for name, shape in sizes.items() if name.startswith("past")}
    cache = next(iter(empty.values())).shape[2]
    words = model.graph.output[0].type.tensor_type.shape.dim[2].dim_value
    positions = np.arange(cache, dtype=np.int64)[None]
    return [{"input_ids": random.integers(words, size=(1, cache)), "position_ids": positions} | empty
            for _ in range(count)]  # fmt: skip


class _Decoder:
    """The graph under construction. Shapes are left to ONNX's inference."""

    def __init__(self, name: str, shape: Shape) -> None:
        self.b, self.shape = Builder(name), shape
        self.inputs = [
            helper.make_tensor_value_info(n, TensorProto.INT64, [1, SEQUENCE]) for n in ("input_ids", "position_ids")
        ]
        self.outputs = [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, SEQUENCE, len(shape.vocabulary)])
        ]

    def op(self, kind: str, *inputs: Value | str, **attributes: object) -> Value:
        return self.b.op(kind, inputs, _ANY, **attributes)

    def number(self, value: float, name: str) -> str:
        return self.b.constant(np.array(value, np.float32), name)

    def integers(self, values: Sequence[int], name: str) -> str:
        return self.b.constant(np.array(values, np.int64), name)

    def model(self, weights: Weights) -> onnx.ModelProto:
        """Builds the whole model and checks it."""
        s, b = self.shape, self.b
        cosine, sine = rotary_tables(s)
        positions = Value("position_ids", _ANY)
        one = self.integers([1], "axis_1")
        # [1, 1, sequence, depth], for all heads.
        self.cosine = self.op("Unsqueeze", self.op("Gather", b.constant(cosine, "cosine"), positions, axis=0), one)
        self.sine = self.op("Unsqueeze", self.op("Gather", b.constant(sine, "sine"), positions, axis=0), one)
        column = self.op("Unsqueeze", positions, self.integers([1, 3], "axes_1_3"))  # [1, 1, sequence, 1]
        rows = b.constant(np.arange(s.window, dtype=np.int64).reshape(1, 1, 1, s.window), "rows")
        self.seen = self.op("LessOrEqual", rows, column)  # [1, 1, sequence, cache]
        row = self.op("Mod", positions, b.constant(np.array(s.window, np.int64), "cache"))
        index = self.op("Unsqueeze", row, self.integers([1, 3], "axes_1_3"))
        new = self.op("Shape", positions)  # [2]: 1, sequence
        parts = self.integers([1, s.kv_heads], "kv_heads"), self.op("Slice", new, self.integers([1], "from_1"),
            self.integers([2], "to_2")), self.integers([s.depth], "depth")  # fmt: skip
        self.places = self.op("Expand", index, self.op("Concat", *parts, axis=0))  # as the new keys, their rows

        embedding = b.constant(weights.embedding, "embedding")
        x = self.op("Gather", embedding, Value("input_ids", _ANY), axis=0)
        for number, layer in enumerate(weights.layers):
            x = self._layer(x, number, layer)
        x = self._norm(x, weights.norm, "norm")
        head = b.constant(np.ascontiguousarray(weights.embedding.T), "head")
        b.nodes.append(helper.make_node("MatMul", [x.name, head], ["logits"], name="logits"))
        return self._finish()

    def _finish(self) -> onnx.ModelProto:
        b = self.b
        graph = helper.make_graph(b.nodes, b.name, self.inputs, self.outputs, list(b.constants.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="tilewright.zoo")
        model.ir_version = IR_VERSION
        helper.set_model_props(
            model, {"vocabulary": json.dumps(list(self.shape.vocabulary)), "context": str(self.shape.context)}
        )
        model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        onnx.checker.check_model(model)
        return model

    def _norm(self, x: Value, scale: np.ndarray, name: str) -> Value:
        """RMSNorm over the last axis, as exporters write it."""
        square = self.op("Pow", x, self.number(2, "two"))
        mean = self.op("ReduceMean", square, self.integers([-1], "last_axis"), keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.number(1e-5, "epsilon")))
        normal = self.op("Mul", x, self.op("Div", self.number(1, "one"), root))
        return self.op("Mul", normal, self.b.constant(scale, f"{name}.scale"))

    def _dense(self, x: Value, weight: np.ndarray, name: str) -> Value:
        return self.op("MatMul", x, self.b.constant(weight, name))

    def _layer(self, x: Value, number: int, weights: dict[str, np.ndarray]) -> Value:
        stem = f"layers.{number}"
        y = self._norm(x, weights["attention_norm"], f"{stem}.attention_norm")
        x = self.op("Add", x, self._attention(y, number, weights))
        y = self._norm(x, weights["feed_norm"], f"{stem}.feed_norm")
        gate = self._dense(y, weights["gate"], f"{stem}.gate")
        silu = self.op("Mul", gate, self.op("Sigmoid", gate))
        up = self._dense(y, weights["up"], f"{stem}.up")
        return self.op("Add", x, self._dense(self.op("Mul", silu, up), weights["down"], f"{stem}.down"))

    def _heads(self, x: Value, heads: int) -> Value:
        """[1, sequence, heads * depth] -> [1, heads, sequence, depth]."""
        shape = self.integers([0, 0, heads, self.shape.depth], f"split_{heads}")
        return self.op("Transpose", self.op("Reshape", x, shape), perm=[0, 2, 1, 3])

    def _rotated(self, x: Value) -> Value:
        """RoPE: pairs are the two halves of a head."""
        half, last = self.shape.depth // 2, self.integers([3], "axis_3")
        low = self.op("Slice", x, self.integers([0], "start"), self.integers([half], "half"), last)
        high = self.op("Slice", x, self.integers([half], "half"), self.integers([2 * half], "whole"), last)
        turned = self.op("Concat", self.op("Neg", high), low, axis=3)
        return self.op("Add", self.op("Mul", x, self.cosine), self.op("Mul", turned, self.sine))

    def _kept(self, new: Value, number: int, what: str) -> Value:
        """The cache with the new rows in it; float32 [1, kv_heads, cache, depth]."""
        s = self.shape
        past, present = f"past_key_values.{number}.{what}", f"present.{number}.{what}"
        sizes = [1, s.kv_heads, s.window, s.depth]
        self.inputs.append(helper.make_tensor_value_info(past, TensorProto.FLOAT, sizes))
        self.outputs.append(helper.make_tensor_value_info(present, TensorProto.FLOAT, sizes))
        self.b.nodes.append(
            helper.make_node("ScatterElements", [past, self.places.name, new.name], [present], name=present, axis=2)
        )
        return Value(present, _ANY)

    def _repeated(self, x: Value, name: str) -> Value:
        """Keys or values for every query head: each serves heads / kv_heads of them."""
        s, group = self.shape, self.shape.heads // self.shape.kv_heads
        if group == 1:
            return x
        wide = self.op("Unsqueeze", x, self.integers([2], "axis_2"))
        wide = self.op("Expand", wide, self.integers([1, s.kv_heads, group, s.window, s.depth], "groups"))
        return self.op("Reshape", wide, self.integers([1, s.heads, s.window, s.depth], "all_heads"))

    def _attention(self, x: Value, number: int, weights: dict[str, np.ndarray]) -> Value:
        s, stem = self.shape, f"layers.{number}"
        query = self._heads(self._dense(x, weights["query"], f"{stem}.query"), s.heads)
        key = self._heads(self._dense(x, weights["key"], f"{stem}.key"), s.kv_heads)
        if s.normed:
            query = self._norm(query, weights["query_norm"], f"{stem}.query_norm")
            key = self._norm(key, weights["key_norm"], f"{stem}.key_norm")
        query, key = self._rotated(query), self._rotated(key)
        value = self._heads(self._dense(x, weights["value"], f"{stem}.value"), s.kv_heads)
        keys = self._repeated(self._kept(key, number, "key"), "key")
        values = self._repeated(self._kept(value, number, "value"), "value")
        scores = self.op("MatMul", query, self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, self.number(1 / math.sqrt(s.depth), "attention_scale"))
        scores = self.op("Where", self.seen, scores, self.number(float(np.finfo(np.float32).min), "unseen"))
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), values)
        joined = self.op("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = self.op("Reshape", joined, self.integers([0, 0, s.heads * s.depth], "join"))
        return self._dense(joined, weights["output"], f"{stem}.output")
