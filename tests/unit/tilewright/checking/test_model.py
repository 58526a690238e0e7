"""Checks against onnxruntime: a right program passes, every kind of damage is seen."""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright as tw
from tests.common.onnx_models import graph_of, model_of
from tilewright.checking.differences import compare
from tilewright.checking.onnxruntime_reference import Reference, downstream, load_model, same_bytes
from tilewright.checking.report import CheckReport


@pytest.fixture
def check(hand, hand_compiler, model_file, x):
    def run(keep="all", **options) -> CheckReport:
        device = tw.Device("functional", path="reference")
        return tw.check(model_file, {"x": x}, keep=keep, device=device, **options)

    return run


@pytest.fixture
def check_ties(hand, monkeypatch, request):
    """`check` of the network with 1.25 in place of 1: two and a half steps, so that every sum is a tie."""
    monkeypatch.setattr(hand, "ADDED", 1.25)
    return request.getfixturevalue("check")


def spoil(kernels, symbol, change):
    """Lets `change` have the result of a kernel as signed bytes."""
    good = kernels[symbol]

    def damaged(*views):
        good(*views)
        change(views[-1].view(np.int8))

    kernels[symbol] = damaged


def bump(index=slice(0, 1), by=1):
    def change(values):
        values[index] += np.int8(by)

    return change


def row(report, name):
    return next(r for r in report.rows if r.name == name)


@pytest.mark.medium
def test_bytes_quantised_while_the_model_runs_are_a_border():
    """Float ops before DynamicQuantizeLinear may flip a step: its bytes are compared, and put in for what follows."""
    r = np.random.default_rng(0)
    feeds = {"x": r.normal(0, 1, (2, 5, 24)).astype(np.float32)}
    fixed = {
        "w": r.normal(0, 0.3, (1, 48, 24)).astype(np.float32), "u": r.normal(0, 0.3, (1, 48, 16)).astype(np.float32),
        "m": r.integers(-127, 128, (16, 12)).astype(np.int8), "mz": np.int8(0), "ms": np.float32(0.01),
    }  # fmt: skip
    nodes = [
        helper.make_node("GRU", ["x", "w", "u"], ["", "h"], hidden_size=16),
        helper.make_node("DynamicQuantizeLinear", ["h"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "m", "z", "mz"], ["i"]), helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("Mul", ["s", "ms"], ["both"]), helper.make_node("Mul", ["f", "both"], ["y"]),
    ]  # fmt: skip
    report = tw.check(model_of(nodes, feeds, ["y"], fixed, opset=17).SerializeToString(), feeds, keep="all")
    assert report.ok and report.quantised == 1 and not report.fused
    found = row(report, "q")
    assert found.elements == 80 and "GRU: last-bit differences can flip it" in found.reason
    assert row(report, "y").depends_on == ["q"]


def test_right_program_passes(check):
    report = check()
    assert report.ok and report.mismatches == 0 and report.max_abs_difference == 0
    assert [r.name for r in report.rows] == ["b", "c", "y"]
    assert (report.tensors, report.elements) == (3, 192)
    assert report.reference.startswith("onnxruntime ")
    assert report.borders == {"b": "float Add"}
    assert (report.quantised, report.fused) == (2, [])
    assert report.end_to_end["elements"] == 0
    assert "equal" in report.summary()
    assert check("outputs").tensors == 1


@pytest.mark.parametrize("keep", ["outputs", "all"])
@pytest.mark.parametrize("symbol", ["f2", "f3"])
def test_one_wrong_byte_behind_the_border_is_a_mismatch(check, kernels, keep, symbol):
    spoil(kernels, symbol, bump(slice(3, 4), 1))
    report = check(keep)
    assert not report.ok and report.mismatches >= 1
    assert row(report, "c" if symbol == "f2" else "y").status == "mismatch"
    assert "differ, first in" in report.summary()


def test_rounding_flip_at_the_border_is_explained(check_ties, kernels, x):
    spoil(kernels, "f1", bump(by=1 if x.flat[0] % 2 == 0 else -1))  # to the other side of its tie
    report = check_ties()
    assert report.ok and report.mismatches == 0
    assert row(report, "b").status == "border" and row(report, "b").mismatches == 1
    assert row(report, "c").status == "equal" and row(report, "c").free_differences == 1
    end = report.end_to_end
    assert end["elements"] == 3 and end["reasons"] == {"b": "float Add"}
    assert report.to_dict()["border_differences"] == 1
    assert "behind float ops" in report.summary()


