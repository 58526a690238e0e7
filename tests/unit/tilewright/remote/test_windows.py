"""A language model on a device that is served: its rows are found by windows there, too."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.unit.tilewright.remote.serving import connect, runner, serving
from tilewright import zoo
from tilewright.isa.config import PRESETS


@pytest.mark.medium
def test_prompts_and_tokens_on_a_server() -> None:
    """Logits and states are those of the simulator here, past the end of the cache."""
    sizes = {"layers": 1, "width": 64, "heads": 2, "kv_heads": 2, "hidden": 64, "window": 16, "context": 40}
    model = zoo.build_quantized("micro_llama", whole=True, **sizes)
    entries = {"prefill": {"input_ids": [1, 4]}, "decode": {"input_ids": [1, 1]}}
    program = tw.compile_program(model, "base", states="auto", entries=entries, rising=["position_ids"], cache=False)
    assert program.windows and program.lookups
    local = tw.Device("functional")
    with serving(config=PRESETS["base"]) as (server, _), runner(connect(server)) as remote:
        for position, count in ((0, 4), (4, 4), (8, 1), (9, 1), (20, 4), (24, 1)):
            given = {
                "input_ids": (np.arange(count)[None] * 7 + position) % 96,
                "position_ids": position + np.arange(count)[None],
            }
            entry = "prefill" if count > 1 else "decode"
            here, there = (device.run(program, given, entry=entry)["logits"] for device in (local, remote))
            np.testing.assert_array_equal(here, there)
        states = [device.states(program) for device in (local, remote)]
        assert all((states[0][name] == states[1][name]).all() for name in states[0])
