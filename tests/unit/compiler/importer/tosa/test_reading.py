"""TOSA text: its forms, and errors with their place."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright.common.errors import TilewrightError

pytest.importorskip("xdsl")

from tilewright.compiler.importer.tosa import OPERATIONS
from tilewright.compiler.importer.tosa.reading import generic

HEAD = "module {\n  func.func @main(%x: tensor<1x4x4x2xi8>) -> tensor<1x4x4x2xi8> {\n"
TAIL = "    return %y : tensor<1x4x4x2xi8>\n  }\n}\n"
TYPES = "(tensor<1x4x4x2xi8>) -> tensor<1x4x4x2xi8>"
EMPTY = "(tensor<1x4x4x2xi8>) -> tensor<0x4xi8>"
OPEN, OTHER = TYPES.replace("-> tensor<1x4", "-> tensor<1x?"), TYPES.replace("-> tensor<1x4", "-> tensor<1x5")
CLAMPS = {
    "generic": f'    %y = "tosa.clamp"(%x) <{{max_val = 9 : i8, min_val = -3 : i8}}> : {TYPES}\n',
    "older": f"    %y = tosa.clamp %x {{max_val = 9 : i8, min_val = -3 : i8}} : {TYPES}\n",
    "newer": f"    %y = tosa.clamp %x min_val(-3 : i8) max_val(9 : i8) : {TYPES}\n",
}


@pytest.mark.parametrize("form", CLAMPS)
def test_forms_of_assembly(form: str) -> None:
    x = np.arange(32, dtype=np.int8).reshape(1, 4, 4, 2) - 16
    program = tw.compile(HEAD + CLAMPS[form] + TAIL)
    got = tw.Device("functional").run(program, {"input": x})["output"]
    np.testing.assert_array_equal(got, np.clip(x, -3, 9))


LOOP = """func.func @main(%x: tensor<2xi32>, %c: tensor<i1>) -> (tensor<2xi32>, tensor<2xi32>) {
  %zero = "tosa.const"() <{values = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %n, %s = tosa.while_loop (%i = %zero, %v = %x) : (tensor<i32>, tensor<2xi32>) -> (tensor<i32>, tensor<2xi32>) {
    %three = "tosa.const"() <{values = dense<3> : tensor<i32>}> : () -> tensor<i32>
    %go = tosa.greater %three, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    tosa.yield %go : tensor<i1>
  } do {
  ^bb0(%i: tensor<i32>, %v: tensor<2xi32>):
    %one = "tosa.const"() <{values = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %j = tosa.add %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %w = tosa.add %v, %v : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
    tosa.yield %j, %w : tensor<i32>, tensor<2xi32>
  }
  %r = tosa.cond_if %c (%a = %s) : tensor<i1> (tensor<2xi32>) -> tensor<2xi32> {
    tosa.yield %a : tensor<2xi32>
  } else {
    %b = tosa.add %a, %x : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
    tosa.yield %b : tensor<2xi32>
  }
  return %s, %r : tensor<2xi32>, tensor<2xi32>
}
"""


@pytest.mark.parametrize("flag", [True, False])
def test_control_flow(flag: bool) -> None:
    x = np.array([5, -7], np.int32)
    got = tw.Device("functional").run(tw.compile(LOOP), {"input_0": x, "input_1": np.array(flag)})
    np.testing.assert_array_equal(got["output_0"], 8 * x)
    np.testing.assert_array_equal(got["output_1"], 8 * x if flag else 9 * x)


@pytest.mark.slow
def test_a_loop_without_an_end_is_refused() -> None:
    text = LOOP.replace("tosa.yield %j, %w", "tosa.yield %i, %v")
    with pytest.raises(TilewrightError, match=r"'line 3: tosa.while_loop': unrolls to more than 20000 nodes"):
        tw.compile_program(text, cache=False)


@pytest.mark.skipif(find_spec("iree") is None, reason="IREE is not installed")
def test_iree_takes_scalars() -> None:
    from tilewright.checking.iree_reference import IreeReference

    got = IreeReference(LOOP).run({"input_0": np.array([5, -7], np.int32), "input_1": np.array(False)})
    np.testing.assert_array_equal(got["output_1"], [45, -63])


TORCH_CONSTANTS = """func.func @main(%x: tensor<2xi32>) -> tensor<2xi32> {
  %a = arith.constant dense<[1, 2]> : tensor<2xi32>
  %b = arith.constant {tag = "x"} dense<3> : tensor<2xi32>
  %c = "arith.constant"() <{value = dense<4> : tensor<2xi32>}> : () -> tensor<2xi32>
  %p = tosa.add %a, %b : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
  %q = tosa.mul %x, %c : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
  %r = tosa.sub %q, %p : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
  return %r : tensor<2xi32>
}
"""


def test_constants_that_torch_mlir_leaves_among_the_operations() -> None:
    x = np.array([10, 20], np.int32)
    program = tw.compile(TORCH_CONSTANTS, cache=False)
    np.testing.assert_array_equal(tw.Device("functional").run(program, {"input": x})["output"], [36, 75])
    assert '"arith.constant"()' in generic(TORCH_CONSTANTS, OPERATIONS)
    with pytest.raises(TilewrightError, match=r"line 2: arith.constant is no TOSA"):
        tw.compile("func.func @main() {\n  %a = arith.constant 1 : i32\n  return %a : i32\n}\n")
    with pytest.raises(TilewrightError, match=r"line 2, column .*text: a constant without a value"):
        tw.compile("func.func @main() {\n  %a = arith.constant tensor<2xi32>\n}\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%y = linalg.abs ins(%x)", "line 3: linalg.abs is no TOSA: it is what TOSA is lowered to"),
        (f'%y = "stablehlo.abs"(%x) : {TYPES}', "line 3: stablehlo.abs is no TOSA: stablehlo-opt"),
        (f"%y = tosa.fft2d %x : {TYPES}", "line 3: tosa.fft2d is not supported"),
        (f"%y = tosa.abs %z : {TYPES}", "damaged MLIR text"),
        (f"%y = tosa.abs %x : {TYPES[:-6]}", "line 4, column 5: damaged MLIR text: Expected 'x'"),
        (
            f'%z = "tosa.abs"(%x) : {OPEN}\n %y = "tosa.abs"(%x) : {TYPES}',
            "line 3: tensor<1x?x4x2xi8> leaves a size behind the batch open",
        ),
        (f'%z = "tosa.abs"(%x) : {OTHER}\n %y = "tosa.abs"(%x) : {TYPES}', "line 3: tosa.abs: its result has shape"),
        (f'%y = "tosa.clamp"(%x) : {TYPES}', "line 3: tosa.clamp: min_val None"),
        (f'%y = "tosa.tahn"(%x) : {TYPES}', "line 3: tosa.tahn is not supported (did you mean tanh?)"),
        ("%y = func.call @f(%x) : " + TYPES, "line 3: func.call is no TOSA: mlir-opt --inline"),
        (f"%y = tosa.abs %x {{input1_zp = 3 : i32}} : {TYPES}", "line 3: tosa.abs: input1_zp is an attribute of TOSA"),
        (
            f"%y = tosa.abs %z : {TYPES}\n    %z = tosa.abs %x : {TYPES}",
            "line 3: tosa.abs reads %z, which is made after it",
        ),
        (
            '%y = "tosa.const"() <{values = dense<0> : tensor<9223372036854775807x4xi8>}> : () -> tensor<1xi8>',
            "line 3, column 78: damaged MLIR text: a tensor of 36893488147419103228 elements",
        ),
        (
            '%y = "tosa.const"() <{values = dense<0> : tensor<1xi99999999999>}> : () -> tensor<1xi8>',
            "line 3: integers of 99999999999 bits",
        ),
        (
            f'%z = "tosa.abs"(%x) : {EMPTY}\n %y = "tosa.abs"(%x) : {TYPES}',
            "line 3: tensor<0x4xi8>; sizes of 1 and above are accepted",
        ),
        (
            '%y = "tosa.const"() <{values = dense<9223372036854775808> : tensor<1xindex>}> : () -> tensor<1xindex>',
            "line 3, column 41: damaged MLIR text: a value beyond the range of its type",
        ),
        ("word", "line 4, column 5: damaged MLIR text: no operation begins before this"),
        (f'%y = "tosa.cond_if"(%x) ({{\n^bb0:\n}}) : {TYPES}', "line 3: a block without yield at its end"),
    ],
)
def test_errors_have_one_line_and_a_place(line: str, message: str) -> None:
    with pytest.raises(TilewrightError) as error:
        tw.compile(f"{HEAD}    {line}\n{TAIL}")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n \n", "the text is empty"),
        ("\nfunc.func private @f(tensor<1xi8>) -> tensor<1xi8>\n", "line 2: 'f' has 0 blocks"),
        ("\nfunc.func @f(%x: tensor<1xi8>) {\n return\n}\n", "line 2: 'f' returns nothing"),
        ("\nfunc.func @f(%x: tensor<*xi8>) {\n return\n}\n", "line 2: tensor<*xi8>; ranked tensors are accepted"),
        ("\nfunc.func @f(%x: tensor<2x?xi8>) {\n return\n}\n", "line 2: tensor<2x?xi8> leaves a size behind"),
        ("func.func @f() {\n return\n}\nfunc.func @g() {\n return\n}\n", "line 4: 2 functions (f, g)"),
    ],
)
def test_errors_of_functions_have_a_place(text: str, message: str) -> None:
    with pytest.raises(TilewrightError) as error:
        tw.compile(text)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_versions() -> None:
    target = 'tosa.target_env = #tosa.target_env<specification_version = "VERSION">'
    head = HEAD.replace("module {", f"module attributes {{{target}}} {{")
    assert tw.compile(head.replace("VERSION", "1.0") + CLAMPS["newer"] + TAIL).outputs
    for version in ("2.0", "0.80", "V_2_0", "none"):
        with pytest.raises(TilewrightError, match=f"line 1: TOSA {version}; 1.x is accepted"):
            tw.compile(head.replace("VERSION", version) + CLAMPS["newer"] + TAIL)


def test_bytecode_and_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "net.mlir"
    path.write_bytes(b"ML\xefR\x00\x01")
    with pytest.raises(TilewrightError, match=r"net.mlir: MLIR bytecode(, which IREE or torch-mlir reads| that iree)"):
        tw.compile(path)
    with pytest.raises(TilewrightError, match="no such model file"):
        tw.compile(tmp_path / "none.mlir")


OPEN_BATCH = """func.func @main(%x: tensor<?x2x3xi8>) -> tensor<?x3x2xi8> {
  %s = tosa.const_shape {values = dense<[-1, 3, 2]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %y = tosa.reshape %x, %s : (tensor<?x2x3xi8>, !tosa.shape<3>) -> tensor<?x3x2xi8>
  return %y : tensor<?x3x2xi8>
}
"""


def test_a_batch_left_open_is_1_or_what_the_shape_says() -> None:
    one = tw.compile(OPEN_BATCH)
    assert one.inputs[0].shape == (1, 2, 3)
    assert any("the batch is left open and becomes 1" in note for note in one.notes)
    x = np.arange(24, dtype=np.int8).reshape(4, 2, 3)
    four = tw.compile(OPEN_BATCH, shapes={"input": (4, 2, 3)})
    np.testing.assert_array_equal(tw.Device("functional").run(four, {"input": x})["output"], x.reshape(4, 3, 2))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (4, 2, 3)}, "shape of 'x': the arguments are input"),
        ({"input": (4, 2, 5)}, r"shape \[4, 2, 5\] of 'input': the text has tensor<\?x2x3xi8>"),
        ({"input": (4, 2)}, r"shape \[4, 2\] of 'input'"),
    ],
)
def test_other_shapes_are_refused(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        tw.compile(OPEN_BATCH, shapes=shapes)


RESOURCE = """module {
  func.func @main(%x: tensor<2xi16>) -> tensor<2xi16> {
    %c = "tosa.const"() <{values = dense_resource<torch.w_1> : tensor<2xi16>}> : () -> tensor<2xi16>
    %y = tosa.maximum %x, %c : (tensor<2xi16>, tensor<2xi16>) -> tensor<2xi16>
    return %y : tensor<2xi16>
  }
}

{-#
  dialect_resources: {
    builtin: {
      torch.w: "0x020000000100",
      torch.w_1: "0x02000000FFFF2C01"
    }
  }
#-}
"""


def test_constants_behind_the_module() -> None:
    for _ in range(2):  # xDSL remembers the names of resources
        program = tw.compile(RESOURCE, cache=False)
        got = tw.Device("functional").run(program, {"input": np.array([-7, 7], np.int16)})["output"]
        np.testing.assert_array_equal(got, [-1, 300])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("FFFF2C01", "FFFF", "line 3: tosa.const: dense_resource torch.w_1 has 2 bytes; 4 are needed"),
        ("FFFF2C01", "FFFFQQ01", "line 3: tosa.const: dense_resource torch.w_1: no hexadecimal digits"),
        ("torch.w_1:", "torch.w_2:", "line 3: tosa.const: dense_resource torch.w_1 is not in the text"),
    ],
)
def test_damaged_constants_behind_the_module(old: str, new: str, message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        tw.compile(RESOURCE.replace(old, new))


@pytest.mark.skipif(find_spec("iree") is None, reason="IREE is not installed")
def test_bytecode_by_the_package_that_reads_it() -> None:
    from iree.compiler import ir

    text = HEAD + CLAMPS["generic"] + TAIL
    stream = io.BytesIO()
    with ir.Context():
        ir.Module.parse(text).operation.write_bytecode(stream)
    assert tw.compile(stream.getvalue()).content_hash() == tw.compile(text).content_hash()
    with pytest.raises(TilewrightError, match="MLIR bytecode that iree cannot read") as error:
        tw.compile(stream.getvalue()[:40])
    assert "\n" not in str(error.value)


def test_assembly_of_another_release_in_the_generic_form() -> None:
    text = (
        HEAD + "    %z = tosa.const {values = dense<3> : tensor<1xi8>} : () -> tensor<1xi8>\n" + CLAMPS["newer"] + TAIL
    )
    made = generic(text, OPERATIONS)
    assert '"tosa.clamp"(%x)' in made and '"tosa.const"()' in made
    assert tw.compile(made).content_hash() == tw.compile(text).content_hash()
    rescale = "    %y = tosa.rescale %x {rounding_mode = DOUBLE_ROUND} : " + TYPES + "\n"
    assert "rounding_mode = #tosa.rounding_mode<DOUBLE_ROUND>" in generic(HEAD + rescale + TAIL, OPERATIONS)
