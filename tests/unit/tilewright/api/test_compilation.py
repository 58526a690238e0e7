"""compile, load and random inputs."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.api.compilation import compile_program
from tilewright.compiler.options import CompileOptions


@pytest.fixture
def pipeline(monkeypatch, hand):
    """A stand-in for `compile_graph` that notes the graphs and options it is called with."""
    calls = []

    def compile_graph(graph, config, options, **_):
        calls.append((graph, options))
        return hand.make_program(options.keep, config)

    monkeypatch.setattr("tilewright.api.build.compile_graph", compile_graph)
    return calls


def test_compile_takes_every_kind_of_model_and_config(pipeline, hand, model_file, tmp_path):
    custom = tmp_path / "mine.toml"
    custom.write_text('base = "small"\nact_rows = 4096\n')
    for model in (str(model_file), model_file, model_file.read_bytes(), hand.make_model()):
        program = tw.compile(model)
        assert program.config.name == "base" and program.compile_seconds > 0
    for config, name in (
        ("tiny", "tiny"),
        (tw.NpuConfig.load("large"), "large"),
        (custom, "mine"),
        (str(custom), "mine"),
    ):
        assert tw.compile(model_file, config).config.name == name
    tw.compile(model_file, keep="all", effort=3, print_after=["eliminate"])
    graph, options = pipeline[-1]
    assert options == CompileOptions(keep="all", effort=3, print_after=("eliminate",))
    assert graph.inputs == ["x"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"model": "none.onnx"}, "no such model file: none.onnx"),
        ({"model": b"nonsense"}, "not an ONNX model"),
        ({"config": "huge"}, "unknown configuration 'huge'"),
        ({"keep": "some"}, "keep must be"),
        ({"shapes": {"q": [1]}}, "'q'"),
    ],
)
def test_compile_errors_are_one_line(pipeline, model_file, arguments, message):
    with pytest.raises(tw.TilewrightError, match=message) as caught:
        tw.compile(**({"model": model_file} | arguments))
    assert "\n" not in str(caught.value)


def test_batches_share_a_kept_program(monkeypatch, pipeline, model_file, tmp_path):
    """`compile`, which leaves a batch open, takes what `compile_program` has kept with one of 1, and not one of 4."""
    monkeypatch.setenv("TILEWRIGHT_PROGRAM_CACHE", "on")
    monkeypatch.setattr("tilewright.store.program_cache.directory", lambda: tmp_path)
    for batch, count in ((1, 1), (None, 1), (4, 2)):
        compile_program(model_file, "tiny", batch=batch)
        assert len(pipeline) == count
    tw.compile(model_file, "tiny")
    assert len(pipeline) == 2


def test_load(hand, tmp_path):
    path = tmp_path / "p.twp"
    hand.make_program().save(path)
    assert tw.load(path).content_hash() == hand.make_program().content_hash()
    with pytest.raises(tw.TilewrightError, match="cannot read"):
        tw.load(tmp_path / "none.twp")
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(tw.TilewrightError, match="damaged"):
        tw.load(path)


def test_a_saved_program_runs_the_same(hand, tmp_path, x):
    path = tmp_path / "p.twp"
    hand.make_program().save(path)
    device = tw.Device("functional", path="reference")
    a, b = (device.run(p, {"x": x})["y"] for p in (hand.make_program(), tw.load(path)))
    np.testing.assert_array_equal(a, b)


def test_random_inputs(hand):
    program = hand.make_program()
    first = program.inputs[0]
    again = tw.random_inputs(program, 5)["x"]
    np.testing.assert_array_equal(again, tw.random_inputs(program, 5)["x"])
    assert again.dtype == np.int8 and again.min() < -64 and again.max() > 64
    assert not np.array_equal(again, tw.random_inputs(program, 6)["x"])
    first.dtype, first.scale = "float32", None
    assert abs(tw.random_inputs(program)["x"].mean()) < 0.5
    program.input_ranges = {"x": (10.0, 20.0)}
    values = tw.random_inputs(program)["x"]
    assert values.dtype == np.float32 and 10 <= values.min() < 12 and 18 < values.max() <= 20
    first.dtype = "int64"
    assert {10, 20} < set(np.unique(tw.random_inputs(program)["x"])) <= set(range(10, 21))
    program.input_ranges = {}
    assert set(np.unique(tw.random_inputs(program)["x"])) <= set(range(10))
    first.dtype = "bool"
    assert tw.random_inputs(program)["x"].dtype == np.bool_