@pytest.mark.parametrize("keep", ["outputs", "all"])
def test_one_step_away_from_the_tie_is_a_mismatch(check_ties, kernels, x, keep):
    spoil(kernels, "f1", bump(by=-1 if x.flat[0] % 2 == 0 else 1))
    report = check_ties(keep)
    assert not report.ok and row(report, "b").status == "mismatch"
    assert row(report, "b").note == "1 of them are not next to a tie"


def test_without_the_floats_few_steps_are_explained(check_ties, kernels, x, monkeypatch):
    monkeypatch.setattr(Reference, "floats_of", lambda self, name: [])
    spoil(kernels, "f1", bump(by=-1 if x.flat[0] % 2 == 0 else 1))
    assert row(check_ties(), "b").status == "border"
    spoil(kernels, "f1", bump(slice(0, 20)))
    assert not check_ties().ok


def test_floats_before_a_rounding(model_file):
    reference = Reference(model_file)
    assert reference.floats_of("b") == ["bf"] and reference.floats_of("bf") == []


@pytest.mark.parametrize("keep", ["outputs", "all"])
@pytest.mark.parametrize("change", [bump(by=2), bump(slice(0, 20)), bump(slice(0, 64), 3)])
def test_too_much_at_the_border_is_a_mismatch(check, kernels, keep, change):
    spoil(kernels, "f1", change)
    report = check(keep)
    assert not report.ok and row(report, "b").status == "mismatch"


def test_flip_and_damage_together(check, kernels):
    spoil(kernels, "f1", bump())
    spoil(kernels, "f2", bump(slice(9, 10)))
    report = check("outputs")  # the outputs differ, so it looks closer by itself
    assert not report.ok and report.mode == "outputs"
    assert row(report, "c").mismatches == 1


def test_border_never_written(check, kernels):
    kernels["f1"] = lambda x, one, b: None
    report = check()
    assert not report.ok
    assert row(report, "b").status == "mismatch" and "never written" in row(report, "b").note


def test_reason_of_the_npu_excuses_one_step_of_few_elements(check, kernels, hand_compiler):
    def excuse(program: tw.Program) -> None:
        program.tensors[1].reason = "the reference rounds twice"  # c is computed by the NPU

    hand_compiler.changes.append(excuse)
    spoil(kernels, "f2", bump(by=2))
    assert not check().ok


def test_kept_and_normal_program_must_agree(check, kernels):
    spoil(kernels, "f1", bump())  # the border differs, so the outputs are not compared with the reference directly
    calls = []
    good = kernels["f3"]

    def first_run_wrong(c, y):
        good(c, y)
        if not calls:
            y.view(np.float32)[5] += 1
        calls.append(1)

    kernels["f3"] = first_run_wrong
    report = check()
    assert not report.ok and "other outputs than the normal one" in row(report, "y").note


def test_given_program_and_random_inputs(hand, hand_compiler, model_file):
    report = tw.check(model_file, program=hand.make_program(), seed=3, device=tw.Device("functional", path="reference"))
    assert report.ok and report.tensors == 1
    with pytest.raises(tw.UsageError, match="keep must be"):
        tw.check(model_file, keep="some")


def test_shape_and_type_differences(check, hand_compiler):
    def change_type(program: tw.Program) -> None:
        program.tensors[1].dtype = "uint8"

    hand_compiler.changes.append(change_type)
    report = check()
    assert not report.ok and "is uint8" in row(report, "c").note
    assert report.to_dict()["rows"][1]["max_abs_difference"] == "inf"


def test_fused_tensors_are_listed(check, hand_compiler):
    hand_compiler.changes.append(lambda program: program.tensors.pop(1))
    report = check()
    assert report.ok and report.fused == ["c"] and "1 of the model's 2" in report.summary()


class TestCompare:
    def test_integers(self):
        a = np.array([1, -128, 5], np.int8)
        assert compare(a, a).mismatches == 0
        d = compare(np.array([1, 127, 5], np.int8), a)
        assert (d.elements, d.mismatches, d.maximum) == (3, 1, 255.0)
        d = compare(np.array([2**63 - 1]), np.array([-(2**63)]))
        assert d.mismatches == 1 and d.maximum > 1e19

    def test_floats(self):
        b = np.array([0.0, 100.0, -1.0], np.float32)
        assert compare(b + np.float32(0.0005), b).mismatches == 0
        assert compare(b + np.float32(0.002), b).mismatches == 3
        strange = np.array([np.nan, np.inf, -np.inf], np.float32)
        assert compare(strange, strange).mismatches == 0
        assert compare(np.array([np.nan, 1.0], np.float32), np.array([1.0, np.nan], np.float32)).mismatches == 2
        assert compare(np.array([np.inf], np.float32), np.array([1.0], np.float32)).mismatches == 1
        assert compare(np.array([1e-9], np.float32), np.array([0.0], np.float32)).mismatches == 1

    def test_empty_and_bool(self):
        assert compare(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)).mismatches == 0
        assert compare(np.array([True, False]), np.array([True, True])).mismatches == 1


