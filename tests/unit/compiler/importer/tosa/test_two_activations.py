"""MATMUL of two activations against numpy by the specification: IREE 3.13 miscompiles what follows such a product."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.compiler.importer.tosa.scaling import apply_scale

pytest.importorskip("xdsl")

TEXT = """func.func @main(%x: tensor<1x20x4xi8>) -> tensor<1x20x20xi8> {
  %y = "tosa.transpose"(%x) <{perms = array<i32: 0, 2, 1>}> : (tensor<1x20x4xi8>) -> tensor<1x4x20xi8>
  %z = "tosa.const"() <{values = dense<5> : tensor<1xi8>}> : () -> tensor<1xi8>
  %o = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %m = "tosa.const"() <{values = dense<MULTIPLIER> : tensor<1xi32>}> : () -> tensor<1xi32>
  %s = "tosa.const"() <{values = dense<38> : tensor<1xi8>}> : () -> tensor<1xi8>
  %sums = "tosa.matmul"(%x, %y, %z, %z) : (tensor<1x20x4xi8>, tensor<1x4x20xi8>, tensor<1xi8>, tensor<1xi8>)
    -> tensor<1x20x20xi32>
  %r = "tosa.rescale"(%sums, %m, %s, %o, %z) <{scale32 = true, rounding_mode = #tosa.rounding_mode<SINGLE_ROUND>,
    per_channel = false, input_unsigned = false, output_unsigned = false}> : (tensor<1x20x20xi32>, tensor<1xi32>,
    tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x20x20xi8>
  %c = "tosa.clamp"(%r) <{max_val = 90 : i8, min_val = -40 : i8}> : (tensor<1x20x20xi8>) -> tensor<1x20x20xi8>
  return %c : tensor<1x20x20xi8>
}
"""


@pytest.mark.parametrize("multiplier", [1518500249, 1 << 30, 1879048192])
def test_product_of_a_tensor_by_its_transpose(multiplier: int) -> None:
    x = np.random.default_rng(multiplier).integers(-128, 128, (1, 20, 4)).astype(np.int8)
    wide = x.astype(np.int64) - 5
    want = np.clip(apply_scale(wide @ wide.transpose(0, 2, 1), multiplier, 38, False) + 5, -40, 90)
    program = tw.compile(TEXT.replace("MULTIPLIER", str(multiplier)), cache=False)
    np.testing.assert_array_equal(tw.Device("functional").run(program, {"input": x})["output"], want)
