"""Decoders of the zoo with 8-bit weights, activations and cache."""

from __future__ import annotations

import onnx

from tilewright.quantize.accuracy import Accuracy
from tilewright.quantize.model import quantize_onnx
from tilewright.zoo.llama import prompts


def quantise_decoder(model: onnx.ModelProto, *, activation: str, calibration: int, seed: int) -> onnx.ModelProto:
    """Quantises a float `tilewright.zoo.llama.decoder`; norms, RoPE and the sums of layers stay floats.

    Args:
        activation: "int8" or "uint8".
        calibration: number of random prompts.
        seed: of those.

    Raises:
        ValueError: fewer than 2 prompts.
    """
    if calibration < 2:
        raise ValueError(f"calibration must be at least 2 prompts, not {calibration!r}")
    plain = Accuracy(ranges="minmax", equalise=False, fit=False, target=None)
    data = prompts(model, calibration, seed)
    return quantize_onnx(model, data, activation=activation, accuracy=plain, check=False).model
