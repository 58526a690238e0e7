"""Stored results of a sweep: cycles as the devices count them, failures, reuse, metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import tilewright as tw
from tests.common.paths import ROOT
from tests.unit.tilewright.sweep.here import Here, loaded
from tilewright.api.compilation import compile_program
from tilewright.cli import cli
from tilewright.cli.commands.sweep import _reach
from tilewright.energy.events import EVENTS
from tilewright.errors import UsageError
from tilewright.fpga import fmax
from tilewright.fpga.zynq.boards import ZYNQ_BOARDS
from tilewright.isa.config import PRESETS
from tilewright.measure.explain import explain
from tilewright.sweep import Database, resolve, run, search, sweep_boards, worker
from tilewright.sweep.expressions import SpaceError
from tilewright.sweep.networks import Network
from tilewright.sweep.options import SweepOptions
from tilewright.sweep.outcome import Outcome
from tilewright.sweep.runner import Sweep
from tilewright.sweep.space import Space, load_space, parse_space

TABLE: dict[str, Any] = {
    "base": "tiny",
    "axes": {"queue_depth": [4, 32], "act_rows": [4096, 4098]},
    "memory": {"read_latency": [20]},
    "search": {"prune": False},
    "objective": {"weights": {"segmentation": 3.0}},
}
#: Small ones: each point of a sweep compiles them.
NETWORKS = {
    "segmentation": "segmentation:size=16,width=4,depth=1",
    "autoencoder": "autoencoder:features=64,hidden=32",
}


@pytest.fixture(scope="module")
def networks() -> list[Network]:
    return loaded(NETWORKS)


def sweep(
    space: Space, networks: list[Network], folder: Path, **options: Any
) -> tuple[Here, list[dict[str, Any]], Sweep]:
    here = Here()
    with Database(folder) as database:
        run = Sweep(space, networks, database, lambda: here, SweepOptions(**options))  # type: ignore[arg-type, return-value]
        search.search(space, run.evaluate)
        return here, database.sweep_points(run.id), run


@pytest.mark.slow
def test_points_results_and_reuse(networks: list[Network], tmp_path: Path) -> None:
    space = parse_space(TABLE, [n.name for n in networks])
    here, points, _ = sweep(space, networks, tmp_path)
    assert [p["state"] for p in points] == ["done", "invalid", "done", "invalid"]
    assert "act_rows must be a multiple of act_banks (4), not 4098" in points[1]["reason"]
    assert len(here.tasks) == 4

    # Cycles and traffic are those of the program that `tilewright` compiles, with the point's memory.
    point = space.point(points[0]["assignment"])
    total = 0.0
    for network in networks:
        program = tw.compile_program(network.content, point.config, cache=False, tuning="off", memory=point.timing)
        with tw.Device("cycle", timing=point.timing) as device:
            device.run(program, tw.random_inputs(program))
            assert device.counters is not None and device.counters.cycles is not None
            total += device.counters.cycles * (3 if network.name == "segmentation" else 1)
            assert points[0]["metrics"][f"cycles_{network.name}"] == device.counters.cycles
    assert points[0]["metrics"]["cycles"] == total
    assert points[0]["metrics"]["objective0"] == points[0]["metrics"]["microseconds"]

    # The same again, and a larger space around it: only what is new is computed.
    here, again, _ = sweep(space, networks, tmp_path)
    assert (here.tasks, again) == ([], points)
    wider = parse_space(TABLE | {"axes": {"queue_depth": [4, 16, 32]}}, [n.name for n in networks])
    here, _, run = sweep(wider, networks, tmp_path)
    assert (len(here.tasks), run.reused) == (2, 4)


@pytest.mark.medium
def test_failures_are_kept_and_retried_on_demand(networks: list[Network], tmp_path: Path) -> None:
    bad = Network("bad", b"no model")
    worker.Models({bad.digest: bad.content}).setup(None)
    table = {"base": "tiny", "axes": {"queue_depth": [4, 8]}, "search": {"prune": False}}
    space = parse_space(table, ["autoencoder", "bad"])
    both = [next(n for n in networks if n.name == "autoencoder"), bad]
    here, points, _ = sweep(space, both, tmp_path)
    assert [p["state"] for p in points] == ["failed", "failed"]
    assert points[0]["reason"].startswith("bad: ") and len(here.tasks) == 4
    assert sweep(space, both, tmp_path)[0].tasks == []
    assert len(sweep(space, both, tmp_path, retry_failed=True)[0].tasks) == 2


@pytest.mark.medium
def test_constraints_before_and_after_results(networks: list[Network], tmp_path: Path) -> None:
    table = {"base": "tiny", "axes": {"act_rows": [2048, 4096]}, "constraints": ["act_rows > 2048", "cycles < 10"]}
    here, points, _ = sweep(parse_space(table, ["autoencoder"]), [networks[1]], tmp_path)
    assert [p["state"] for p in points] == ["infeasible", "infeasible"]
    assert [p["reason"] for p in points] == ["constraint 'act_rows > 2048'", "constraint 'cycles < 10' by the bound"]
    assert [task.kind for task in here.tasks] == ["rung"]
    everything = parse_space(table | {"search": {"prune": False}}, ["autoencoder"])
    here, points, _ = sweep(everything, [networks[1]], tmp_path)
    assert [p["reason"] for p in points] == ["constraint 'act_rows > 2048'", "constraint 'cycles < 10'"]
    assert [task.kind for task in here.tasks] == ["cycles"]


def test_other_sources_are_refused(networks: list[Network]) -> None:
    space = parse_space({"base": "tiny"}, ["autoencoder"])
    point = space.point({})
    job = {"kind": "cycles", "config": point.config.to_dict(), "timing": {}, "network": networks[1].digest,
           "effort": 1, "sources": "0" * 16}  # fmt: skip
    result = worker.evaluate(job)
    assert result["state"] == worker.REFUSED and "runs other sources of Tilewright" in result["error"]


def test_clock_needs_place_and_route(networks: list[Network], tmp_path: Path) -> None:
    space = parse_space({"family": "xcup", "objective": {"minimise": ["microseconds"]}}, ["autoencoder"])
    with pytest.raises(UsageError, match="microseconds needs --clock MHZ, clock_mhz in the space or --synth nextpnr"):
        sweep(space, [networks[1]], tmp_path)


@pytest.mark.medium
def test_times_at_a_given_clock(networks: list[Network], tmp_path: Path) -> None:
    """More lanes can take fewer cycles and more time; where the expression gives no clock, the point fails."""
    table = {"base": "tiny", "axes": {"vector_passes": [1, 2, 4]}, "clock_mhz": "40 * vector_passes - 40",
             "constraints": ["clock_mhz <= 100"], "search": {"prune": False},
             "objective": {"minimise": ["microseconds"]}}  # fmt: skip
    _, points, _ = sweep(parse_space(table, ["autoencoder"]), [networks[1]], tmp_path)
    assert [p["state"] for p in points] == ["failed", "done", "infeasible"]
    assert points[0]["reason"] == "clock_mhz: '40 * vector_passes - 40' gives 0 MHz"
    for point, clock in zip(points[1:], (40, 120)):
        metrics = point["metrics"]
        assert metrics["clock_mhz"] == clock and metrics["microseconds"] == metrics["cycles"] / clock


@pytest.mark.medium
def test_times_by_the_model_of_the_clock(networks: list[Network], tmp_path: Path) -> None:
    """The clock is that of the family's model, for each configuration its own, unless one is given."""
    table = {"base": "tiny", "axes": {"vector_passes": [1, 4]}, "constraints": ["microseconds_autoencoder > 0"]}
    table["search"] = {"prune": False}
    space = parse_space(table, ["autoencoder"])
    _, points, run = sweep(space, [networks[1]], tmp_path)
    assert run.metrics.clock_model is not None
    clocks = []
    for point in points:
        metrics = point["metrics"]
        clocks.append(metrics["clock_mhz"])
        assert clocks[-1] == fmax.load("ecp5").mhz(space.point(point["assignment"]).config)
        assert metrics["microseconds"] == metrics["objective0"] == metrics["cycles"] / clocks[-1]
        assert metrics["microseconds_autoencoder"] == metrics["cycles_autoencoder"] / clocks[-1]
        assert metrics["geomean_microseconds"] == pytest.approx(metrics["microseconds"])
    assert clocks[0] < clocks[1]
    outcome = Outcome(run.id, points, points, 0, 0, [])
    best = outcome.fastest("autoencoder", 1)
    assert [p["number"] for p in best] == [min((0, 1), key=lambda n: points[n]["metrics"]["microseconds"])]
    assert outcome.fastest("autoencoder", 5)[0] == best[0] and len(outcome.fastest("autoencoder", 5)) == 2


