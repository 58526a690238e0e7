"""Equations of Einsum that are none are refused before onnx sees them, which would never end with some."""

import pytest
from onnx import TensorProto, helper

from tests.common.onnx_models import model_of
from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.onnx.equations import check_equations
from tilewright.quantize.prepare import read

X = {"x": (TensorProto.FLOAT, [2, 3])}
Y = {"y": (TensorProto.FLOAT, ["n"])}


def einsum(equation: str | bytes) -> list:
    return [helper.make_node("Einsum", ["x"], ["y"], name="it", equation=equation)]


@pytest.mark.parametrize(
    "equation", ["ab->ba", "ab", "a b -> b a", "...b->b...", "ab->", "A...,...z,q->...", ",->", "", "ab,bc,cd->ad"]
)
def test_accepted(equation: str) -> None:
    check_equations(model_of(einsum(equation), X, Y))


@pytest.mark.parametrize(
    "equation", ["a.b->a", "a..b", "a....b", "...a...->a", "a1->a", "ab;ba", "a->b->c", "\ufffdab->a", b"a\xff", "a\tb"]
)
def test_refused(equation: str | bytes) -> None:
    with pytest.raises(CompileError, match=r"^Einsum 'it': equation '.*'; accepted are letters and one '\.\.\.' for"):
        check_equations(model_of(einsum(equation), X, Y))


def test_refused_wherever_a_model_is_read() -> None:
    """The equation is one that onnx would refuse in other words, not one that it would never end with."""
    model = model_of(einsum("a1->a"), X, Y)
    for take in (import_onnx, read):
        with pytest.raises(CompileError, match="Einsum 'it': equation 'a1->a'; accepted are"):
            take(model)


def test_branches_and_functions() -> None:
    branch = helper.make_graph(
        einsum("a.b"), "branch", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    )
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    with pytest.raises(CompileError, match=r"a\.b"):
        check_equations(model_of([choice], {"c": (TensorProto.BOOL, [])} | X, Y))
    model = model_of([helper.make_node("own", ["x"], ["y"], domain="d")], X, Y)
    opsets = [helper.make_opsetid("", 21)]
    model.functions.append(helper.make_function("d", "own", ["x"], ["y"], einsum("a..b"), opsets))
    with pytest.raises(CompileError, match=r"a\.\.b"):
        check_equations(model)
