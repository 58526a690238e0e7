"""`tilewright explain`, and the same numbers in `run --json` and the cycle benchmark."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from tests.common.paths import ROOT
from tilewright.api.compilation import compile_program
from tilewright.cli import cli
from tilewright.fpga.boards import BOARDS
from tilewright.isa.config import preset
from tilewright.measure.clock import at_board
from tilewright.measure.explain import explain
from tilewright.measure.labels import short, short_name
from tilewright.measure.roofline import figure, points
from tilewright.runtime.cost import run_npu_steps
from tilewright.simulator.cycle import CycleDevice
from tilewright.zoo import build_quantized

pytestmark = pytest.mark.usefixtures("compiled_once")

MODEL = ROOT / "examples" / "digits" / "digits_int8.onnx"


def invoke(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="tilewright")
    assert done.exit_code == code, done.output
    return done


@pytest.mark.medium
def test_json() -> None:
    found = json.loads(invoke("explain", MODEL, "--config", "tiny", "--json", "-").stdout)
    layers = found["layers"]
    assert found["cycles"] == sum(row["cycles"] for row in layers)
    assert found["bound_cycles"] == sum(row["bound_cycles"] for row in layers)
    assert found["cycles"] - found["bound_cycles"] == sum(found["losses"].values())
    assert found["utilization"] == found["bound_cycles"] / found["cycles"]
    for row in layers:
        assert row["compute_cycles"] <= row["bound_cycles"] <= max(row["compute_cycles"], row["memory_cycles"])
        assert row["cycles"] - row["bound_cycles"] == sum(row["losses"].values())
        assert row["fill"].keys() <= row["spent"].keys()
    (ends,) = found["ends"]
    assert ends["turns"] == 1 and ends["between"] == []
    assert [op["op"] for op in ends["front"]] == ["QuantizeLinear", "Relayout"]
    assert {op["reason"] for op in ends["behind"]} == {"to or from blocks of channels", "bytes to floats"}
    assert all(layer["name"] not in {row["name"] for row in layers} for layer in found["cpu_layers"])


@pytest.mark.medium
def test_table_and_memory_options() -> None:
    text = invoke("explain", MODEL, "--config", "tiny").stdout
    assert "bound" in text and "on the CPU, by a model of" in text and "latency about" in text
    assert "before the NPU's first turn: 1 QuantizeLinear (floats to bytes), 1 Relayout" in text
    assert max(map(len, text.splitlines())) <= 160

    def cycles(*options: object) -> int:
        return int(json.loads(invoke("explain", MODEL, "--json", "-", *options).stdout)["cycles"])

    assert cycles() < cycles("--latency", 400) < cycles("--latency", 400, "--interval", 4)
    assert cycles("--interval", 2) < cycles("--interval", 2.5) < cycles("--interval", 3)


@pytest.mark.medium
def test_memory_of_a_board() -> None:
    """Memory and clock are those of the board's point, but for what is given; schedules are made for them."""
    config, timing = preset("small"), at_board("ulx3s_85f", preset("small"))[1]
    board = ("--config", "small", "--board", "ulx3s_85f")
    found = json.loads(invoke("explain", MODEL, *board, "--json", "-").stdout)
    program = compile_program(MODEL, config, memory=timing, cache=False)
    assert found["cycles"] == run_npu_steps(program, CycleDevice(config, timing, functional=False)).cycles
    assert found["clock_mhz"] == BOARDS["ulx3s_85f"].points["small"].clock_mhz
    slow = json.loads(invoke("explain", MODEL, *board, "--clock", 20, "--json", "-").stdout)
    assert slow["cycles"] < found["cycles"] and slow["clock_mhz"] == 20
    block_ram = json.loads(invoke("explain", MODEL, *board, "--memory", "bram", "--json", "-").stdout)
    assert block_ram["cycles"] < found["cycles"]


