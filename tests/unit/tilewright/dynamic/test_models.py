"""Dynamic models against onnxruntime at several shapes; the second time nothing is compiled."""

import numpy as np
import pytest
from onnx import helper

import tilewright as tw
from tests.common import dynamic_models
from tests.common.onnx_models import model_of
from tests.unit.tilewright.dynamic.reference import assert_same, reference
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.options import CompileOptions
from tilewright.dynamic.programs import PartPrograms
from tilewright.isa.config import PRESETS

R = np.random.default_rng(0)


def scalar(value, dtype=np.int64):
    return np.array(value, dtype)


CASES = {
    "greedy_decode": [
        {"tokens": np.array([t], np.int64), "limit": scalar(n)} for t, n in (([3, 5], 6), ([1, 2, 3, 4], 3), ([9], 0))
    ],
    "power_iteration": [
        {"start": R.standard_normal((8, 1), np.float32), "tolerance": scalar(t, np.float32)} for t in (1e-2, 1e-4)
    ],
    "windows": [{"x": np.arange(40, dtype=np.float32), "count": scalar(n)} for n in (30, 0)],
    "rows_above": [{"x": R.standard_normal((n, 6), np.float32)} for n in (5, 9)]
    + [{"x": -np.ones((3, 6), np.float32)}],
    "detector": [
        {"image": R.standard_normal((1, 3, 12, 12), np.float32), "most": scalar(m), "iou": scalar(i, np.float32),
         "worth": scalar(w, np.float32)}
        for m, i, w in ((5, 0.3, 0.5), (1, 0.1, 0.9), (50, 0.6, 0.2))
    ],
    "transformer": [{"tokens": R.integers(0, 40, shape)} for shape in ((1, 7), (2, 13), (3, 1))],
    "text_classifier": [
        {"words": np.array(text.split(), np.object_)} for text in ("The GOOD film", "bad bad", "nothing known here")
    ],
    "dynamic_batch_cnn": [{"input": R.standard_normal((n, 3, 8, 8), np.float32)} for n in (1, 3)],
}  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("name", CASES)
def test_against_onnxruntime(name):
    source = getattr(dynamic_models, name)()
    model, device = tw.compile(source, cache=False), tw.Device("functional")
    assert isinstance(model, tw.DynamicModel)
    for feeds in CASES[name]:
        got = device.run(model, feeds)
        for a, b in zip(got.values(), reference(source, feeds)):
            assert_same(a, b, rtol=1e-4)
    compiled = model.compilations
    again = [device.run(model, feeds) for feeds in CASES[name]]
    assert model.compilations == compiled > 0
    assert_same(list(again[0].values()), list(device.run(model, CASES[name][0]).values()))


def test_loops_compile_their_body_once():
    model = tw.compile(dynamic_models.power_iteration(), cache=False)
    found = model({"start": R.standard_normal((8, 1), np.float32), "tolerance": scalar(1e-5, np.float32)})
    assert found["steps"] > 5 and model.compilations <= 2
    assert len(model.ran) >= found["steps"]
    model = tw.compile(dynamic_models.windows(), cache=False)
    model(CASES["windows"][0])
    assert model.compilations <= 3 and len(model.ran) >= 60


@pytest.mark.medium
def test_the_npu_runs_every_batch():
    source = dynamic_models.dynamic_batch_cnn()
    model, device = tw.compile(source, cache=False), tw.Device("functional")
    for batch in (1, 2):
        device.run(model, {"input": np.zeros((batch, 3, 8, 8), np.float32)})
        (program,) = model.ran
        assert program.npu_macs == program.macs and device.counters.macs >= batch * 780_000
    x = R.standard_normal((2, 3, 8, 8), np.float32)
    report = tw.check(source, {"input": x}, keep="all")
    assert report.ok and report.tensors > 10


