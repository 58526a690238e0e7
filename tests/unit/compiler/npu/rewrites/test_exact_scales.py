"""Tables of a QConcat as weights of a product: the requantiser's bytes are the table's, or there is no weight."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.compiler.graph.graph import Quant, Tensor
from tilewright.compiler.graph.quantization import dequantize, quantize
from tilewright.compiler.npu.rewrites.exact_scales import weight_of_table
from tilewright.isa import numerics

EVERY = np.arange(256, dtype=np.uint8)


def tensor(name: str, scale: float, zero_point: int, dtype: str) -> Tensor:
    return Tensor(name, (1, 16), np.dtype(dtype), quant=Quant.of(np.float32(scale), zero_point))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("x_scale", "y_scale"), [(0.0275211, 0.0278416), (0.03, 0.03), (0.05, 0.0117)])
def test_signs_and_steps_are_weights(dtype: str, sign: int, x_scale: float, y_scale: float) -> None:
    middle = 128 if dtype == "uint8" else 0
    x, y = tensor("x", x_scale, middle + 8, dtype), tensor("y", y_scale, middle - 7, dtype)
    assert x.quant is not None and y.quant is not None
    wanted = quantize(np.float32(sign) * dequantize(EVERY.view(dtype), x.quant), y.quant, y.dtype)
    found = weight_of_table(wanted.tobytes(), x, y)
    assert found is not None and found[0] == sign
    scale = numerics.scale_bits(numerics.product_scale(x.quant.scale, found[1], y.quant.scale))
    sums = sign * (EVERY.view(dtype).astype(np.int64) - middle - 8)
    np.testing.assert_array_equal(numerics.requantize(sums, scale, -7, -128, 127) + np.int64(middle), wanted)


def test_bytes_that_pass_as_they_are_have_the_weight_1() -> None:
    x = tensor("x", 0.03, -7, "int8")
    assert weight_of_table(None, x, x) == (1, np.float32(1))


def test_other_functions_are_no_weight() -> None:
    x, y = tensor("x", 0.03, 3, "int8"), tensor("y", 0.02, -4, "int8")
    assert x.quant is not None and y.quant is not None
    floats = dequantize(EVERY.view("int8"), x.quant)
    for function in (np.tanh, np.abs, lambda v: np.maximum(v, 0.1 * v)):
        assert weight_of_table(quantize(function(floats), y.quant, y.dtype).tobytes(), x, y) is None
    assert weight_of_table(None, x, y) is None  # the same bytes, which mean something else
