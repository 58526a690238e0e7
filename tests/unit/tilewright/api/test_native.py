"""Models on the CPU alone: native models, threads, the check of the processor, `tune --cpu`, `bench --cpu`."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import tilewright as tw
from tests.common import onnx_models
from tilewright import zoo
from tilewright.api.native import NativeModel
from tilewright.cli import cli
from tilewright.compiler.cpu import findings
from tilewright.isa.program import Program
from tilewright.measure.cpu_cases import CASES
from tilewright.measure.cpu_speed import inputs_of


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return zoo.build("resnet8", batch_norm=True)


def reference(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> np.ndarray:
    return onnx_models.run(model, inputs)["output"]


@pytest.mark.medium
def test_native_model(model: onnx.ModelProto) -> None:
    native = NativeModel(model)
    inputs = inputs_of(model)
    (got,) = native(inputs).values()
    np.testing.assert_allclose(got, reference(model, inputs), rtol=1e-4, atol=1e-5)
    assert native.compile_seconds > 0
    assert native.segment.memory.live <= native.segment.memory.arena < native.segment.memory.separate


@pytest.mark.medium
def test_threads_and_program_file(model: onnx.ModelProto, tmp_path: Path) -> None:
    """The same bytes with two threads, from a file too."""
    inputs = inputs_of(model)
    results = []
    for threads in (1, 2):
        program = tw.compile_program(model, threads=threads, cache=False)
        program.save(tmp_path / "p.twp")
        loaded = tw.load(tmp_path / "p.twp")
        assert loaded.host.threads == threads
        with tw.Device("functional") as device:
            results.append(device.run(loaded, inputs)["output"])
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], reference(model, inputs), rtol=1e-4, atol=1e-5)
    for wrong in ({"threads": 0}, {"threads": 65}, {"threads": 2, "host": "aarch64-linux"}):
        with pytest.raises(tw.UsageError, match="threads"):
            tw.compile_program(model, **wrong)


@pytest.mark.medium
def test_a_thread_that_comes_late_leaves_memory_alone(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that starts late writes nothing: the others may be done with the kernel, and its memory may be
    another's."""
    native = NativeModel(model, threads=2)
    arena = native.segment.memory.arena  # the counters lie behind it
    entry_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    changed: list[int] = []

    class OneAfterTheOther:
        def run(self, entry: int, table: ctypes.Array[ctypes.c_void_p], workspace: int) -> None:
            call, counter = entry_type(entry), ctypes.c_int64()
            call(table, workspace, 0, ctypes.byref(counter))
            before = ctypes.string_at(workspace, arena)
            call(table, workspace, 1, ctypes.byref(counter))
            after = ctypes.string_at(workspace, arena)
            changed.append(sum(a != b for a, b in zip(before, after)))

    monkeypatch.setattr("tilewright.compiler.cpu.object.loader.pool_of", lambda threads: OneAfterTheOther())
    inputs = inputs_of(model)
    np.testing.assert_allclose(native(inputs)["output"], reference(model, inputs), rtol=1e-4, atol=1e-5)
    assert changed == [0]


@pytest.mark.medium
def test_processor_without_an_extension(tmp_path: Path) -> None:
    """A program made for another processor says so before anything runs."""
    program = tw.compile_program(zoo.build("resnet8"), cpu_only=True, cache=False)
    assert program.host.features
    program.host = replace(program.host, features=(*program.host.features, "avx999"))
    program.save(tmp_path / "p.twp")
    with tw.Device("functional") as device, pytest.raises(tw.ConfigMismatchError) as error:
        device.run(Program.load(tmp_path / "p.twp"), {"input": np.zeros((1, 3, 32, 32), np.float32)})
    assert "avx999" in str(error.value) and "compile the model again" in str(error.value)
    assert "avx512" not in str(error.value).partition("this processor")[0].replace("avx999", "")


