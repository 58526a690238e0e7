"""Floats may differ by rounding: how much that is, and that a wrong element is still found."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tests.common.onnx_models import graph_of, model_of
from tilewright.checking.differences import Rule, compare
from tilewright.checking.onnxruntime_reference import Reference
from tilewright.checking.tolerance import (
    LEAST,
    Conditioning,
    Roundings,
    Tolerance,
    default_tolerance,
    onnx_roundings,
    spacing,
)

R = np.random.default_rng(5)


def dense(depth: int, size: int, last: str = "Identity", gain: float = 1.0, seed: int = 1) -> onnx.ModelProto:
    """`depth` times MatMul and Tanh, and one operator more."""
    random = np.random.default_rng(seed)
    nodes, initializers, x = [], {}, "x"
    for k in range(depth):
        initializers[f"w{k}"] = (random.standard_normal((size, size)) / size**0.5).astype(np.float32)
        nodes += [helper.make_node("MatMul", [x, f"w{k}"], [f"m{k}"]), helper.make_node("Tanh", [f"m{k}"], [f"t{k}"])]
        x = f"t{k}"
    initializers["gain"] = np.float32(gain)
    nodes += [helper.make_node("Mul", [x, "gain"], ["scaled"]), helper.make_node(last, ["scaled"], ["y"])]
    graph = graph_of(nodes, {"x": [1, size]}, {"y": [1, size]})
    graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in initializers.items())
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


class TestParse:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1e-4", Tolerance(relative=1e-4)),
            ("rel=1e-3,abs=1e-6,ulp=8", Tolerance(1e-6, 1e-3, 8)),
            ("ulp=2", Tolerance(ulp=2)),
            ("0", Tolerance(relative=0)),
        ],
    )
    def test_forms(self, text: str, expected: Tolerance) -> None:
        assert Tolerance.parse(text) == expected
        assert Tolerance.parse(str(expected)) == expected

    @pytest.mark.parametrize("text", ["", "much", "rel=", "-1", "inf", "nan", "ulp=1,ulp=2", "percent=3", "1,2"])
    def test_others_are_refused(self, text: str) -> None:
        with pytest.raises(tw.UsageError, match="give a number"):
            Tolerance.parse(text)


class TestLimits:
    def test_each_kind(self) -> None:
        b = np.array([0.0, 1.0, -4.0], np.float32)
        for tolerance, limits in (
            (Tolerance(absolute=0.5), [0.5] * 3),
            (Tolerance(relative=0.1), [0.4] * 3),
            (Tolerance(ulp=2), [2 * 2.0**-149, 2.0**-22, 2.0**-20]),
        ):
            np.testing.assert_allclose(np.broadcast_to(tolerance.limits(b), 3), limits)
        assert compare(np.nextafter(b, np.float32(9)), b, Tolerance(ulp=1)).mismatches == 0
        assert compare(np.nextafter(b, np.float32(9)), b, Tolerance(ulp=0.4)).mismatches == 3

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_spacing_is_that_of_numpy(self, dtype) -> None:
        values = np.array([0, 1, -1.5, 3e-6, 1000, np.finfo(dtype).tiny], dtype)
        np.testing.assert_array_equal(spacing(values), np.spacing(np.abs(values)).astype(np.float64))
        assert spacing(np.array([np.inf, np.nan], dtype)).tolist() == [0, 0]

    def test_strange_values(self) -> None:
        strange = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
        assert compare(strange, strange, Tolerance(relative=0)).mismatches == 0
        assert compare(strange[::-1].copy(), strange, Tolerance(relative=1)).mismatches == 4

    def test_default_by_dtype(self) -> None:
        found = {name: default_tolerance(Roundings(), name).relative for name in LEAST}
        assert found == pytest.approx(LEAST, rel=1e-6)
        one = np.array([1.0, 0.25])
        for dtype in (np.float16, ml_dtypes.bfloat16, np.float32):
            value = one.astype(dtype)
            off = (one * (1 + float(ml_dtypes.finfo(dtype).eps))).astype(dtype)
            assert compare(off, value).mismatches == 0
            assert compare((one * 1.1).astype(dtype), value).mismatches == 2
        byte = one.astype(ml_dtypes.float8_e4m3fn)
        assert compare((one * 1.2).astype(byte.dtype), byte).mismatches == 2

    def test_a_tensor_of_what_cancellation_left(self) -> None:
        """4.5e-14 beside an exact 0 is rounding; 1e-9 is not."""
        zero = np.zeros(3, np.float32)
        assert compare(zero + np.float32(4.5e-14), zero).mismatches == 0
        assert compare(zero + np.float32(1e-9), zero).mismatches == 3

    def test_what_a_sigmoid_made_of_a_blank_page(self) -> None:
        """Near 0 the reference is off in proportion to 1; other tensors are not let through for that."""
        roundings = onnx_roundings(dense(1, 4, "Sigmoid"))
        expected = np.full(4, 1e-3, np.float32)
        off = expected + np.float32(6e-8)
        for name, passes in (("y", True), ("scaled", False)):
            assert (Rule(roundings=roundings).compare(name, off, expected).mismatches == 0) == passes
        assert Rule(roundings=roundings).compare("y", expected + np.float32(1e-6), expected).mismatches == 4

    def test_what_a_sigmoid_in_a_branch_made(self) -> None:
        """An If hands on what its branches give."""
        of = lambda op: f"r () => (float[4] {op}) {{ {op} = {op} (x) }}"
        text = f"g (float[4] x, bool c) => (float[4] y, float[4] z) {{\n y = If (c) <then_branch = {of('Sigmoid')}, "
        text += f"else_branch = {of('Relu')}>\n z = If (c) <then_branch = {of('Neg')}, else_branch = {of('Relu')}> }}"
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')
        assert {"y", "Sigmoid"} <= onnx_roundings(model).bounded and "z" not in onnx_roundings(model).bounded

    def test_grows_with_the_length_of_the_sums(self) -> None:
        short, long = (default_tolerance(Roundings(terms=n), "float32").relative for n in (10_000, 1_000_000))
        assert short is not None and long is not None
        assert 2e-5 < short < 3e-5 and long == pytest.approx(10 * short)


class TestRoundings:
    def test_sums_of_constant_weights(self) -> None:
        found = onnx_roundings(dense(3, 64))
        assert (found.terms, found.nodes, found.narrow) == (3 * 64 + 3 + 2, 8, "")

    def test_convolutions(self) -> None:
        nodes = [
            helper.make_node("Conv", ["x", "a"], ["c"]),
            helper.make_node("ConvTranspose", ["c", "b"], ["y"]),
        ]
        graph = graph_of(nodes, {"x": [1, 3, 8, 8]}, {"y": [1, 5, 8, 8]})
        weights = {"a": np.zeros((4, 3, 3, 3), np.float32), "b": np.zeros((4, 5, 3, 3), np.float32)}
        graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in weights.items())
        assert onnx_roundings(helper.make_model(graph)).terms == 27 + 36

    def test_half_precision_inside(self) -> None:
        nodes = [
            helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
            helper.make_node("Sin", ["h"], ["s"]),
            helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
        ]
        found = onnx_roundings(model_of(nodes, {"x": [4]}, {"y": [4]}))
        assert found.narrow == "float16" and found.relative("float32") >= LEAST["float16"]
        weights_only = model_of([nodes[0], helper.make_node("Cast", ["h"], ["y"], to=1)], {"x": [4]}, {"y": [4]})
        assert onnx_roundings(weights_only).narrow == ""


class TestSixteenBits:
    """Activations of 16 bits are rounded from floats; single steps may differ, and nothing more."""

    @staticmethod
    def model(output: int = TensorProto.INT16) -> onnx.ModelProto:
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
            helper.make_node("Softmax", ["d"], ["f"]),
            helper.make_node("QuantizeLinear", ["f", "s", "z"], ["y"]),
        ]
        graph = graph_of(nodes, {"x": [2, 500]}, {"y": [2, 500]})
        graph.output[0].type.tensor_type.elem_type = output
        values = {"s": np.float32(2.0**-14), "z": np.int16(0)}
        graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in values.items())
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        model.ir_version = 10
        return model

    def test_steps_pass_and_wrong_elements_do_not(self) -> None:
        rule = Rule(None, onnx_roundings(self.model()))
        assert rule.roundings.sixteen == 2 and rule.roundings.steps() == 6
        b = np.array([-300, 0, 9000], np.int16)
        found = rule.compare("y", b + np.array([1, -1, 6], np.int16), b)
        assert not found.mismatches and found.maximum == 6 and "of 65536 steps" in found.note
        assert rule.compare("y", b + np.array([0, 0, 7], np.int16), b).mismatches == 1
        assert Rule().compare("y", b + np.array([0, 0, 1], np.int16), b).mismatches == 1
        assert rule.compare("y", b.astype(np.int32), b).mismatches == 3

    def test_check_and_notes(self) -> None:
        program = tw.compile_program(self.model(), cache=False)
        assert any(note.startswith("16-bit activations: 2 tensors (the first is 'q')") for note in program.notes)
        assert tw.check(self.model(), program=program).ok


def rule_for(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> tuple[Rule, dict[str, np.ndarray]]:
    reference = Reference(model)
    expected = reference.run(inputs)
    return Rule(None, reference.roundings(), Conditioning(reference.run, inputs, expected)), expected


class TestConditioning:
    """A sharp Sigmoid makes much of a rounding; what it makes of the inputs' last bits is allowed, not more."""

    model = dense(4, 512, "Sigmoid", gain=2000.0)
    inputs = {"x": R.standard_normal((1, 512)).astype(np.float32)}

    def test_what_rounding_does_passes(self) -> None:
        rule, expected = rule_for(self.model, self.inputs)
        moved = {"x": np.nextafter(self.inputs["x"], np.float32(np.inf))}
        got = Reference(self.model).run(moved)["y"]
        plain = compare(got, expected["y"], default_tolerance(rule.roundings, "float32"))
        found = rule.compare("y", got, expected["y"])
        assert plain.mismatches and not found.mismatches
        assert "amplifies" in found.note and plain.limit < found.limit <= 1e-3

    def test_a_wrong_element_is_found(self) -> None:
        rule, expected = rule_for(self.model, self.inputs)
        for index in range(0, 512, 70):
            got = expected["y"].copy()
            got[0, index] += 2e-3
            assert rule.compare("y", got, expected["y"]).mismatches == 1

    def test_a_wrong_weight_is_found(self) -> None:
        """One weight of 64 x 64 in any layer, off by a hundredth of the greatest."""
        for layer in range(4):
            model = onnx.ModelProto()
            model.CopyFrom(dense(4, 64))
            inputs = {"x": self.inputs["x"][:, :64]}
            rule, expected = rule_for(model, inputs)
            weights = next(i for i in model.graph.initializer if i.name == f"w{layer}")
            values = numpy_helper.to_array(weights).copy()
            values[5, 9] += np.abs(values).max() / 100
            weights.CopyFrom(numpy_helper.from_array(values, weights.name))
            assert rule.compare("y", Reference(model).run(inputs)["y"], expected["y"]).mismatches

    def test_networks_with_integers_are_not_measured(self) -> None:
        assert Reference(self.model).floats_only()
        nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
                 helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]  # fmt: skip
        assert not Reference(model_of(nodes, {"x": [4]}, {"y": [4]})).floats_only()

    def test_integer_inputs_tell_nothing(self) -> None:
        inputs = {"x": np.arange(4)}
        assert Conditioning(lambda _: {}, inputs, {}).limit("y") == 0


def test_check_takes_a_tolerance() -> None:
    model, inputs = dense(3, 64), {"x": R.standard_normal((1, 64)).astype(np.float32)}
    report = tw.check(model, inputs)
    assert report.ok and report.rows[0].range > 0 and "terms" in report.tolerance
    strict = tw.check(model, inputs, tolerance="rel=0")
    assert strict.tolerance == "rel=0" and strict.ok == (not report.max_abs_difference)
    assert tw.check(model, inputs, tolerance=0.5).ok
    with pytest.raises(tw.UsageError, match="tolerance"):
        tw.check(model, inputs, tolerance="much")


def test_a_wrong_program_is_found() -> None:
    """The program of another network with one other weight, against this network."""
    inputs = {"x": R.standard_normal((1, 64)).astype(np.float32)}
    other = dense(3, 64)
    weights = other.graph.initializer[1]
    values = numpy_helper.to_array(weights).copy()
    values[3, 3] += 0.001
    weights.CopyFrom(numpy_helper.from_array(values, weights.name))
    report = tw.check(dense(3, 64), inputs, program=tw.compile_program(other, cache=False))
    assert not report.ok and report.mismatches