@pytest.mark.medium
@pytest.mark.usefixtures("empty_cache")
def test_programs_are_found_on_disk(monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_PROGRAM_CACHE", raising=False)
    first, second = (tw.DynamicModel(dynamic_models.rows_above()) for _ in range(2))
    feeds = CASES["rows_above"][0]
    a = first(feeds)
    b = second(feeds)
    assert first.compilations > 0 and second.compilations == 0
    assert_same(a["y"], b["y"])
    other = tw.DynamicModel(dynamic_models.rows_above(), "small")
    other(feeds)
    assert other.compilations > 0


@pytest.mark.parametrize(("kept_bytes", "compilations"), [(1 << 30, 2), (1, 4)])
def test_programs_used_longest_ago_are_dropped(kept_bytes, compilations):
    programs = PartPrograms("part", {}, PRESETS["tiny"], CompileOptions(), cache=False)
    programs.kept_bytes = kept_bytes
    for length in (3, 4, 3, 4):
        model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [1, length]}, {"y": [1, length]})
        programs.program(length, lambda model=model: import_onnx(model))
    assert programs.compilations == compilations


def test_values_fixed_at_compile_time():
    source = dynamic_models.model(
        "fixed (float[2, 3, 4] x, int64[k] axes) => (float[a, b] y) { y = ReduceSum <keepdims = 0> (x, axes) }"
    )
    x = R.standard_normal((2, 3, 4), np.float32)
    program = tw.compile(source, constants={"axes": [1]}, cache=False)
    assert isinstance(program, tw.Program) and [t.name for t in program.inputs] == ["x"]
    expected = reference(source, {"x": x, "axes": np.array([1])})[0]
    assert_same(tw.Device("functional").run(program, {"x": x})["y"], expected)
    assert_same(tw.compile(source, cache=False)({"x": x, "axes": np.array([1])})["y"], expected)


@pytest.mark.parametrize(
    "feeds, message",
    [
        ({"a": np.zeros((2, 4), np.float32)}, "missing input 'b' float32 4"),
        ({"a": np.zeros((2, 4), np.int32), "b": np.zeros(4, np.float32)}, "'a' must be float32, not int32"),
        ({"a": np.zeros((2, 5), np.float32), "b": np.zeros(4, np.float32)}, "'a' float32 nx4 cannot have shape 2x5"),
        ({"a": [1.0], "b": np.zeros(4, np.float32)}, "'a' must be a tensor, not a sequence of 1"),
        ({"a": np.zeros((2, 4), np.float32), "b": np.zeros(4, np.float32), "c": 1}, "unknown input 'c'"),
    ],
)
def test_wrong_inputs_are_named(feeds, message):
    source = dynamic_models.model("sum (float[n, 4] a, float[4] b) => (float[n, 4] c) { c = Add (a, b) }")
    with pytest.raises(tw.InputError, match=message):
        tw.compile(source, cache=False)(feeds)


def test_one_name_is_one_size():
    source = dynamic_models.model("sum (float[n] a, float[n] b) => (float[n] c) { c = Add (a, b) }")
    with pytest.raises(tw.InputError, match="'b' has 3 for 'n', which is 2 in 'a'"):
        tw.compile(source, cache=False)({"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32)})


def test_what_needs_one_program_says_so():
    source = dynamic_models.rows_above()
    with pytest.raises(tw.TilewrightError, match=r"NonZero 'found'.*cannot be known at compile time"):
        tw.compile_program(source)
    with pytest.raises(tw.TilewrightError, match=r"NonZero 'found'.*cannot be known at compile time"):
        tw.compile_program(source, shapes={"x": (3, 6)})
    with pytest.raises(tw.UsageError, match="no input 'z'"):
        tw.DynamicModel(source, shapes={"z": (1,)})
    with pytest.raises(tw.UsageError, match="contradicts"):
        tw.DynamicModel(source, shapes={"x": (1, 7)})
    model = tw.compile(source, cache=False)
    with pytest.raises(tw.UsageError, match="give the shapes of 'x' float32 nx6"):
        model.save("rows.twp")
    with pytest.raises(tw.UsageError, match="has no tensors to force"):
        tw.Device("functional").run(model, CASES["rows_above"][0], force={"y": np.zeros(1)})
