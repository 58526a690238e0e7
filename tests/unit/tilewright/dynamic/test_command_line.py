"""`tilewright run` and `compile` with models whose shapes come from their inputs."""

import json

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from tests.common import dynamic_models
from tilewright.cli import cli

SUM = "sum (float[n, 4] a, int64[k] axes) => (float[p, q] y) { y = ReduceSum <keepdims = 1> (a, axes) }"

PARTS = """
    parts (float[n, 4] x) => (seq(float[n, 2]) s) {
        two = Constant <value: tensor = int64 {2}> ()
        s = SplitToSequence <axis = 1> (x, two)
    }"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Invokes `tilewright` in an empty folder; checks the exit code and that errors are one line."""
    monkeypatch.chdir(tmp_path)

    def invoke(*args, code=0):
        result = CliRunner().invoke(cli, [str(a) for a in args], prog_name="tilewright")
        assert result.exit_code == code, (result.output, result.exception)
        if code > 1:
            assert len(result.stderr.strip().splitlines()) == 1, result.stderr
        return result

    return invoke


def write(name, model=None):
    proto = getattr(dynamic_models, name)() if model is None else dynamic_models.model(model)
    with open(f"{name}.onnx", "wb") as file:
        file.write(proto.SerializeToString())
    return f"{name}.onnx"


@pytest.mark.medium
def test_sizes_come_from_the_inputs(run):
    model = write("transformer")
    np.save("tokens.npy", np.array([[1, 2, 3]]))
    found = json.loads(run("run", model, "tokens.npy", "--check", "--json", "-").stdout)
    assert found["outputs"]["logits"]["shape"] == [1, 3, 40] and found["check"]["equal"] and "programs" not in found
    assert "--shape tokens=1,1" in run("run", model, code=2).stderr
    assert "--shape tokens=1,1" in run("compile", model, "-o", "t.twp", code=2).stderr
    run("compile", model, "-o", "t.twp", "--shape", "tokens=2,5")


@pytest.mark.medium
def test_parts(run):
    model = write("rows_above")
    np.savez("in.npz", x=np.random.default_rng(0).standard_normal((6, 6), np.float32))
    found = json.loads(run("run", model, "in.npz", "--check", "--json", "-").stdout)
    assert found["programs"] == 2 and found["check"]["equal"] and found["macs"] > 0
    assert "2 programs" in run("run", model, "--shape", "x=5,6", "--check").stdout
    assert "outputs only" in run("run", model, "in.npz", "--check=all", code=2).stderr
    assert "`tilewright run`" in run("compile", model, "-o", "x.twp", "--shape", "x=5,6", code=2).stderr
    timeline = ("--timeline", "t.json", "--backend", "cycle")
    assert "one program" in run("run", model, "in.npz", *timeline, code=2).stderr
    assert "--state needs one program" in run("run", model, "in.npz", "--state", "auto", code=2).stderr


RATES = """
    rates (float[b, n] x, float[b, 4] state, int64 rate) => (float[b, m] y, float[b, k] next) {
        wide = Constant <value: tensor = int64 {16000}> ()
        is_wide = Equal (rate, wide)
        y, next = If (is_wide) <
            then_branch: graph = sixteen () => (float[b, m] y1, float[b, k] s1) {
                shape = Constant <value_ints = [1, 8, 4]> ()
                r = Reshape (x, shape)
                axes = Constant <value_ints = [1]> ()
                t = ReduceSum <keepdims = 0> (r, axes)
                s1 = Add (t, state)
                y1 = Tanh (s1)
            }, else_branch: graph = eight () => (float[b, m] y2, float[b, k] s2) {
                shape = Constant <value_ints = [1, 4, 4]> ()
                r = Reshape (x, shape)
                axes = Constant <value_ints = [1]> ()
                t = ReduceMean <keepdims = 0> (r, axes)
                s2 = Sub (t, state)
                half = Sigmoid (s2)
                y2 = Mul (half, s2)
            }>
    }"""


