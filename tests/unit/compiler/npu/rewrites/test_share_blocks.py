"""Heads narrower than a block side by side in caches: onnxruntime's bytes in one turn, and states as the model has
them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.common import onnx_models
from tests.unit.compiler.npu.rewrites.test_block_states import cpu_ops, feeds
from tilewright import zoo
from tilewright.isa.program import BlockedLayout, Layout, NpuStep, Program, TensorInfo
from tilewright.runtime.layout import put_tensor, to_tensor
from tilewright.zoo.llama import prompts

ROWS = 8  # of a prompt


def built(kv_heads: int) -> tuple[onnx.ModelProto, Program]:
    """A model whose 8 heads have 4 channels each, and its program for prompts and tokens."""
    model = zoo.build_quantized(
        "micro_llama", layers=1, width=32, heads=8, kv_heads=kv_heads, hidden=32, window=16, context=64, whole=True
    )
    entries = {"prefill": {"input_ids": [1, ROWS]}, "decode": {"input_ids": [1, 1]}}
    return model, tw.compile_program(model, states="auto", entries=entries, rising=("position_ids",), cache=False)


@pytest.mark.medium
@pytest.mark.parametrize("kv_heads", [8, 4])
def test_tokens_and_states_are_onnxruntimes(kv_heads: int) -> None:
    """A prompt, tokens past the end of the cache, and the caches in the model's shape."""
    model, program = built(kv_heads)
    program = Program.from_bytes(program.to_bytes())
    program.trusted = True
    for entry in ("prefill", "decode"):
        assert [type(step) for step in program.entry(entry).steps] == [NpuStep], cpu_ops(program.entry(entry))
    device = tw.Device("functional")
    state = {name: value for name, value in prompts(model, 1)[0].items() if name.startswith("past")}
    tokens = np.random.default_rng(0).integers(96, size=(1, ROWS))
    given = {"input_ids": tokens, "position_ids": np.arange(ROWS)[None]}
    for position in range(ROWS, ROWS + 12):
        outputs = onnx_models.run(model, given | state)
        state = {name: outputs[name.replace("past_key_values", "present")] for name in state}
        entry = "prefill" if position == ROWS else "decode"
        np.testing.assert_array_equal(device.run(program, given, entry=entry)["logits"], outputs["logits"])
        given = feeds(position, 7 * position % 96)
    kept = device.states(program)
    for info in program.states:
        value, zero_point, scale = state[info.name], info.begin.zero_point, info.begin.scale
        assert kept[info.name].shape == value.shape and isinstance(scale, float) and isinstance(zero_point, int)
        np.testing.assert_allclose((kept[info.name].astype(np.float32) - zero_point) * np.float32(scale), value)
    other = tw.Device("functional")
    other.reset_state(program, kept)
    logits = [each.run(program, given, entry="decode")["logits"] for each in (device, other)]
    np.testing.assert_array_equal(*logits)


@pytest.mark.medium
def test_halves_through_tables_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that are no weights are looked up before the product, and the bytes are the same."""
    model, token = built(8)[0], feeds(0, 7)
    weighed = tw.compile_program(model, shapes={"input_ids": [1, 1]}, states="auto", cache=False)
    monkeypatch.setattr("tilewright.compiler.npu.rewrites.head_blocks.weight_of_table", lambda *_: None)
    looked_up = tw.compile_program(model, shapes={"input_ids": [1, 1]}, states="auto", cache=False)
    first, second = (tw.Device("functional").run(program, token)["logits"] for program in (weighed, looked_up))
    np.testing.assert_array_equal(first, second)
    assert "concat_1 [0]" in {layer.name for layer in looked_up.layers} - {layer.name for layer in weighed.layers}


def test_images_side_by_side_in_blocks() -> None:
    """Bytes of a tensor of which two images fill the lanes of a block."""
    blocks = BlockedLayout((2, 1, 1, 3, 8), 8, 0, Layout.CHANNELS_LAST)
    info = TensorInfo("x", (1, 4, 3, 4), "int8", "x", 1.0, 0, blocks)
    value = np.arange(48, dtype=np.int8).reshape(info.shape)
    raw = np.zeros(48, np.uint8)
    put_tensor(raw, info, value)
    wanted = value.reshape(2, 2, 3, 4).transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(raw.view(np.int8).reshape(2, 3, 2, 4), wanted)
    np.testing.assert_array_equal(to_tensor(raw, info), value)
