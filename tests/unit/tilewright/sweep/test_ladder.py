"""Pruning by rungs: the front of a full enumeration for fewer compilations, the same whoever computes it when."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright
from tests.unit.tilewright.sweep.here import MODEL, Here, Known, loaded
from tilewright.api.source import ModelSource
from tilewright.cli.commands.sweep import _Shown
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.passes import run_passes
from tilewright.isa.config import PRESETS
from tilewright.isa.program import Program
from tilewright.runtime.cost import program_cycles
from tilewright.sweep import Database, rungs, search
from tilewright.sweep.database import FILE
from tilewright.sweep.expressions import Expression
from tilewright.sweep.fronts import hypervolume, pareto_front
from tilewright.sweep.ladder import why_not
from tilewright.sweep.networks import Network
from tilewright.sweep.options import SweepOptions
from tilewright.sweep.outcome import Outcome, Progress
from tilewright.sweep.runner import Sweep
from tilewright.sweep.space import ROOM, Space, parse_space

TABLE: dict[str, Any] = {
    "base": "small",
    "axes": {"block_in": [4, 8], "block_out": [4, 8], "vector_passes": [1, 2]},
    "memory": {"read_latency": [20], "read_interval": [1, 4]},
    "clock_mhz": 50,
    "objective": {"minimise": ["geomean_microseconds", "lut"]},
}
#: Small ones of the zoo: a convolutional one, one that waits for its weights, one with depthwise layers.
NETWORKS = {
    "segmentation": "segmentation:size=16,width=4,depth=1",
    "autoencoder": "autoencoder:features=64,hidden=32",
    "depthwise": "ds_cnn",
}


@pytest.fixture(scope="module")
def known() -> Known:
    """Results of sweeps over `TABLE` so far: their objectives differ, the programs do not."""
    return {}


@pytest.fixture(scope="module")
def networks() -> list[Network]:
    return loaded(NETWORKS)


def sweep(
    table: dict[str, Any], networks: list[Network], folder: Path, workers: Here, **options: Any
) -> tuple[Space, list[dict[str, Any]]]:
    space = parse_space(table, [n.name for n in networks])
    with Database(folder) as database:
        run = Sweep(space, networks, database, lambda: workers, SweepOptions(**options))  # type: ignore[arg-type, return-value]
        search.search(space, run.evaluate)
        points = database.sweep_points(run.id)
    return space, [{name: value for name, value in point.items() if name != "sweep"} for point in points]


def front(points: list[dict[str, Any]]) -> dict[int, tuple[float, ...]]:
    done = [p for p in points if p["state"] == "done"]
    rows: list[tuple[float, ...]] = [(p["metrics"]["objective0"], p["metrics"]["objective1"]) for p in done]
    return {done[n]["number"]: rows[n] for n in pareto_front(rows)}


@pytest.mark.slow
def test_the_front_is_that_of_all_points_at_full_effort(networks: list[Network], known: Known, tmp_path: Path) -> None:
    """Front and all values of both sweeps agree; every pruned point truly loses to the one named."""
    everything = Here(seed=0, known=known)
    _, truth = sweep(TABLE | {"search": {"prune": False}}, networks, tmp_path / "all", everything)
    workers = Here(seed=1, known=known)
    _, points = sweep(TABLE, networks, tmp_path / "pruned", workers)
    assert front(points) == front(truth) and len(front(truth)) > 2

    exact = {p["number"]: p["metrics"] for p in truth}
    pruned = [p for p in points if p["state"] == "pruned"]
    some = [p for p in pruned if p["reason"].startswith("full effort of some networks:")]
    compiled = workers.kinds.count("cycles") - 3 * (len(points) - len(pruned))
    assert len(pruned) > 5 and len(some) <= compiled <= 2 * len(some)
    assert {p["reason"].partition(":")[0] for p in pruned if p not in some} <= {"bound", "estimate", "schedule"}
    for point in points:
        own = exact[point["number"]]
        if point["state"] == "pruned":
            better = exact[int(point["reason"].rpartition(" ")[2])]
            assert all(better[f"objective{n}"] <= own[f"objective{n}"] for n in (0, 1))
            assert point["metrics"]["cycles"] <= own["cycles"] and point["metrics"]["dram_bytes"] <= own["dram_bytes"]
        else:
            assert point["metrics"] == own


@pytest.mark.slow
def test_larger_scratchpads_tell_of_smaller_ones(networks: list[Network], tmp_path: Path) -> None:
    """All machines of one array have the same LUTs: the largest and its neighbours are compiled, and the front stays.
    Bounds are computed for the largest and smallest scratchpads only, where both leave the same to the CPU."""
    axes = {"block_in": [4, 8], "act_rows": [512, 1024, 2048, 4096]}
    table = TABLE | {"axes": axes, "memory": {}}
    _, truth = sweep(table | {"search": {"prune": False}}, networks[:2], tmp_path / "all", Here(seed=0))
    workers = Here(seed=1)
    _, points = sweep(table, networks[:2], tmp_path / "pruned", workers)
    exact = {p["number"]: p["metrics"] for p in truth}
    assert {row[1:] for row in front(points).values()} == {row[1:] for row in front(truth).values()}
    assert front(points).items() <= front(truth).items() and len(front(points)) > 1
    looked = [task.row["rung"] for task in workers.tasks if task.kind == "rung"]
    assert looked.count("bound") == 2 * len(axes["block_in"]) * len(networks[:2])
    told = [p for p in points if p["state"] == "pruned" and p["reason"].startswith("larger scratchpads:")]
    assert len(told) >= 3
    for point in told:
        own, better = exact[point["number"]], exact[int(point["reason"].rpartition(" ")[2])]
        assert better["lut"] <= own["lut"]
        assert better["geomean_microseconds"] <= own["geomean_microseconds"]
        assert point["metrics"]["cycles"] <= own["cycles"] and point["metrics"]["dram_bytes"] <= own["dram_bytes"]


@pytest.mark.medium
def test_larger_scratchpads_run_the_programs_of_smaller_ones() -> None:
    """Cycles are the same, whichever of the scratchpads is larger."""
    small = PRESETS["tiny"].with_(act_rows=512, wgt_tiles=64, acc_rows=128)
    program = tilewright.compile(MODEL, config=small)
    assert isinstance(program, Program)
    for name in ROOM:
        large = replace(program, config=small.with_(**{name: 2 * getattr(small, name)}))
        assert program_cycles(large) == program_cycles(program)


@pytest.mark.medium
@pytest.mark.parametrize("network", ["segmentation", "depthwise"])
def test_what_fits_smaller_scratchpads_fits_larger_ones(network: str, networks: list[Network]) -> None:
    """Two machines that leave the same to the CPU tell what one between them does."""
    content = next(n.content for n in networks if n.name == network)
    left = []
    for rows in (64, 128, 256, 512, 1024, 4096):
        config = PRESETS["tiny"].with_(act_rows=rows, wgt_tiles=max(4, rows // 32), acc_rows=max(16, rows // 16))
        graph = ModelSource(content).graph()
        run_passes(graph)
        found = rungs.evaluate(graph, config, CompileOptions(), "bound")
        left.append(int(found["on_cpu"].partition(" ")[0]))
    assert left == sorted(left, reverse=True) and left[0] > left[-1]


@pytest.mark.slow
def test_times_of_networks_as_objectives(networks: list[Network], known: Known, tmp_path: Path) -> None:
    """The fastest machine of each network is on the front; points lose before all of their networks are compiled."""
    times = [f"microseconds_{name}" for name in NETWORKS]
    table = TABLE | {"objective": {"minimise": ["microseconds_*"]}}
    space, truth = sweep(table | {"search": {"prune": False}}, networks, tmp_path / "all", Here(seed=0, known=known))
    _, points = sweep(table, networks, tmp_path / "pruned", Here(seed=1, known=known))
    assert [objective.text for objective in space.objectives] == times
    outcomes = [Outcome("", found, [], 0, 0, [], space=space) for found in (points, truth)]
    for network, time in zip(NETWORKS, times, strict=True):
        (own,), (best,) = (outcome.fastest(network, 1) for outcome in outcomes)
        assert own["metrics"][time] == best["metrics"][time]
    reasons = [p["reason"] for p in points if p["state"] == "pruned"]
    assert any(reason.startswith("full effort of some networks:") for reason in reasons)


@pytest.mark.slow
def test_energy_prunes_what_its_floor_shows_to_lose(networks: list[Network], known: Known, tmp_path: Path) -> None:
    """No floor of the energy is above that of the run, of all networks or of one; the front is that of the truth."""
    table = TABLE | {"objective": {"minimise": ["microjoules", "lut"]}}
    _, truth = sweep(table | {"search": {"prune": False}}, networks, tmp_path / "all", Here(seed=0, known=known))
    _, points = sweep(table, networks, tmp_path / "pruned", Here(seed=1, known=known))
    assert front(points) == front(truth)
    exact = {p["number"]: p["metrics"] for p in truth}
    pruned = [p for p in points if p["state"] == "pruned"]
    assert pruned
    keys = [key for key in exact[0] if key.partition("_")[0] in ("microjoules", "chip")]
    assert len(keys) == 2 * (1 + len(NETWORKS))
    for point in pruned:
        own = exact[point["number"]]
        assert all(0 < point["metrics"][key] <= own[key] for key in keys)


@pytest.mark.slow
def test_a_sweep_that_was_stopped_goes_on_to_the_same_end(networks: list[Network], tmp_path: Path) -> None:
    whole = Here(seed=1)
    _, points = sweep(TABLE, networks[1:2], tmp_path / "whole", whole)
    stopped, rest = Here(seed=2, most=25), Here(seed=3)
    with pytest.raises(KeyboardInterrupt):
        sweep(TABLE, networks[1:2], tmp_path / "again", stopped)
    assert sweep(TABLE, networks[1:2], tmp_path / "again", rest)[1] == points
    assert len(stopped.kinds) + len(rest.kinds) == len(whole.kinds)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["random", "pareto"])
def test_other_searches_prune_the_same_points_in_any_order(
    networks: list[Network], tmp_path: Path, method: str
) -> None:
    table = TABLE | {"search": {"method": method, "budget": 16, "seed": 3}}
    first = sweep(table, networks[1:2], tmp_path / "a", Here(seed=1))[1]
    assert sweep(table, networks[1:2], tmp_path / "b", Here(seed=2))[1] == first
    assert {"done", "pruned"} <= {p["state"] for p in first}


@pytest.mark.medium
def test_a_database_without_rungs_is_resumed(networks: list[Network], tmp_path: Path) -> None:
    """A file of the format before there were rungs: its results count, and its sweeps stay what they were."""
    table = {"base": "tiny", "axes": {"queue_depth": [4, 8]}, "objective": {"minimise": ["cycles", "lut"]}}
    _, before = sweep(table | {"search": {"prune": False}}, networks[1:2], tmp_path, Here(seed=0))
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("drop table rung")
    workers = Here(seed=0)
    _, points = sweep(table, networks[1:2], tmp_path, workers)
    assert "cycles" not in workers.kinds and "rung" in workers.kinds
    assert front(points) == front(before)
    assert sweep(table | {"search": {"prune": False}}, networks[1:2], tmp_path, Here(seed=0, most=0))[1] == before


def test_what_cannot_be_pruned() -> None:
    def reason(tool: str = "model", **changes: Any) -> str:
        table = TABLE | {"objective": {"minimise": ["cycles", "lut"]}} | changes
        return why_not(parse_space(table, ["net"]), tool, {"lut", "ff", "block_in"})

    assert reason() == ""
    assert reason(objective={"minimise": ["cycles / clock_mhz", "lut"]}) == ""
    assert reason(search={"prune": False}) == "the space says so"
    assert reason("yosys") == "the area is counted by yosys"
    assert reason(objective={"minimise": ["microjoules", "chip_microjoules_net * lut"]}) == ""
    assert "nothing is known of utilization" in reason(objective={"minimise": ["cycles", "utilization"]})
    assert "'lut / cycles' may fall where cycles grow" in reason(objective={"minimise": ["lut / cycles"]})


@pytest.mark.parametrize(
    ("text", "grows"),
    [
        ("cycles", True),
        ("cycles * lut / (1 + ff)", True),
        ("max(cycles, lut) - ff", True),
        ("sqrt(cycles) + log2(1 + cycles)", True),
        ("3 - lut", True),
        ("0 - cycles", False),
        ("(lut - ff) * cycles", False),
        ("lut / cycles", False),
        ("abs(cycles - lut)", False),
        ("round(cycles % 8)", False),
    ],
)
def test_expressions_that_grow(text: str, grows: bool) -> None:
    assert Expression(text, {"cycles", "lut", "ff"}, "c").grows({"cycles"}) == grows


@pytest.mark.parametrize(("text", "bounded"), [("cycles <= 2 * lut", True), ("lut >= cycles", True),
                                               ("cycles >= 5", False), ("cycles == 5", False)])  # fmt: skip
def test_constraints_that_stay_broken(text: str, bounded: bool) -> None:
    assert Expression(text, {"cycles", "lut"}, "c").bounded_by({"cycles"}) == bounded


def test_hypervolume() -> None:
    assert hypervolume([(0, 0)], (0, 0), (4, 2)) == 1
    assert hypervolume([(1, 1), (2, 0)], (0, 0), (4, 2)) == pytest.approx((1 * 1 + 2 * 2) / 8)
    assert hypervolume([(1, 1), (2, 1.5)], (0, 0), (4, 2)) == pytest.approx(3 / 8)
    assert hypervolume([(1, 5, 1)], (0, 5, 0), (2, 5, 2)) == pytest.approx(1 / 4)
    assert hypervolume([(0, 1, 1), (1, 0, 0)], (0, 0, 0), (2, 2, 2)) == pytest.approx((1 + 4) / 8)
    assert hypervolume([], (0,), (1,)) == 0


def test_piped_progress_is_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of the sweep comes as a line every so often where standard error is no terminal."""
    monkeypatch.setattr("tilewright.cli.commands.sweep._EVERY_SECONDS", 0.05)
    with _Shown("cycles") as shown:
        shown.show(Progress(done=3, pruned=2, left=5, computed=12, best=1234567.0, hypervolume=0.25))
        while not (said := capsys.readouterr().err):
            pass
    assert "3 points done, 2 pruned, 5 left, best cycles 1.23 M, hypervolume 0.250, about 0 s left, 50%" in said
