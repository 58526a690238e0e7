"""Schedule tuning: findings are exact, applied by later compiles, never slower, and survive damage."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import tilewright as tw
from tests.common.paths import ROOT
from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.steps import step_of
from tilewright.api.build import builder
from tilewright.api.source import ModelSource
from tilewright.cli import cli
from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.schedule.decisions import Decisions, decisions_of, schedule_of, signature
from tilewright.compiler.npu.schedule.descent import cost_of
from tilewright.compiler.npu.schedule.moves import Neighbourhood
from tilewright.compiler.npu.schedule.problem import StepProblem
from tilewright.compiler.npu.schedule.search import Policy, make_schedule
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.timing import MemoryTiming
from tilewright.measure.explain import explain
from tilewright.runtime.cost import program_cycles
from tilewright.tuning.apply import Advisor, build_tuned
from tilewright.tuning.log import Finding, TuningLog, compiler_digest, default_path
from tilewright.tuning.objective import Figures, Objective, four_digits, program_figures
from tilewright.tuning.search import tune_step
from tilewright.tuning.trials import figures_of, fits
from tilewright.tuning.tune import tune

pytestmark = pytest.mark.slow

MODEL = ROOT / "examples" / "digits" / "digits_int8.onnx"


def invoke(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="tilewright")
    assert done.exit_code == code, done.output
    return done


def run_cycles(program: tw.Program) -> tuple[dict[str, np.ndarray], int]:
    """Outputs and cycles of a real run on the cycle-level simulator."""
    with tw.Device("cycle") as device:
        outputs = device.run(program, tw.random_inputs(program, 3))
        assert device.counters is not None and device.counters.cycles is not None
        return outputs, device.counters.cycles


@pytest.fixture(scope="module")
def step() -> StepProblem:
    """The digits network's NPU step at base."""
    advisor = Advisor(lambda name: None)
    builder(ModelSource(MODEL), NpuConfig.load("base"))(advisor)
    (found,) = advisor.steps.values()
    return found


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with one finding, made by the command."""
    path = tmp_path_factory.mktemp("tuning") / "log.jsonl"
    found = json.loads(invoke("tune", MODEL, "--budget", 4, "--jobs", 1, "--log", path, "--json", "-").stdout)
    assert found["cycles"] < found["default_cycles"] and found["history"] and found["steps"][0]["tried"] > 10
    return path


def test_decisions_give_the_same_schedule(step: StepProblem) -> None:
    schedule = make_schedule(step, Policy())
    decisions = Decisions.from_dict(json.loads(json.dumps(decisions_of(schedule).to_dict())))
    assert cost_of(step, decisions) == step.cost(schedule)
    assert decisions_of(schedule_of(step, decisions)) == decisions


def test_random_moves_keep_the_values(step: StepProblem) -> None:
    """Programs with decisions far from the compiler's compute the same bytes, and take the cycles that were counted."""
    build = builder(ModelSource(MODEL), step.config)
    expected, _ = run_cycles(build(None))
    near = Neighbourhood(step)
    name = signature(step)
    decisions, kinds, chance = decisions_of(make_schedule(step, Policy())), set(), random.Random(1)
    for number in range(30):
        move = chance.choice(list(near.moves(decisions)))
        after = near.after(decisions, move)
        if after is None or not fits(step, after):
            continue
        decisions = after
        kinds.add(move.kind)
        if number % 3 == 0:
            advisor = Advisor({name: decisions}.get)
            program = build(advisor)
            assert advisor.used == {name: decisions}
            outputs, cycles = run_cycles(program)
            assert cycles == program_cycles(program)
            for key, value in expected.items():
                np.testing.assert_array_equal(outputs[key], value)
    assert len(kinds) >= 4, kinds


def test_a_search_reports_exact_cycles(step: StepProblem) -> None:
    tuned = tune_step(step, 3.0, seed=2)
    assert tuned.cost < tuned.default_cost
    assert cost_of(step, tuned.best) == tuned.cost


def test_a_step_without_a_choice_ends_at_once() -> None:
    """A layer of one element has one tiling, and no other layer to run with."""
    net = Net()
    net.graph.outputs.append(net.conv(net.plane(4, 1), 4))
    tuned = tune_step(step_of(net, preset("tiny")), 60.0)
    assert tuned.best == tuned.default and tuned.cost == tuned.default_cost and not tuned.interrupted


def test_later_compiles_use_the_log(log: Path) -> None:
    plain, tuned = tw.compile(MODEL, "base", tuning="off"), tw.compile(MODEL, "base", tuning=log)
    (first, before), (second, after) = run_cycles(plain), run_cycles(tuned)
    (finding,) = TuningLog(log).findings
    assert (before, after) == (finding.default_cycles, finding.cycles) and after < before
    assert any("tuned" in note for note in tuned.notes)
    for key, value in first.items():
        np.testing.assert_array_equal(second[key], value)
    assert tw.compile(MODEL, "small", tuning=log).notes == tw.compile(MODEL, "small", tuning="off").notes


