"""Commands take a model whose batch is open: it has one element, or as many as the arrays that are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import tilewright as tw
from tests.common.onnx_models import graph_of
from tilewright import sweep
from tilewright.cli import cli
from tilewright.compiler.stages.note_forms import OPEN_BATCH

SIZES = ["N", 3, 8, 8]


def network(sizes: list[int | str | None]) -> onnx.ModelProto:
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    graph = graph_of(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], {"x": sizes}, {"y": [*sizes[:1], 4, 8, 8]}
    )
    graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    onnx.save(network(SIZES), "open.onnx")
    return "open.onnx"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments), prog_name="tilewright")
        found = capsys.readouterr()
        assert not ended.value.code, found.err
        return found.out

    return call


@pytest.mark.medium
def test_the_commands_say_it(model: str, run: Any) -> None:
    assert f"note: {OPEN_BATCH}dimension 0 of input 'x'" in run("compile", model, "-o", "a.twp")
    assert tw.load("a.twp").inputs[0].shape == (1, 3, 8, 8)
    assert f"note: {OPEN_BATCH}" in run("info", model)
    (note,) = [n for n in json.loads(run("info", model, "--json", "-"))["notes"] if n.startswith(OPEN_BATCH)]
    found = json.loads(run("run", model, "--check", "--json", "-"))
    assert found["check"]["equal"] and note in found["notes"] and found["outputs"]["y"]["shape"] == [1, 4, 8, 8]
    assert OPEN_BATCH not in run("info", model, "--shape", "x=2,3,8,8")


@pytest.mark.medium
def test_arrays_say_the_batch(model: str, run: Any) -> None:
    """Input arrays set the batch, even where the program of one element is in the cache already."""
    run("compile", model, "-o", "a.twp")
    np.save("four.npy", np.ones((4, 3, 8, 8), np.float32))
    found = json.loads(run("run", model, "--input", "four.npy", "--check", "--json", "-"))
    assert found["check"]["equal"] and found["outputs"]["y"]["shape"] == [4, 4, 8, 8] and found["notes"] != []
    assert not any(note.startswith(OPEN_BATCH) for note in found["notes"])
    Image.new("RGB", (8, 8)).save("one.png")
    assert json.loads(run("run", model, "--input", "one.png", "--json", "-"))["outputs"]["y"]["shape"] == [1, 4, 8, 8]


@pytest.mark.medium
def test_python_decides_when_it_runs(model: str) -> None:
    """`compile` leaves the batch open, `compile_program` does not; a check takes that of the inputs."""
    assert tw.compile_program(model).inputs[0].shape[0] == 1
    found = tw.compile(model)
    assert isinstance(found, tw.DynamicModel)
    for count in (1, 3):
        outputs = tw.Device("functional").run(found, {"x": np.ones((count, 3, 8, 8), np.float32)})
        assert outputs["y"].shape == (count, 4, 8, 8)
    assert tw.compile_program(model, batch=2).inputs[0].shape[0] == 2
    with pytest.raises(tw.TilewrightError, match="leaves dimension 0"):
        tw.compile_program(model, batch=None)
    report = tw.check(model, {"x": np.ones((3, 3, 8, 8), np.float32)})
    assert report.ok and report.rows[0].shape == (3, 4, 8, 8)
    assert tw.check(model).rows[0].shape == (1, 4, 8, 8)


def test_sweeps(model: str) -> None:
    (found,) = sweep.resolve([model])
    shape = onnx.load_from_string(found.content).graph.input[0].type.tensor_type.shape
    assert [d.dim_value for d in shape.dim] == [1, 3, 8, 8] and found.note.startswith(OPEN_BATCH)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("sizes", "given", "batch"), [(SIZES, [], 1), ([None, 3, 8, 8], [], 1), (SIZES, ["2,3,8,8"], 2)]
)
def test_quantize_writes_it(sizes: list[Any], given: list[str], batch: int, model: str, run: Any) -> None:
    onnx.save(network(sizes), "float.onnx")
    np.save("samples.npy", np.random.default_rng(1).standard_normal((4, 3, 8, 8)).astype(np.float32))
    options = [part for sizes_ in given for part in ("--shape", f"x={sizes_}")]
    common = ("quantize", "float.onnx", "--calibration", "samples.npy", "-o", "q.onnx", "--no-fit", *options)
    found = json.loads(run(*common, "--json", "-"))
    written = onnx.load("q.onnx").graph.input[0].type.tensor_type
    assert [d.dim_value for d in written.shape.dim] == [batch, 3, 8, 8]
    assert written.elem_type == TensorProto.FLOAT
    assert found.get("batches") == (None if given else {"x": 1})
    assert OPEN_BATCH not in run("info", "q.onnx")