@pytest.mark.medium
def test_a_clock_and_coded_weights_as_axes(networks: list[Network], tmp_path: Path) -> None:
    """The clock changes times alone, so results are shared; coded weights are those of the compiler's option."""
    axes = {"weight_codes": [8], "small_weights": [0, 1], "clock_mhz": [50, 80, 10_000]}
    table = {"base": "tiny", "axes": axes, "constraints": ["clock_mhz <= model_mhz"], "search": {"prune": False},
             "objective": {"minimise": ["microseconds", "dram_bytes"]}}  # fmt: skip
    space = parse_space(table, ["autoencoder"])
    here, points, _ = sweep(space, [networks[1]], tmp_path)
    assert [p["state"] for p in points] == ["done", "done", "infeasible"] * 2 and len(here.tasks) == 2
    for small in (False, True):
        slow, fast = (p["metrics"] for p in points[3 * small : 3 * small + 2])
        assert slow["cycles"] == fast["cycles"]
        assert (slow["microseconds"], fast["microseconds"]) == (slow["cycles"] / 50, fast["cycles"] / 80)
        machine = space.point(points[3 * small]["assignment"]).config
        goal = "energy" if small else "cycles"  # which decides at this effort how weights are coded, and nothing else
        program = compile_program(networks[1].content, machine, objective=goal, cache=False, tuning="off")
        assert slow["cycles"] == explain(program).counters.cycles
    assert points[3]["metrics"]["dram_bytes"] < points[0]["metrics"]["dram_bytes"]