def test_a_log_of_another_compiler_never_makes_slower(log: Path, tmp_path: Path) -> None:
    """Figures in the log are not believed: both programs are measured."""
    values = json.loads(log.read_text())
    values |= {"compiler": "another"}
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(values) + "\n")
    good = tw.compile(MODEL, "base", tuning=path)
    assert run_cycles(good)[1] == values["cycles"]

    worst = {name: {**d, "stays": [], "units": [[1, 0]] * sum(n for n, _ in d["units"]), "tiles": []}
             for name, d in values["steps"].items()}  # fmt: skip
    path.write_text(json.dumps(values | {"steps": worst}) + "\n")
    build = builder(ModelSource(MODEL), NpuConfig.load("base"))
    slow = Advisor(TuningLog(path).best)
    assert program_cycles(build(slow)) > values["default_cycles"] and slow.used
    assert program_cycles(build_tuned(build, TuningLog(path))) == values["default_cycles"]


def test_damaged_logs(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = log.read_text()
    future = json.dumps(json.loads(good) | {"version": 99})
    path.write_text("\n".join(["not json", good[:50], "[]", "{}", future]) + "\n" + good)
    found = TuningLog(path)
    assert len(found.findings) == 1 and found.skipped == 5
    foreign = Decisions(((0, 10**6),), ((99, 3),), ((55, (1, 2)),))
    with pytest.raises(CompileError):
        Decisions.from_dict({"units": 3})
    (name,) = found.findings[0].steps
    path.write_text("")
    TuningLog(path).add(
        Finding("m", "base", compiler_digest(), "p", {name: foreign}, 10, 5, Objective.CYCLES, "cycles", 10, 5)
    )
    assert program_cycles(tw.compile(MODEL, "base", tuning=path)) == TuningLog(log).findings[0].default_cycles


def test_joined_logs_give_the_best(log: Path, tmp_path: Path) -> None:
    finding = TuningLog(log).findings[0]
    worse = replace(finding, figure=finding.default_figure)
    path = tmp_path / "joined.jsonl"
    for each in (worse, finding, worse):
        TuningLog(path).add(each)
    (name,) = finding.steps
    assert TuningLog(path).best(name) == finding.steps[name]


def test_logs_without_an_objective_are_of_cycles(log: Path, tmp_path: Path) -> None:
    """Lines without an objective are of cycles, as all were before there was a choice."""
    values = json.loads(log.read_text())
    assert (values["objective"], values["unit"], values["figure"]) == ("cycles", "cycles", values["cycles"])
    for name in ("objective", "unit", "default_figure", "figure"):
        del values[name]
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps(values) + "\n")
    assert TuningLog(path).findings == TuningLog(log).findings


def test_tune_for_energy(log: Path, tmp_path: Path) -> None:
    """Never more energy than before, the same bytes, and a log for nothing else."""
    path, out = tmp_path / "energy.jsonl", tmp_path / "out.json"
    build = builder(ModelSource(MODEL), NpuConfig.load("base"))

    usual = explain(tw.compile(MODEL, "base", tuning="off")).energy.total / 1e6

    def until_better(text: str, done: float) -> None:
        """The search begins with less than a compilation ends with."""
        if float(text.split()[0].replace(",", "")) < 0.998 * usual:
            raise KeyboardInterrupt

    first_found = tune(build, TuningLog(path), 600, objective=Objective.ENERGY, progress=until_better)
    assert first_found.interrupted and first_found.best.microjoules < first_found.default.microjoules
    arguments = ("--config", "base", "--jobs", 1, "--log", path)  # goes on from there
    said = invoke("tune", MODEL, "--for", "energy", "--budget", 4, *arguments, "--json", out).stdout
    found = json.loads(out.read_text())
    assert "cycles" in said and "µJ" in said
    assert (found["objective"], found["unit"]) == ("energy", "µJ")
    assert found["microjoules"] == found["figure"] < found["default_figure"] == found["default_microjoules"]
    plain = tw.compile(MODEL, "base", tuning="off")
    tuned = tw.compile(MODEL, "base", tuning=path)
    (first, before), (second, after) = run_cycles(plain), run_cycles(tuned)
    best = min(TuningLog(path).findings, key=lambda finding: finding.figure)
    assert best.figure <= found["figure"]  # the search before may have found more
    assert (before, after) == (found["default_cycles"], best.cycles)
    energies = [explain(program).energy.total / 1e6 for program in (plain, tuned)]
    assert energies == pytest.approx([found["default_microjoules"], best.figure])
    assert any("tuned" in note and "µJ" in note for note in tuned.notes)
    for key, value in first.items():
        np.testing.assert_array_equal(second[key], value)

    for made_for, objective in ((path, "cycles"), (path, "energy-delay"), (log, "energy")):
        text = invoke("tune", MODEL, "--for", objective, "--log", made_for, code=2).stderr
        assert f"{made_for} is a log of schedules tuned for " in text and len(text.splitlines()) == 1
        assert f"not for {objective}: name another log" in text
    path.write_text(path.read_text() + log.read_text())
    with pytest.raises(tw.TilewrightError, match="tuned for cycles and energy: keep a log for each"):
        tw.compile(MODEL, "base", tuning=path)


