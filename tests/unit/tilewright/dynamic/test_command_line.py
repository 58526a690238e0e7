"""`tilewright run` and `compile` with models whose shapes come from their inputs."""

import json

import numpy as np
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


def test_sizes_come_from_the_inputs(run):
    model = write("transformer")
    np.save("tokens.npy", np.array([[1, 2, 3]]))
    found = json.loads(run("run", model, "tokens.npy", "--check", "--json", "-").stdout)
    assert found["outputs"]["logits"]["shape"] == [1, 3, 40] and found["check"]["equal"] and "programs" not in found
    assert "--shape tokens=1,1" in run("run", model, code=2).stderr
    assert "--shape tokens=1,1" in run("compile", model, "-o", "t.twp", code=2).stderr
    run("compile", model, "-o", "t.twp", "--shape", "tokens=2,5")


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
    found = json.loads(run("run", "s.twp", "--check", "--reference", model, "--json", "-", code=2).stdout or "{}")
    assert not found  # the reference still wants the axes
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