def run_cli(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, arguments)
    return result.exit_code, result.output


@pytest.mark.slow
def test_tune_cpu(tmp_path: Path) -> None:
    onnx.save(zoo.build("resnet8"), tmp_path / "m.onnx")
    log, out = tmp_path / "log.jsonl", tmp_path / "out.json"
    model = str(tmp_path / "m.onnx")
    code, text = run_cli("tune", "--cpu", model, "--budget", "4", "--log", str(log), "--json", str(out))
    assert code == 0 and "kernels" in text
    found = json.loads(out.read_text())
    # How many were searched in that time is the machine's affair.
    assert len(found["kernels"]) + found["left"] > 0 and found["log"] == str(log) and found["processor"]
    kept = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    assert len(kept) == sum(bool(k["changes"]) for k in found["kernels"])
    assert all(k["version"] == findings.VERSION and k["seconds"] < k["default_seconds"] for k in kept)


def test_command_mistakes(tmp_path: Path) -> None:
    onnx.save(zoo.build("resnet8"), tmp_path / "m.onnx")
    model = str(tmp_path / "m.onnx")
    for arguments, what in (
        (("tune", "--cpu", model, "--config", "small"), "--config"),
        (("tune", "--cpu", model, "--for", "energy"), "--for"),
        (("tune", "--cpu", model, "--log", str(tmp_path / "no" / "log")), "log"),
        (("bench", "--cpu", "--only", "no such case"), "groups: networks"),
        (("bench", "--cpu", "--model", model, "--only", "gelu"), "--model"),
        (("bench", "--cpu", "--shape", "input=1,3,32,32"), "--model"),
        (("bench", "--threads", "2"), "--cpu"),
        (("bench", "--only", "gelu"), "--cpu"),
    ):
        code, text = run_cli(*arguments)
        assert code == 2 and what in text and len(text.strip().splitlines()) == 1, (arguments, text)


@pytest.mark.slow
def test_bench_cpu(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code, text = run_cli("bench", "--cpu", "--only", "conv 1x1 256", "--only", "1x2048x1000", "--json", str(out))
    assert code == 0 and "Conv 1x1" in text and "/ ort" in text
    found = json.loads(out.read_text())
    assert [c["name"] for c in found["cases"]] == [
        "MatMul 1x2048x1000 const B",
        "Conv 1x1 256 28x28",
        "QLinearConv 1x1 256 28x28",
    ]
    for case in found["cases"]:
        assert case["difference"] < 1e-5 or case["group"] == "int8"
        assert case["ratio"] == pytest.approx(case["seconds"]["ours"] / case["seconds"]["onnxruntime"])
        assert case["within"] == (case["ratio"] <= case["limit"])


@pytest.mark.medium
def test_bench_cpu_of_a_model(tmp_path: Path) -> None:
    """A file in place of the cases; the shapes that it leaves open are given."""
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", 64]) for n in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Softmax", ["x"], ["y"])], "g", values[:1], values[1:])
    opset = onnx.helper.make_opsetid("", 20)
    onnx.save(onnx.helper.make_model(graph, ir_version=10, opset_imports=[opset]), tmp_path / "m.onnx")
    out, arguments = tmp_path / "out.json", ("bench", "--cpu", "--model", str(tmp_path / "m.onnx"))
    code, text = run_cli(*arguments, "--shape", "x=9,64", "--threads", "2", "--json", str(out))
    found = json.loads(out.read_text())
    assert code == 0 and "2 thread(s)" in text and found["threads"] == 2
    (case,) = found["cases"]
    assert case["name"] == "m" and case["difference"] < 1e-5 and case["limit"] is None and case["within"]
    code, text = run_cli(*arguments)
    assert code == 0  # the batch is 1


def test_cases_are_told_apart() -> None:
    assert len({c.name for c in CASES}) == len(CASES)
    assert all(max(map(len, (c.name, c.group))) < 36 for c in CASES)