SEVERAL = """
base = "nano"
board = ["ulx3s_85f", "tang_nano_20k"]
axes = { queue_depth = [8, 16], axi_data_bits = [32, 64] }
constraints = ["bram <= board_bram"]
[boards.tang_nano_20k]
clock_mhz = 54
axes = { axi_data_bits = [32] }
"""


@pytest.mark.slow
def test_several_boards(tmp_path: Path) -> None:
    """A sweep for each board in one database; tables and JSON have the fastest machine of each board."""
    (tmp_path / "space.toml").write_text(SEVERAL)
    digits = str(ROOT / "examples/digits/digits_int8.onnx")
    arguments = ["sweep", str(tmp_path / "space.toml"), "--models", digits, "-o", str(tmp_path / "out"), "--jobs", "1"]
    done = CliRunner().invoke(cli, [*arguments, "--json", "-"], prog_name="tilewright")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["boards"]
    assert [(one["board"], one["family"], len(one["points"])) for one in found.values()] == [
        ("ulx3s_85f", "ecp5", 4), ("tang_nano_20k", "gowin", 2),
    ]  # fmt: skip
    # Equal machines with equal memories are compiled once.
    assert found["ulx3s_85f"]["computed"] > 0 == found["tang_nano_20k"]["computed"]
    printed = CliRunner().invoke(cli, arguments, prog_name="tilewright").stdout
    rows = printed[printed.index("fastest point of each board") :]
    assert rows.index("ulx3s_85f") < rows.index("tang_nano_20k") and "54.0" in rows
    assert f"report {tmp_path / 'out'} --sweep {found['tang_nano_20k']['sweep'][:8]}" in printed.replace("\n", "")
    outcomes = sweep_boards(tmp_path / "space.toml", tmp_path / "out", [digits], boards=["tang_nano_20k"], jobs=1)
    assert [(name, one.computed) for name, one in outcomes.items()] == [("tang_nano_20k", 0)]
    (tmp_path / "space.toml").write_text(SEVERAL.replace("board = [", "models = ["))
    with pytest.raises(UsageError, match=r"space.toml names no board: board = \[NAME, ...\]"):
        sweep_boards(tmp_path / "space.toml", tmp_path / "out", [digits])


