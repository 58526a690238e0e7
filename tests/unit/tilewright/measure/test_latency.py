"""End-to-end latency: the NPU's cycles, the CPU's kernels and the border; and the fit of a host's speed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.common.paths import ROOT
from tests.unit.compiler.npu.net import Net
from tilewright.cli import cli
from tilewright.compiler.cpu.cost import HOST_MODELS, THIS
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS
from tilewright.isa.program import CpuStep, Program
from tilewright.isa.program_parts import WORK_KINDS
from tilewright.measure import host_models, host_speed
from tilewright.measure.clock import Clock
from tilewright.measure.host_speed import Measured
from tilewright.measure.latency import latency

pytestmark = pytest.mark.usefixtures("compiled_once")

MODEL = ROOT / "examples" / "digits" / "digits_int8.onnx"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No numbers that were measured here."""
    monkeypatch.setattr(host_models, "model_file", lambda: tmp_path / "host-models.json")


def program() -> Program:
    net = Net()
    y = net.product(net.input((3, 4), np.int8), 4)
    return compile_graph(net.done(net.product(net.softmax(y), 4)), PRESETS["tiny"])


def test_times_add_up() -> None:
    made = program()
    found = latency([made], 1000, Clock(100, "test"))
    calls = sum(isinstance(s, CpuStep) for s in made.steps)
    assert (found.turns, found.calls, found.crossings) == (2, calls, len(made.steps) - 1)
    assert found.npu_seconds == 1e-5
    kernels = sum(HOST_MODELS[THIS].kernel_seconds(k) for k in made.host_work)
    assert found.cpu_seconds == pytest.approx(kernels + calls * HOST_MODELS[THIS].call_cycles / 3e9)
    assert found.seconds == pytest.approx(1e-5 + found.cpu_seconds)
    assert sum(found.by_ops.values()) == pytest.approx(kernels)
    assert latency([made], 1000, None).seconds is None
    assert Program.from_bytes(made.to_bytes()).host_work == made.host_work


def test_every_kernel_has_its_work() -> None:
    made = program()
    steps = [s for s in made.steps if isinstance(s, CpuStep)]
    assert len(made.host_work) == sum(len(s.kernels) for s in steps)
    assert "QSoftmax" in " ".join(k.op for k in made.host_work)
    assert all(k.work and k.work.keys() <= set(WORK_KINDS) for k in made.host_work)


@pytest.mark.medium
def test_explain_and_run_say_the_same() -> None:
    runs = [
        CliRunner().invoke(cli, [command, str(MODEL), "--config", "tiny", "--clock", "50", "--json", "-", *more])
        for command, more in (("explain", []), ("run", ["--backend", "cycle"]))
    ]
    explained, ran = (json.loads(done.stdout)["latency"] for done in runs)
    assert ran.pop("text").startswith("latency about")
    assert explained == ran
    assert explained["npu_cycles"] / 50e3 == pytest.approx(explained["npu_milliseconds"])


@pytest.mark.medium
def test_a_named_host_needs_not_be_here() -> None:
    """Programs for other machines are explained, whose kernels cannot run here."""
    done = CliRunner().invoke(cli, ["explain", str(MODEL), "--config", "tiny", "--host", "armv7-linux"])
    assert done.exit_code == 0, done.output
    assert "armv7-linux at 650 MHz" in done.stdout


@pytest.mark.medium
def test_fit_finds_the_numbers_behind_times() -> None:
    start = HOST_MODELS[THIS]
    rng = np.random.default_rng(0)
    true = {kind: start.cycles[kind] * factor for kind, factor in zip(WORK_KINDS, rng.uniform(0.5, 2, len(WORK_KINDS)))}
    cases = []
    for k in range(200):
        work = {kind: float(rng.integers(1, 10**6)) / start.cycles[kind] for kind in rng.choice(WORK_KINDS, 2)}
        seconds = (sum(true[kind] * n for kind, n in work.items()) + start.call_cycles) / start.mhz / 1e6
        cases.append(Measured(str(k), work, 0, seconds))
    fitted = host_speed.fit(cases, start)
    for kind in WORK_KINDS:
        assert fitted.cycles[kind] == pytest.approx(true[kind], rel=0.05), kind


def test_kept_numbers_are_used() -> None:
    assert host_models.calibrated() is None
    model = host_speed.fit([Measured("a", {"vector": 1e6}, 0, 1e-3)], HOST_MODELS[THIS])
    host_models.write(model)
    assert host_models.calibrated() == model