@pytest.mark.medium
def test_a_branch_that_is_not_taken_need_not_fit(run):
    """Two rates in one model, as voice activity detectors have them; the state is carried through files."""
    model, r = write("rates", RATES), np.random.default_rng(0)
    for rate, size in ((16000, 32), (8000, 16)):
        state = np.zeros((1, 4), np.float32)
        for _step in range(3):
            np.savez("in.npz", x=r.normal(0, 1, (1, size)).astype(np.float32), state=state, rate=np.array(rate))
            found = json.loads(run("run", model, "in.npz", "--check", "--output", "out", "--json", "-").stdout)
            assert found["check"]["equal"]
            state = np.load("out/next.npy")
    message = run("compile", model, "-o", "r.twp", "--shape", "x=1,32", "--shape", "state=1,4", code=2).stderr
    assert "condition 'is_wide' (it follows from 'rate')" in message and "--value" in message
    run("compile", model, "-o", "r.twp", "--shape", "x=1,32", "--shape", "state=1,4", "--value", "rate=16000")


def test_dimensions_named_alike_by_a_question_mark_are_independent(run):
    """Dimensions all named "?", as Paddle's exporter writes them, are independent."""
    model = write("open", "open (float[n, 3, h, w] x, float[k] y) => (float[n, 3, h, w] z) { z = Mul (x, y) }")
    proto = onnx.load(model)
    for value in proto.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = "?"
    onnx.save(proto, model)
    np.savez("in.npz", x=np.ones((2, 3, 8, 6), np.float32), y=np.ones(6, np.float32))
    assert json.loads(run("run", model, "in.npz", "--check", "--json", "-").stdout)["check"]["equal"]
    run("compile", model, "-o", "o.twp", "--shape", "x=2,3,8,6", "--shape", "y=1")
    assert "--shape x=1,3,224,224" in run("compile", model, "-o", "o.twp", "--shape", "y=1", code=2).stderr
    wrong = run("compile", model, "-o", "o.twp", "--shape", "x=2,4,8,6", "--shape", "y=1", code=2).stderr
    assert "'x' has 4 in dimension 1; the model fixes it to 3" in wrong
    named = write("named", "named (float[n, n] x) => (float[n, n] z) { z = Relu (x) }")
    assert "in dimension 1, which the model calls 'n'" in run("run", named, "--shape", "x=2,3", code=2).stderr


def test_strings_and_sequences_are_written(run):
    model = write("text_classifier")
    np.savez("text.npz", words=np.array(["bad", "film"]))
    run("run", model, "text.npz", "--check", "--output", "out")
    assert np.load("out/label.npy").tolist() == ["negative"]
    assert "give input 'words' string 3 by --input" in run("run", model, "--shape", "words=3", code=2).stderr
    parts = write("parts", PARTS)
    run("run", parts, "--shape", "x=3,4", "--check", "--output", "out")
    assert [a.shape for a in np.load("out/s.npz").values()] == [(3, 2), (3, 2)]


def test_fixed_values(run):
    model = write("sum", SUM)
    run("compile", model, "-o", "s.twp", "--shape", "a=3,4", "--value", "axes=1")
    found = json.loads(run("run", "s.twp", "--check", "--reference", model, "--json", "-", code=2).stdout)
    assert "['axes']" in found["error"] and found["exit_code"] == 2  # the reference still wants the axes
    np.save("axes.npy", np.array([0, 1]))
    text = run("run", model, "--shape", "a=3,4", "--value", "axes=axes.npy", "--check", "--json", "-").stdout
    assert json.loads(text)["outputs"]["y"]["shape"] == [1, 1] and json.loads(text)["check"]["equal"]


@pytest.mark.parametrize(
    "value, message",
    [
        ("b=1", "no such input"),
        ("axes", "must be a name and a value"),
        ("axes=x", "must be int64 numbers"),
        ("a=1", "give a .npy file"),
        ("axes=none.npy", "cannot read"),
    ],
)
def test_wrong_values(run, value, message):
    assert message in run("compile", write("sum", SUM), "-o", "s.twp", "--value", value, code=2).stderr