@pytest.mark.medium
@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_plot(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"roofline.{suffix}"
    invoke("explain", MODEL, "--config", "tiny", "--plot", out)
    data = out.read_bytes()
    assert data.startswith({"png": b"\x89PNG", "svg": b"<?xml", "html": b"<!DOCTYPE html>"}[suffix])
    assert suffix == "png" or b"</svg>" in data


@pytest.mark.medium
def test_mistakes(tmp_path: Path) -> None:
    assert "unknown board 'nix'; boards: " in invoke("explain", MODEL, "--board", "nix", code=2).stderr
    board = ("explain", MODEL, "--board", "ulx3s_85f")
    assert "--memory must be bram or sdram, not 'nix'" in invoke(*board, "--memory", "nix", code=2).stderr
    assert "it is for --board, which is not given" in invoke("explain", MODEL, "--memory", "sdram", code=2).stderr
    assert ".png, .svg, .html" in invoke("explain", MODEL, "--plot", tmp_path / "x.pdf", code=2).stderr
    assert "no such directory" in invoke("explain", MODEL, "--plot", tmp_path / "no" / "x.png", code=2).stderr
    program = tmp_path / "digits.twp"
    invoke("compile", MODEL, "-o", program, "--config", "tiny")
    assert "compiled already" in invoke("explain", program, "--config", "base", code=2).stderr
    assert "--state has no effect on it" in invoke("explain", program, "--state", "auto", code=2).stderr
    assert json.loads(invoke("explain", program, "--json", "-").stdout)["config"] == "tiny"


@pytest.mark.medium
def test_states(tmp_path: Path) -> None:
    """A prompt is one turn of the NPU where caches are states; else the CPU puts its rows in. `info` and `run` compile
    it alike."""
    model = tmp_path / "llama.onnx"
    sizes = {"layers": 1, "width": 96, "heads": 3, "kv_heads": 1, "hidden": 64, "window": 32}
    onnx.save(build_quantized("micro_llama", whole=True, **sizes), str(model))
    options = ("--shape", "input_ids=1,8", "--state", "auto", "--rising", "position_ids", "--last", "logits")
    found, plain = (
        json.loads(invoke("explain", model, *given, "--json", "-").stdout) for given in (options, options[:2])
    )
    assert found["latency"]["npu_turns"] == 1 < plain["latency"]["npu_turns"]
    told = json.loads(invoke("info", model, *options, "--json", "-").stdout)
    assert told["npu_turns"] == 1 and [s["shape"] for s in told["states"]] == [[1, 1, 32, 32]] * 2
    ran = json.loads(invoke("run", model, *options, "--backend", "cycle", "--json", "-").stdout)
    assert ran["cycles"] == found["cycles"] and list(ran["outputs"]) == ["logits"]
    assert "leave out --state" in invoke("run", model, *options, "--check", code=2).stderr
    assert "leave out --last" in invoke("run", model, "--last", "logits", "--check", code=2).stderr


def check_performance(found: dict[str, Any]) -> None:
    assert 0 < found["bound_cycles"] <= found["cycles"]
    assert found["utilization"] == found["bound_cycles"] / found["cycles"]
    assert found["bytes_read"] > found["bytes_written"] > 0
    assert set(found["engines"]) == {"LOAD", "GEMM", "VECTOR", "STORE"}
    for engine in found["engines"].values():
        assert set(engine) == {"busy", "wait_semaphore", "wait_memory"}
        assert 0 < engine["busy"] <= found["cycles"]


@pytest.mark.medium
def test_run_json() -> None:
    found = json.loads(invoke("run", MODEL, "--config", "tiny", "--backend", "cycle", "--json", "-").stdout)
    check_performance(found)
    assert found["cycles"] == json.loads(invoke("explain", MODEL, "--config", "tiny", "--json", "-").stdout)["cycles"]
    assert "utilization" not in json.loads(invoke("run", MODEL, "--json", "-").stdout)  # no clock


@pytest.mark.cosim
@pytest.mark.slow
def test_run_json_of_the_rtl() -> None:
    rtl, cycle = (
        json.loads(invoke("run", MODEL, "--config", "tiny", "--backend", name, "--json", "-").stdout)
        for name in ("rtl", "cycle")
    )
    check_performance(rtl)
    for key in ("cycles", "bound_cycles", "utilization", "bytes_read", "bytes_written", "engines"):
        assert rtl[key] == cycle[key]


def test_short_texts() -> None:
    assert [short(n) for n in (0, 7, 999, 1000, 9949, 74400, 999_600, 1.3e6, 21e9)] == [
        "", "7", "999", "1.0k", "9.9k", "74k", "1.0M", "1.3M", "21G",
    ]  # fmt: skip
    assert short_name("conv_0 + conv_1 + conv_2", 30) == "conv_0 ..3.. conv_2"
    assert short_name("conv_0 + conv_1 + conv_2", 12) == "conv_0 +2"
    assert short_name("a_very_long_name", 6) == "…_name"


@pytest.mark.medium
def test_labels_of_a_roofline() -> None:
    """Plain numbers on both axes, at least two on each, and no number of a layer on another."""
    shown = figure(explain(compile_program(MODEL.read_bytes(), "tiny")))
    shown.draw_without_rendering()
    axes, below = shown.axes
    assert "most cycles above the bound" in below.texts[0].get_text()
    inches = shown.get_size_inches()[0]
    smallest = min(text.get_fontsize() for text in (*axes.texts, *below.texts))
    assert 400 / inches * smallest / 72 > 8  # pixels of text where the plot is shown 400 pixels wide
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        labels = [t.get_text() for t, at in zip(axis.get_ticklabels(), axis.get_ticklocs()) if low <= at <= high]
        assert len(labels) >= 2 and all(re.fullmatch(r"[\d.]+[kMG]?", label) for label in labels), labels
        assert not [t for t in axis.get_ticklabels(minor=True) if t.get_text()]
    numbers = [text for text in axes.texts if text.get_text().isdecimal()]
    assert len(numbers) > 3
    boxes = [text.get_window_extent() for text in numbers]
    assert not [(a, b) for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)]


@pytest.mark.medium
@pytest.mark.parametrize(("network", "config"), [("digits", "nano"), ("digits", "base"), ("mobilenet_v2", "large")])
def test_no_layer_lies_above_the_roof(network: str, config: str) -> None:
    """Weights and first steps of layers fall into the time of the layers before, most of all on large machines."""
    small = {"size": 32, "alpha": 0.35} if network == "mobilenet_v2" else {}
    model = MODEL.read_bytes() if network == "digits" else build_quantized(network, **small).SerializeToString()
    found = explain(compile_program(model, config))
    rows = [row for row in found.rows if row.layer.macs]
    x, y = points(found, rows)
    roof = np.minimum(found.program.config.macs_per_cycle, x * found.program.config.bus_bytes)
    assert len(rows) > 3 and (y <= roof * (1 + 1e-9)).all()
    assert all(0 < found.active_cycles(row) <= found.cycles for row in rows)
    if network != "digits":  # by the cycles in which only this layer is computed some would
        assert any(row.layer.macs / row.cycles > limit for row, limit in zip(rows, roof))