@pytest.mark.slow
def test_a_board_in_the_command(tmp_path: Path) -> None:
    """The fastest machine of a board, from a shortened space: tables and JSON say the same."""
    text = (ROOT / "examples/sweeps/boards.toml").read_text()
    for axis, values in (("block_in", "[4, 16]"), ("block_out", "[4, 16]"), ("vector_passes", "[4]")):
        text = re.sub(rf"^{axis} = .*$", f"{axis} = {values}", text, flags=re.MULTILINE)
    (tmp_path / "space.toml").write_text(text)
    arguments = ["sweep", str(tmp_path / "space.toml"), "--models", str(ROOT / "examples/digits/digits_int8.onnx")]
    arguments += ["--board", "pynq_z2", "-o", str(tmp_path / "out"), "--jobs", "1"]
    done = CliRunner().invoke(cli, [*arguments, "--json", "-"], prog_name="tilewright")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["board"], found["family"]) == ("pynq_z2", "xc7")
    states = {point["assignment"]["block_in"] * point["assignment"]["block_out"]: point["state"]
              for point in found["points"]}  # fmt: skip
    assert states[16] == "done" and states[256] == "infeasible"  # 16 x 16 has more products than the FPGA has DSP
    (network,) = found["fastest"]
    fastest = found["fastest"][network]
    clock_mhz = fastest[0]["clock_mhz"]  # of the model, so not slower than the board's point
    assert clock_mhz > ZYNQ_BOARDS["pynq_z2"].points["pynq"].clock_mhz
    assert fastest[0]["milliseconds"] == pytest.approx(fastest[0]["cycles"] / (1e3 * clock_mhz))
    assert fastest[0]["milliseconds"] <= fastest[-1]["milliseconds"]
    printed = CliRunner().invoke(cli, arguments, prog_name="tilewright").stdout
    assert "fastest compiled points on pynq_z2" in printed and f"{fastest[0]['cycles']:,}" in printed
    # Where no machine fits, that is what it says.
    (tmp_path / "space.toml").write_text(text.replace("[4, 16]", "[16]"))
    none = [*arguments[:4], "--board", "tang_nano_20k", *arguments[6:]]
    said = CliRunner().invoke(cli, none, prog_name="tilewright").stdout
    assert re.search(r"no point is left: \d break constraint 'ff \+ 1000", said) and "fastest" not in said
    assert "0 results computed" in printed and "clock by the model of xc7; delays of ecp5 by" in printed


@pytest.mark.parametrize("sizes", [[], ["vector_lanes 1 (4..4)"]])
def test_points_beyond_a_model(sizes: list[str]) -> None:
    """The sizes of the best points that a model was not calibrated on are named once."""
    model = SimpleNamespace(changed=False, beyond=lambda config: sizes if config == "large" else [])
    outcome = SimpleNamespace(front=[{"assignment": name} for name in ("small", "large", "large")])
    space = SimpleNamespace(point=lambda assignment: SimpleNamespace(config=assignment))
    said = "; the best points are beyond what it was calibrated on: vector_lanes 1 (4..4)" if sizes else ""
    assert _reach(model, outcome, space) == said


def test_what_leaves_no_point_is_one_line(tmp_path: Path) -> None:
    """The command names the reasons of all points, the page says that it has nothing to show, and why."""
    (tmp_path / "space.toml").write_text(
        'models = ["ds_cnn"]\nconstraints = ["block_in >= 16", "block_in <= 8"]\n[axes]\nblock_in = [5, 8, 16]\n'
    )
    where = str(tmp_path / "out")
    done = CliRunner().invoke(cli, ["sweep", str(tmp_path / "space.toml"), "-o", where], prog_name="tilewright")
    _, said = done.stdout.splitlines()
    assert done.exit_code == 1
    assert said == (
        "no point is left: 1 are no machine: block_in must be a power of two in 4..64, not 5; "
        "1 break constraint 'block_in >= 16'; 1 break constraint 'block_in <= 8'"
    )
    page = CliRunner().invoke(cli, ["report", where], prog_name="tilewright")
    assert page.exit_code == 2 and page.stderr.endswith("has results: 1 invalid, 2 infeasible\n")
    assert page.stderr.count("\n") == 1


