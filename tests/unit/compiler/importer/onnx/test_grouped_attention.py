"""GroupQueryAttention against onnxruntime: prompts, single tokens and more behind a cache that fits or is longer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.common.contrib_models import Fixed, Nodes, refusal


@dataclass
class Case:
    """One node; `ends` are seqlens_k, `rows` those of the past's tensors."""

    new: int
    rows: int = 0
    ends: tuple[int, ...] = ()
    batch: int = 2
    more: dict[str, Any] = field(default_factory=dict)


PROMPT, TOKEN, BUFFER = Case(5), Case(1, 6), Case(1, 9, (5, 2))
UNEVEN, SEVERAL, FITTING = Case(1, 5, (5, 3)), Case(3, 9, (6,), 1), Case(3, 4, (), 1)
PROMPT_IN_BUFFER = Case(5, 8, (4, 4))
ALL = [PROMPT, TOKEN, BUFFER, UNEVEN, SEVERAL, FITTING, PROMPT_IN_BUFFER]


def add(
    nodes: Nodes, case: Case, r: np.random.Generator, *, heads: tuple[int, int] = (4, 2), depth: int = 16,
    packed: bool = False, fixed: bool = False, rotary: int = 0, dtype: type = np.float32, **attrs: Any,
) -> None:  # fmt: skip
    t = lambda *shape: r.standard_normal(shape).astype(dtype)
    (count, shared), batch, new = heads, case.batch, case.new
    ends = case.ends or (new + case.rows - 1,) * batch
    total = max(ends) + 1
    widths = [count * depth] + [shared * depth] * 2
    qkv = [t(batch, new, sum(widths)), None, None] if packed else [t(batch, new, n) for n in widths]
    past = [t(batch, shared, case.rows, depth) if case.rows else None for _ in range(2)]
    lengths = np.array(ends, np.int32)
    caches: list[Any] = [Fixed(t(total + 4, rotary)), Fixed(t(total + 4, rotary))] if rotary else [None, None]
    attrs.update({"do_rotary": 1} if rotary else {})
    positions, bias, sink = (attrs.pop(name, None) for name in ("positions", "bias", "sink"))
    bias = t(*bias, new, total) if bias else None
    operands = [
        *qkv,
        *past,
        Fixed(lengths) if fixed else lengths,
        Fixed(np.int32(total)),
        *caches,
        positions,
        bias,
        sink,
    ]
    outputs = (0, 1, 2, 3) if attrs.get("qk_output") else (0, 1, 2)
    nodes.add("GroupQueryAttention", operands, outputs, str(case), num_heads=count, kv_num_heads=shared, **attrs)


@pytest.mark.medium
@pytest.mark.parametrize("fixed", [False, True], ids=["lengths at run time", "fixed lengths"])
@pytest.mark.parametrize("heads", [(4, 2), (3, 1)], ids=str)
def test_caches_packing_and_rotation(heads: tuple[int, int], fixed: bool) -> None:
    nodes, r = Nodes(), np.random.default_rng(sum(heads))
    for case in ALL:
        add(nodes, case, r, heads=heads, packed=not fixed, fixed=fixed)
        add(nodes, case, r, heads=heads, packed=fixed, fixed=fixed, rotary=8, rotary_interleaved=int(fixed))
    nodes.compare()


@pytest.mark.medium
@pytest.mark.parametrize("fixed", [False, True], ids=["lengths at run time", "fixed lengths"])
def test_what_scores_are(fixed: bool) -> None:
    """Windows, softcap, biases, sinks, no mask, scale, and the scores as outputs."""
    nodes, r = Nodes(), np.random.default_rng(3)
    sink = r.standard_normal(4).astype(np.float32)
    for case in (PROMPT, BUFFER, FITTING):
        for window in (1, 3):
            add(nodes, case, r, fixed=fixed, local_window_size=window, softcap=1.3 * (window > 1))
        for shape in ((case.batch, 4), (1, 1)):
            add(nodes, case, r, fixed=fixed, bias=shape, softcap=1.1 * (shape[1] > 1))
        add(nodes, case, r, fixed=fixed, smooth_softmax=1)
        add(nodes, case, r, fixed=fixed, sink=sink, local_window_size=3)
        add(nodes, case, r, fixed=fixed, causal=0)
        add(nodes, case, r, fixed=fixed, scale=0.1)
        for kind in (1, 2):
            if not case.ends:
                add(nodes, case, r, fixed=fixed, qk_output=kind, local_window_size=3, sink=sink)
    nodes.compare()