def test_schedules_of_more_energy_are_left_out(tmp_path: Path, log: Path) -> None:
    """A log for energy that another compiler made: both programs are measured."""
    values = json.loads(log.read_text())
    worst = {name: {**d, "stays": [], "units": [[1, 0]] * sum(n for n, _ in d["units"]), "tiles": []}
             for name, d in values["steps"].items()}  # fmt: skip
    said = {
        "compiler": "another",
        "steps": worst,
        "objective": "energy",
        "unit": "µJ",
        "default_figure": 2,
        "figure": 1,
    }
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(values | said) + "\n")
    build = builder(ModelSource(MODEL), NpuConfig.load("base"))
    worse, plain = Advisor(TuningLog(path).best), program_figures(build(None))
    assert program_figures(build(worse)).microjoules > plain.microjoules and worse.used
    assert program_figures(build_tuned(build, TuningLog(path))) == plain


def test_products_of_cycles_and_energy(step: StepProblem) -> None:
    """A cost below that of the start means a smaller product, although costs of parts are summed."""
    decisions = decisions_of(make_schedule(step, Policy()))
    start = figures_of(step, decisions)
    objective = Objective.ENERGY_DELAY
    cost = objective.cost(start)
    assert cost_of(step.measured_by(cost), decisions) == pytest.approx(objective.figure(start))
    tuned = tune_step(step.measured_by(cost), 2.0)
    after = figures_of(step, tuned.best)
    assert tuned.cost == pytest.approx(cost.cycle * after.cycles + cost.microjoule * after.microjoules)
    assert objective.figure(after) <= tuned.cost <= tuned.default_cost
    chance = random.Random(2)
    for _ in range(1000):
        at = Figures(start.cycles * chance.uniform(0.3, 3), start.microjoules * chance.uniform(0.3, 3))
        if cost.cycle * at.cycles + cost.microjoule * at.microjoules < objective.figure(start):
            assert objective.figure(at) < objective.figure(start)


