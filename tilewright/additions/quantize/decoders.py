"""Decoders of the zoo with 8-bit weights, activations and cache."""

from __future__ import annotations

import onnx

from tilewright.quantize.accuracy import Accuracy
from tilewright.quantize.model import quantize_onnx
from tilewright.zoo.llama import WHOLE, prompts


def quantise_decoder(model: onnx.ModelProto, *, activation: str, calibration: int, seed: int) -> onnx.ModelProto:
    """Quantises a float `tilewright.zoo.llama.decoder`. Norms, RoPE and the sums of layers stay floats, unless its
    metadata say that it is `WHOLE`.

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
    whole = any(x.key == WHOLE for x in model.metadata_props)
    return quantize_onnx(model, data, activation=activation, accuracy=plain, check=False, whole=whole).model