@pytest.mark.medium
def test_positions() -> None:
    """Positions of a prompt count on from the first one; RoPE turns a part of each head."""
    nodes, r = Nodes(), np.random.default_rng(4)
    add(nodes, PROMPT, r, rotary=8, positions=np.array([[2, 0, 1, 1, 3], [0, 1, 2, 3, 4]]))
    add(nodes, TOKEN, r, rotary=8, positions=np.array([[3], [8]]))
    add(nodes, SEVERAL, r, rotary=8, positions=np.array([[3, 1, 8]]))
    for interleaved in (0, 1):
        add(nodes, PROMPT, r, depth=32, rotary=8, rotary_interleaved=interleaved)
    nodes.compare()


@pytest.mark.medium
def test_half_floats() -> None:
    nodes, r = Nodes(), np.random.default_rng(5)
    for case in (PROMPT, BUFFER):
        add(nodes, case, r, rotary=8, dtype=np.float16)
    nodes.compare(2e-3)


@pytest.mark.medium
@pytest.mark.parametrize("case", [PROMPT, BUFFER, FITTING], ids=str)
def test_random_inputs_fit(case: Case) -> None:
    """onnxruntime refuses seqlens_k out of range; those drawn for a check are in it."""
    nodes = Nodes()
    add(nodes, case, np.random.default_rng(6), rotary=8)
    program = tw.compile(nodes.model(), "tiny", cache=False)
    lowest, highest = program.input_ranges["n0_5"]
    total = int(nodes.constants["n0_6"])
    assert (lowest, highest) == (0 if total == case.new else case.new - 1, total - 1)


def test_refusals() -> None:
    t = lambda *shape: np.zeros(shape, np.float32)
    base = [t(1, 1, 32), t(1, 1, 16), t(1, 1, 16), t(1, 1, 4, 16), t(1, 1, 4, 16), Fixed(np.array([4], np.int32))]
    fits: dict[str, Any] = {"num_heads": 2, "kv_num_heads": 1}
    total = Fixed(np.int32(5))
    for attrs, words in (
        ({"sliding_window_cache": 1}, "sliding_window_cache=1 is not supported; accepted: 0"),
        ({"k_quant_type": "PER_TENSOR"}, "k_quant_type='PER_TENSOR' is not supported; accepted: '', 'NONE'"),
        ({"local_window_size": 0}, "local_window_size=0 is not supported; -1 and, where causal is 1, 1 and more are"),
        ({"local_window_size": 2, "causal": 0}, "local_window_size=2 is not supported"),
        ({"kv_num_heads": 3}, "kv_num_heads=3 must divide num_heads=2"),
        ({"do_rotary": 1}, "do_rotary=1 needs cos_cache and sin_cache"),
    ):
        assert words in refusal("GroupQueryAttention", [*base, total], **{**fits, **attrs})
    assert "total_sequence_length 'n0_6' must be a constant" in refusal(
        "GroupQueryAttention", [*base, np.int32(5)], **fits
    )
    assert "seqlens_k [4] must lie in 0..3" in refusal("GroupQueryAttention", [*base, Fixed(np.int32(4))], **fits)
    weights = [*base, total, *[None] * 7, t(16), t(16)]
    assert "q_norm_weight 'n0_14' is not supported; it must be left out" in refusal(
        "GroupQueryAttention", weights, **fits
    )
    whole = [*base[:3], np.zeros((1, 1, 4, 16), np.int8), np.zeros((1, 1, 4, 16), np.int8), base[5], total]
    assert "past 'n0_3' of int8 [1, 1, 4, 16] is not supported; float32 [1, 1, rows, 16] is" in refusal(
        "GroupQueryAttention", whole, **fits
    )