@pytest.mark.parametrize("objective", ["energy", pytest.param("energy-delay", marks=pytest.mark.long)])
@pytest.mark.usefixtures("empty_cache")
def test_compiles_for_energy(objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Effort 2 compares schedules by the objective, and the objective's own log is used."""
    monkeypatch.delenv("TILEWRIGHT_TUNING", raising=False)
    goal, asked = Objective(objective), Objective.measure
    costs = []
    monkeypatch.setattr(Objective, "measure", lambda *a: costs.append(asked(*a)) or costs[-1])
    plain = tw.compile_program(MODEL, "base", tuning="off")
    figure = goal.of(plain)
    found = tw.compile_program(MODEL, "base", effort=2, objective=objective, tuning="off")
    (cost,) = costs
    assert cost.microjoule > 0 and (cost.cycle > 0) == (goal is Objective.ENERGY_DELAY)
    # What was compared took no weight for 0, as those of a whole program are known to be: a candidate may be wrong by
    # some tenths of a per cent.
    assert goal.of(found) <= figure * 1.01
    invoke("tune", MODEL, "--config", "base", "--for", objective, "--budget", 4, "--jobs", 1)
    shown = invoke(
        "compile", MODEL, "--config", "base", "--for", objective, "-o", tmp_path / "tuned.twp", "--json", "-"
    )
    (tuned,) = [note for note in json.loads(shown.stdout)["notes"] if note.startswith("tuned: ")]
    assert goal.unit in tuned and goal.of(tw.load(tmp_path / "tuned.twp")) < figure
    shown = invoke(
        "compile", MODEL, "--for", "cycles", "--tuning", default_path(goal), "-o", tmp_path / "x.twp", code=2
    )
    assert f"tuned for {objective}" in shown.output
    shown = invoke("explain", tmp_path / "tuned.twp", "--for", objective, code=2)
    assert "compiled already: --for has no effect" in shown.output
    with pytest.raises(UsageError, match="unknown objective 'speed'; there are cycles, energy, energy-delay"):
        tw.compile_program(MODEL, objective="speed")


def test_numbers() -> None:
    assert [four_digits(n) for n in (0, 0.012345, 2.8716, 1204.4, 62_381_000.0)] == [
        "0",
        "0.01235",
        "2.872",
        "1,204",
        "62,381,000",
    ]
    assert Objective.CYCLES.describe(51365) == "51,365 cycles" and Objective.ENERGY.describe(12.3456) == "12.35 µJ"


def test_mistakes(tmp_path: Path) -> None:
    assert "no such file" in invoke("tune", tmp_path / "no.onnx", code=2).stderr
    assert "switched off" in invoke("tune", MODEL, "--log", "off", code=2).stderr
    assert "no such directory" in invoke("tune", MODEL, "--log", tmp_path / "no" / "log", code=2).stderr
    program = tmp_path / "digits.twp"
    invoke("compile", MODEL, "-o", program, "--config", "tiny")
    assert "compiled already" in invoke("tune", program, code=2).stderr


def test_a_memory_has_findings_of_its_own(tmp_path: Path) -> None:
    """A schedule found for a slow memory is faster there, by the cycles of a run, and is not used for another
    memory."""
    path = tmp_path / "log.jsonl"
    slow = "--interval", 3
    found = json.loads(invoke("tune", MODEL, *slow, "--budget", 4, "--jobs", 1, "--log", path, "--json", "-").stdout)
    assert found["cycles"] < found["default_cycles"]
    run = json.loads(invoke("run", MODEL, "--backend", "cycle", *slow, "--json", "-").stdout)
    assert run["cycles"] == found["default_cycles"]
    memory = MemoryTiming(read_interval=3, write_interval=3)
    tuned = tw.compile(MODEL, "base", tuning=path, memory=memory)
    with tw.Device("cycle", timing=memory) as device:
        device.run(tuned, tw.random_inputs(tuned, 3))
        assert device.counters is not None and device.counters.cycles == found["cycles"]
    assert any(note.startswith("tuned: ") for note in tuned.notes)
    elsewhere = tw.compile(MODEL, "base", tuning=path)
    assert not any(note.startswith("tuned: ") for note in elsewhere.notes)


def test_a_clock_needs_a_board(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    assert "--board" in invoke("tune", MODEL, "--clock", 50, "--log", log, code=2).stderr


def test_the_commands_say_that_schedules_are_tuned(log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Reports name tuned schedules. Two machines are compared with like schedules: the log has none for `small`."""
    plain = json.loads(invoke("run", MODEL, "--backend", "cycle", "--json", "-").stdout)
    assert plain["tuned"] is False
    monkeypatch.setenv("TILEWRIGHT_TUNING", str(log))
    run = json.loads(invoke("run", MODEL, "--backend", "cycle", "--json", "-").stdout)
    (note,) = [note for note in run["notes"] if note.startswith("tuned: ")]
    assert run["tuned"] is True and run["cycles"] < plain["cycles"] and f"{plain['cycles']:,}" in note
    assert f"note: {note}" in invoke("run", MODEL).stdout and f"note: {note}" in invoke("explain", MODEL).stdout
    explained = json.loads(invoke("explain", MODEL, "--json", "-").stdout)
    assert explained["tuned"] is True and note in explained["notes"]

    def compare(*arguments: object) -> Any:
        (entry,) = json.loads(invoke("compare", *arguments, "--json", "-").stdout)
        return entry

    entry = compare("small", "base", "--model", MODEL)
    assert (entry["a"]["tuned"], entry["b"]["tuned"], entry["b"]["cycles"]) == (False, False, plain["cycles"])
    (left_out,) = entry["notes"]
    assert "for b are left out" in left_out and f"{run['cycles']:,}" in left_out
    assert "for b are left out" in invoke("compare", "small", "base", "--model", MODEL).stdout
    assert "for a are left out" in compare("base", "small", "--model", MODEL)["notes"][0]
    entry = compare("base", "base", "--model", MODEL)
    assert entry["a"]["tuned"] and entry["b"]["tuned"] and entry["a"]["cycles"] == run["cycles"] and not entry["notes"]
    assert "a: tuned: " in invoke("compare", "base", "base", "--model", MODEL).stdout
    assert compare("base", "base", "--model", MODEL, "--tuning", "off")["a"]["cycles"] == plain["cycles"]
    # Programs cannot be compiled anew: a model is, else it is said.
    tuned, untuned = tmp_path / "tuned.twp", tmp_path / "plain.twp"
    invoke("compile", MODEL, "-o", tuned)
    invoke("compile", MODEL, "-o", untuned, "--tuning", "off")
    assert "for b are left out" in compare(untuned, MODEL)["notes"][0]
    assert "a alone has schedules of the tuning log" in compare(tuned, untuned)["notes"][0]
    assert tw.compare("small", "base", MODEL).notes and tw.compare("small", "base", MODEL).b.cycles == plain["cycles"]
