"""The language model of the zoo: against the same written in numpy, and with the cache step by step."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.common import onnx_models
from tilewright import zoo
from tilewright.zoo import llama
from tilewright.zoo.llama import Shape, Weights, decoder, prompts

SHAPE = Shape(layers=2, width=24, heads=6, kv_heads=2, hidden=40, window=8, context=32, vocabulary="abcdefghij")


def norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def turn(x: np.ndarray, position: int) -> np.ndarray:
    """RoPE as complex numbers: feature i and i + depth / 2 of a head are one."""
    half = x.shape[-1] // 2
    angles = position * 10000.0 ** (-np.arange(half) / half)
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def logits(weights: Weights, tokens: list[int], shape: Shape = SHAPE) -> np.ndarray:
    """Logits of every token, each with the last `window` tokens in view, in float64."""

    def heads(x: np.ndarray, scales: dict[str, np.ndarray], name: str) -> np.ndarray:
        divided = x.reshape(-1, shape.depth)
        return norm(divided, scales[name]) if name in scales else divided

    keys: list[list[np.ndarray]] = [[] for _ in weights.layers]
    values: list[list[np.ndarray]] = [[] for _ in weights.layers]
    found = []
    for position, token in enumerate(tokens):
        x = weights.embedding[token].astype(np.float64)
        for number, w in enumerate(weights.layers):
            y = norm(x, w["attention_norm"])
            query = turn(heads(y @ w["query"], w, "query_norm"), position)
            keys[number].append(turn(heads(y @ w["key"], w, "key_norm"), position))
            values[number].append((y @ w["value"]).reshape(shape.kv_heads, shape.depth))
            seen = np.stack(keys[number][-shape.window :]), np.stack(values[number][-shape.window :])
            mixed = []
            for head in range(shape.heads):
                group = head * shape.kv_heads // shape.heads
                scores = seen[0][:, group] @ query[head] / math.sqrt(shape.depth)
                shares = np.exp(scores - scores.max())
                mixed.append(shares / shares.sum() @ seen[1][:, group])
            x = x + np.concatenate(mixed) @ w["output"]
            y = norm(x, w["feed_norm"])
            gate = y @ w["gate"]
            x = x + (gate / (1 + np.exp(-gate)) * (y @ w["up"])) @ w["down"]
        found.append(norm(x, weights.norm) @ weights.embedding.T)
    return np.stack(found)


def step_by_step(model: onnx.ModelProto, tokens: list[int], first: int) -> np.ndarray:
    """Logits of a run of `first` tokens and of single ones behind it."""
    state = {name: value for name, value in prompts(model, 1)[0].items() if name.startswith("past")}
    found = []
    at = 0
    for count in [first, *[1] * (len(tokens) - first)]:
        ids = np.array([tokens[at : at + count]], np.int64)
        outputs = onnx_models.run(model, {"input_ids": ids, "position_ids": np.arange(at, at + count)[None]} | state)
        state = {name: outputs[name.replace("past_key_values", "present")] for name in state}
        found.append(outputs["logits"][0])
        at += count
    return np.concatenate(found)


@pytest.mark.medium
@pytest.mark.parametrize("first, shape", [(1, SHAPE), (5, SHAPE), (5, replace(SHAPE, head=10, normed=True))])
def test_values_are_those_of_the_formulas(first: int, shape: Shape) -> None:
    """Logits equal the formulas also past the end of the cache, where the first tokens are forgotten."""
    weights = Weights.random(shape, 3)
    tokens = np.random.default_rng(1).integers(10, size=20).tolist()
    got = step_by_step(decoder("small", shape, weights), tokens, first)
    expected = logits(weights, tokens, shape)
    np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max())


def test_shape_of_the_public_reference() -> None:
    """8 layers of width 64 with 16 heads: 526 k weights beside the embedding."""
    model = zoo.build("micro_llama", cache=False)
    layers = sum(math.prod(x.dims) for x in model.graph.initializer if x.name.startswith("layers."))
    assert layers == 8 * (4 * 64 * 64 + 3 * 64 * 256 + 2 * 64) == 525_312
    assert len(json.loads({x.key: x.value for x in model.metadata_props}["vocabulary"])) == 96


@pytest.mark.medium
def test_quantised_caches_are_8_bits_and_norms_floats() -> None:
    model = zoo.build_quantized("micro_llama", cache=False, **zoo.ZOO["micro_llama"].small)
    makers = {name: node for node in model.graph.node for name in node.output}
    readers = [node.op_type for node in model.graph.node if "past_key_values.0.key" in node.input]
    assert readers == ["QuantizeLinear"]
    present = makers["present.0.key"]
    assert present.op_type == "DequantizeLinear"
    (before,) = [n for n in model.graph.node if n.op_type == "QuantizeLinear" and "past_key_values.0.key" in n.input]
    assert makers[present.input[0]].input[1:] != before.input[1:], "each has constants of its own"
    constants = {x.name: onnx.numpy_helper.to_array(x) for x in model.graph.initializer}
    for mine, theirs in zip(present.input[1:], before.input[1:], strict=True):
        assert constants[mine] == constants[theirs]
    assert all(makers[n.input[0]].op_type != "DequantizeLinear" for n in model.graph.node if n.op_type == "Sqrt")


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="heads must be a multiple of the 3 kv_heads, not 16"):
        zoo.build("micro_llama", kv_heads=3)
    with pytest.raises(ValueError, match=r"window must be 1\.\.1024, the context, not 2048"):
        zoo.build("micro_llama", window=2048)
    with pytest.raises(ValueError, match="qdq with int8 weights"):
        zoo.build_quantized("micro_llama", form="qoperator")


@pytest.mark.medium
def test_shape_of_smollm2() -> None:
    """3.5 M weights a layer, rows of RoPE at its own rate, and texts of tokens beyond those of characters."""
    model = zoo.build("smollm2_135m", cache=False, **zoo.ZOO["smollm2_135m"].small)
    constants = {x.name: x for x in model.graph.initializer}
    layer = sum(math.prod(x.dims) for x in constants.values() if x.name.startswith("layers.0."))
    assert layer == 576 * (2 * 576 + 2 * 192 + 3 * 1536) + 2 * 576 == 3_540_096
    facts = {x.key: x.value for x in model.metadata_props}
    vocabulary = json.loads(facts["vocabulary"])
    assert len(vocabulary) == 200 == len(set(vocabulary)) and vocabulary[199] == "<199>" and facts["whole"] == "1"
    cosine = onnx.numpy_helper.to_array(constants["cosine"])
    np.testing.assert_allclose(cosine[3, 1], np.cos(3 * 100000.0 ** (-1 / 32)), rtol=1e-6)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("tinyllama", 2048 * (2 * 2048 + 2 * 256 + 3 * 5632) + 2 * 2048),
        ("qwen3_0_6b", 1024 * (2 * 2048 + 2 * 1024 + 3 * 3072) + 2 * 1024 + 2 * 128),
    ],
)
def test_weights_of_a_layer_of_other_published_shapes(
    name: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """44 and 15.7 M weights, with heads of 128 features and norms of them for Qwen3. No model is made."""
    found: list[Weights] = []

    def model(name: str, shape: Shape, weights: Weights) -> onnx.ModelProto:
        found.append(weights)
        return onnx.ModelProto()

    monkeypatch.setattr(llama, "decoder", model)
    zoo.ZOO[name].make(layers=1, vocabulary=100)
    (weights,) = found
    assert sum(w.size for w in weights.layers[0].values()) == expected
    assert weights.embedding.shape[0] == 100