def test_a_scheduler_without_an_address_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text('base = "tiny"\nmodels = ["ds_cnn"]\n')
    arguments = ["sweep", str(tmp_path / "space.toml"), "-o", str(tmp_path / "out"), "--scheduler", "tcp://here"]
    done = CliRunner().invoke(cli, arguments, prog_name="tilewright")
    assert done.exit_code == 2
    assert done.stderr == (
        "tilewright: error: the scheduler's address must be HOST:PORT or tcp://HOST:PORT, not 'tcp://here'\n"
    )


def test_the_command_line_gives_the_clock(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text('base = "tiny"\nclock_mhz = 50\n')
    own, given = load_space(tmp_path / "space.toml"), load_space(tmp_path / "space.toml", clock_mhz=80.5)
    assert own.clock is not None and given.clock is not None
    assert (own.clock.value({}), given.clock.value({})) == (50, 80.5)


@pytest.mark.medium
def test_networks(tmp_path: Path) -> None:
    found = resolve(["mobilenet_v2:alpha=0.35,size=32"])[0]
    assert found.name == "mobilenet_v2:alpha=0.35,size=32"
    with pytest.raises(UsageError, match="no model file and no network of the zoo: 'alexnet'"):
        resolve(["alexnet"])
    with pytest.raises(UsageError, match="two networks are named 'vww'"):
        resolve(["vww", "vww"])
    with pytest.raises(UsageError, match="mobilenet_v2 has no parameter depth"):
        resolve(["mobilenet_v2:depth=3"])


def test_databases_of_others(tmp_path: Path) -> None:
    (tmp_path / "sweep.sqlite").write_text("no database at all, but long enough to look at" * 10)
    with pytest.raises(UsageError, match=r"cannot use .*sweep.sqlite"):
        Database(tmp_path)
    with Database(tmp_path / "new") as database:
        database._db.execute("pragma user_version = 9")
    with pytest.raises(UsageError, match="has format 9, this version reads 3"):
        Database(tmp_path / "new")


@pytest.mark.parametrize("events", [None, "{}", "[1, 2, 3]", json.dumps([float("nan")] * len(EVENTS)), '["a"]'])
def test_damaged_events_are_one_line(tmp_path: Path, events: str | None) -> None:
    networks = [Network("n", b"")]
    space = parse_space(TABLE | {"objective": {}}, ["n"])
    with Database(tmp_path) as database:
        run = Sweep(space, networks, database, Here)  # type: ignore[arg-type]
        point = space.point(space.assignment(0))
        with pytest.raises(SpaceError, match=rf"result 'k': events are .*, not {len(EVENTS)} numbers"):
            run.metrics.energy(point, {"key": "k", "events": events})


@pytest.mark.slow
def test_energy_is_that_of_explain(networks: list[Network], tmp_path: Path) -> None:
    """Energy of a network on one machine is that of explain, weighted; and it is an objective like others."""
    (tmp_path / "space.toml").write_text(
        'base = "tiny"\n[axes]\nqueue_depth = [16]\n'
        '[objective]\nminimise = ["microjoules", "lut"]\nweights = {segmentation = 2}\n',
        encoding="utf-8",
    )
    network = networks[0]
    outcome = run(load_space(tmp_path / "space.toml", [network.name]), [network], tmp_path / "out", jobs=1)
    (point,) = outcome.points
    expected = explain(compile_program(network.content, PRESETS["tiny"])).energy.total / 1e6
    assert point["metrics"]["microjoules_segmentation"] == pytest.approx(expected, rel=1e-6)
    assert point["metrics"]["objective0"] == pytest.approx(2 * expected, rel=1e-6)
    assert point["metrics"]["chip_microjoules"] < point["metrics"]["microjoules"]
