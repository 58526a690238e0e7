"""Random pruned networks whose constant channels are dropped: the same bytes as without, as onnxruntime and as LiteRT.

python -m tests.network.test_pruned_networks 1000     so many networks; prints how many lost channels
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.common import onnx_models
from tests.reference.pruned_networks import PrunedNetwork, extremes
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.compiler.stages.note_forms import CONSTANT_CHANNELS
from tilewright.isa.config import preset

FORMS = ("int8", "uint8", "tflite")


def dropped(seed: int, form: str, config: str = "tiny") -> bool:
    """Whether a network lost channels, after all its results were those of the references for inputs at the limits."""
    network = PrunedNetwork(seed)
    machine, dtype = preset(config), np.uint8 if form == "uint8" else np.int8
    model: Any = network.tflite() if form == "tflite" else network.onnx(dtype)
    program, whole = (tw.compile_program(model, machine, keep=keep, cache=False) for keep in ("outputs", "all"))
    assert not [note for note in whole.notes if note.startswith(CONSTANT_CHANNELS)]
    reference = LiteRtReference(model).run if form == "tflite" else _onnxruntime(model)
    exact = not any(tensor.reason for tensor in whole.tensors)  # but for single steps, which others multiply
    with tw.Device("functional", machine) as device, tw.Device("functional", machine) as other:
        for x in extremes(program.inputs[0].shape, dtype, seed):
            feeds = {program.inputs[0].name: x if form == "tflite" else network.floats(x)}
            got, plain, expected = device.run(program, feeds), other.run(whole, feeds), reference(feeds)
            for name, values in got.items():
                np.testing.assert_array_equal(values, plain[name], f"{form} {seed}: {name} with all channels")
                if exact:
                    np.testing.assert_array_equal(values, expected[name], f"{form} {seed}: {name} of the reference")
    return any(note.startswith(CONSTANT_CHANNELS) for note in program.notes)


def _onnxruntime(model: Any) -> Any:
    session = onnx_models.session(model)
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, feeds), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_same_bytes(form: str) -> None:
    found = [dropped(seed, form) for seed in range(8)]
    assert 2 <= sum(found) < len(found)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("config", ["base", "wide"])
def test_same_bytes_on_larger_machines(form: str, config: str) -> None:
    assert sum(dropped(seed, form, config) for seed in range(20, 40)) >= 4


def main(count: int) -> None:
    """Compares so many networks, every third of each form, and prints how many lost channels."""
    lost = 0
    for seed in range(count):
        lost += dropped(seed, FORMS[seed % len(FORMS)])
        if seed % 50 == 49:
            print(f"{seed + 1} networks, {lost} lost channels", flush=True)
    print(f"{count} networks: equal; {lost} lost channels")


if __name__ == "__main__":
    main(int(sys.argv[1]))