class TestReference:
    def test_intermediates(self, hand, x):
        reference = Reference(hand.make_model())
        assert reference.int8
        values, missing = reference.intermediates(["b", "c", "nothing"], {"x": x})
        np.testing.assert_array_equal(values["b"], x + 2)
        assert list(missing) == ["nothing"]

    def test_a_tensor_that_changes_the_reference_is_refused(self, hand, x):
        class Fussy(Reference):
            """An onnxruntime that computes something else while `c` is looked at."""

            def session(self, proto, *more):
                session = super().session(proto, *more)
                if not any(o.name == "c" for o in proto.graph.output):
                    return session
                return SimpleNamespace(run=lambda names, feeds: [v + 1 for v in session.run(names, feeds)])

        values, missing = Fussy(hand.make_model()).intermediates(["b", "c"], {"x": x})
        assert "b" in values and "c" not in values and "changes" in missing["c"]

    def test_errors(self, tmp_path, hand, x):
        with pytest.raises(tw.UsageError, match="cannot read"):
            load_model(tmp_path / "none.onnx")
        with pytest.raises(tw.UsageError):
            load_model(b"no model")
        with pytest.raises(tw.UsageError, match="cannot run the model"):
            Reference(hand.make_model()).run({"wrong": x})

    def test_activation_types(self, hand):
        model = onnx.ModelProto()
        model.CopyFrom(hand.make_model())
        model.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.uint8(0), "z"))
        model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
        assert not Reference(model).int8

    def test_downstream(self, hand):
        assert downstream(hand.make_model(), {"b": "why"}) == {n: ["b"] for n in ("b", "bd", "cf", "c", "y")}

    def test_downstream_of_a_node_that_repeats_another(self):
        """The compiler keeps one of them; what reads the other one depends on it as well."""
        zeros = {"c": np.zeros(1, np.float32), "same": np.zeros(1, np.float32), "other": np.ones(1, np.float32)}
        add = lambda c, y: helper.make_node("Add", ["x", c], [y])
        nodes = [add("c", "a"), add("same", "b"), add("other", "d"), helper.make_node("Neg", ["b"], ["y"])]
        nodes += [helper.make_node("Neg", ["d"], ["z"])]
        model = model_of(nodes, {"x": [1]}, {"y": [1], "z": [1]}, zeros)
        assert downstream(model, {"a": ""}) == {n: ["a"] for n in ("a", "b", "y")}
        drawn = [helper.make_node("RandomNormal", [], [n], shape=[1]) for n in "ab"]
        assert "b" not in downstream(model_of(drawn, {}, {"b": [1]}), {"a": ""})

    def test_downstream_through_subgraphs(self):
        inner = graph_of([helper.make_node("Identity", ["a"], ["t"])], {}, {"t": [1]})
        node = helper.make_node("If", ["cond"], ["y"], then_branch=inner, else_branch=inner)
        assert downstream(model_of([node], {}, {"y": [1]}), {"a": ""})["y"] == ["a"]

    def test_same_bytes(self):
        assert same_bytes(np.array([np.nan]), np.array([np.nan]))
        assert not same_bytes(np.array([0.0]), np.array([-0.0]))
        assert not same_bytes(np.array([1], np.int8), np.array([1], np.uint8))


@pytest.mark.medium
def test_products_with_blocks_of_4_bit_weights():
    """The reference computes in floats what the model says in floats: its default rounds activations to 8 bits."""
    random = np.random.default_rng(0)
    weights = random.integers(-8, 8, (64, 32))
    int4 = helper.make_tensor("w", onnx.TensorProto.INT4, weights.shape, weights.reshape(-1).tolist())
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["real"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "real"], ["y"]),
    ]
    x = random.standard_normal((4, 64)).astype(np.float32)
    model = model_of(nodes, {"x": x}, ["y"], {"scale": random.uniform(0.01, 0.02, (2, 32)).astype(np.float32)})
    model.graph.initializer.append(int4)
    report = tw.check(model, {"x": x}, config="tiny")
    assert report.ok, report.summary()
