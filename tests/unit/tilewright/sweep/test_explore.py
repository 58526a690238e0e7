"""The interactive part of a report: its data are the database's, and its script compares as `tilewright compare`."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from tests.unit.tilewright.sweep.here import MODEL, SPACE, swept
from tilewright.api.compilation import compile_program
from tilewright.fpga import fmax
from tilewright.measure.compare import compare
from tilewright.measure.explain import Explanation, explain
from tilewright.runtime.energy import meter
from tilewright.sweep import Database, inside
from tilewright.sweep.database import FILE
from tilewright.sweep.report import write_report
from tilewright.sweep.report.advice import advise, axis_table, beyond, machine
from tilewright.sweep.report.data import SweepData, fitted, load
from tilewright.sweep.report.inside import Insides, look_inside
from tilewright.sweep.report.page import sweep_facts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swept(tmp_path_factory.mktemp("explore"), SPACE)


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    return Path(write_report(folder, folder / "report", point=7, against=0)["page"])


def read(folder: Path) -> tuple[SweepData, Insides]:
    """The sweep and its points from the inside, none of them compiled again."""
    with Database(folder) as database:
        data = load(database)
        found, missing = look_inside(database, data, [], lambda text, done: pytest.fail(text))
    assert not missing
    return data, found


def explained(data: SweepData, number: int) -> Explanation:
    point = data.machine(number)
    program = compile_program(MODEL.read_bytes(), point.config, memory=point.timing, effort=1, tuning="off")
    return explain(program, point.timing)


def embedded(page: Path) -> dict[str, Any]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    parsed: dict[str, Any] = json.loads(found[1])
    return parsed


def test_what_the_sweep_keeps_is_what_explain_says(folder: Path) -> None:
    data, insides = read(folder)
    assert len(insides) == len(data.points) == 12
    for number in (0, 7):
        kept, found = insides[number, "digits"], explained(data, number)
        assert kept.cycles == found.cycles == data.point(number)["metrics"]["cycles"]
        assert kept.bound == found.bound and kept.losses == found.losses
        for row, other in zip(kept.rows, found.rows, strict=True):
            assert [m.name for m in row.members] == [m.name for m in other.members]
            assert (row.cycles, row.bound, row.losses) == (other.cycles, other.bound, other.losses)
            assert (row.layer.op, row.layer.macs) == (other.layer.op, other.layer.macs)
            assert kept.active_cycles(row) == found.active_cycles(other)
        energies = kept.energies(meter().load())
        assert [e.total for e in energies] == pytest.approx([e.total for e in found.energies])


def test_shares_of_the_engines(folder: Path) -> None:
    """Shares equal a count cycle by cycle of the instructions that are underway."""
    data, _ = read(folder)
    found = explained(data, 7)
    ops = found.program.ops()
    working = np.zeros((len(inside.ENGINES), found.cycles))
    offset = 0
    for trace in found.traces:
        for n, (_, _, start, end) in enumerate(trace.times.tolist()):
            engine = ops[trace.first + n].instruction.engine.name
            if engine in inside.ENGINES and start and end:
                working[inside.ENGINES.index(engine), offset + start : offset + end] = 1
        offset += trace.cycles
    total = np.concatenate([np.zeros((4, 1)), working.cumsum(axis=1)], axis=1)
    edges = np.linspace(0, found.cycles, inside.SLOTS + 1)
    expected = [np.diff(np.interp(edges, np.arange(found.cycles + 1), row)) / np.diff(edges) for row in total]
    assert np.abs(inside.busy_slots(found) / 255 - expected).max() < 0.005


def test_damaged_records(folder: Path) -> None:
    data, insides = read(folder)
    with Database(folder) as database:
        good = next(iter(database.insides(data.row["id"]).values()))
    config = insides[0, "digits"].config
    assert isinstance(good, bytes) and inside.read(good, "digits", config) is not None
    for bad in (None, "text", b"", good[:-1], good[:40], b"\x00" + good, bytes(len(good))):
        with pytest.raises(ValueError):
            inside.read(bad, "digits", config)


def test_a_result_of_an_older_version(folder: Path, tmp_path: Path) -> None:
    """Two points without their layers are compiled once when they are looked into, and kept."""
    _, insides = read(folder)
    copy = tmp_path / FILE
    copy.write_bytes((folder / FILE).read_bytes())
    with sqlite3.connect(copy) as connection:
        connection.execute("delete from inside")
    connection.close()
    (tmp_path / "networks").symlink_to(folder / "networks")
    said: list[str] = []
    for _ in range(2):
        with Database(tmp_path) as database:
            found, missing = look_inside(database, load(database), [7, 0], lambda text, _: said.append(text))
        assert set(found) == {(7, "digits"), (0, "digits")} and not missing
        for key, kept in found.items():
            assert kept.losses == insides[key].losses and (kept.busy == insides[key].busy).all()
    assert said == ["compiling digits for point 7", "compiling digits for point 0"]


def test_the_data_of_the_page(folder: Path, page: Path) -> None:
    data, insides = read(folder)
    found = embedded(page)
    assert [a["name"] for a in found["axes"]] == data.varied and found["chosen"] == [7, 0]
    assert {"milliseconds", "cycles", "lut"} <= {q["key"] for q in found["quantities"]}
    for point, row in zip(found["points"], data.points, strict=True):
        assert (point["number"], point["state"], point["reason"]) == (row["number"], row["state"], row["reason"])
        assert point["front"] == (row["number"] in data.front)
        assert point["axes"] == [row["assignment"][axis] for axis in data.varied]
        assert point["values"] == [row["metrics"][q["key"]] for q in found["quantities"]]
    (network,) = found["networks"]
    assert set(network["points"]) == {str(p["number"]) for p in data.points}
    for number, rows in network["points"].items():
        kept = insides[int(number), "digits"]
        assert [row[1:3] for row in rows] == [[r.cycles, r.bound] for r in kept.rows]
        assert [row[3] for row in rows] == [round(e.total / 1e3) for e in kept.energies(meter().load())]
        assert [[network["members"][m] for m in row[0]] for row in rows] == [
            [m.name for m in r.members] for r in kept.rows
        ]


def test_names_cannot_end_the_script(tmp_path: Path, folder: Path) -> None:
    (tmp_path / FILE).write_bytes((folder / FILE).read_bytes())
    odd = "</script><script>alert(1)</script>"
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("update sweep_point set reason = ? where state = 'infeasible'", (odd,))
    connection.close()
    made = Path(write_report(tmp_path, tmp_path / "report")["page"])
    assert odd not in made.read_text()
    assert odd in {p["reason"] for p in embedded(made)["points"]}


def test_the_recommendation(folder: Path) -> None:
    """A point is recommended by its definition: the least area within 5 % of the fewest cycles."""
    data, insides = read(folder)
    done = {p["number"]: p["metrics"] for p in data.feasible}
    fewest = min(m["cycles"] for m in done.values())
    near = {n: m["lut"] for n, m in done.items() if m["cycles"] <= 1.05 * fewest}
    advice = advise(data, insides)
    assert advice.point in near and near[advice.point] == min(near.values())
    text = "\n".join(advice.sentences)
    assert f"point {advice.point}" in text and machine(data, data.point(advice.point)) in text
    broken = sum(p["state"] == "infeasible" for p in data.points)
    assert f"Of 12 points {broken} break 'cycles <= 20000'." in advice.sentences
    kept = insides[advice.point, "digits"]
    share = sum(row.compute for row in kept.rows) / kept.cycles
    assert f"of its cycles {share:.0%} are steps of the array" in text


def test_no_point_keeps_the_constraints(folder: Path) -> None:
    data, insides = read(folder)
    data.points = [p | {"state": "infeasible", "reason": "constraint 'lut <= 1'"} for p in data.points]
    data.front = []
    found = advise(data, insides)
    assert found.point is None
    assert found.sentences == ["No point keeps all constraints.", "Of 12 points 12 break 'lut <= 1'."]


def test_points_beyond_the_calibration(folder: Path) -> None:
    data, insides = read(folder)
    taken = advise(data, insides).point
    assert taken is not None
    config, machines = data.machine(taken).config, [machine for machine, _ in fmax.load("ecp5").designs]
    most = {name: max(getattr(m, name) for m in machines) for name in ("macs_per_cycle", "vector_lanes")}
    least = {name: min(getattr(m, name) for m in machines) for name in most}
    sizes = [
        f"{name} {getattr(config, name)} ({least[name]}..{most[name]})"
        for name in most
        if getattr(config, name) > most[name]
    ]
    assert sizes and beyond(data, data.point(taken)) == {"area": [], "clock": sizes}
    said = f"Its clock is extrapolated: the model of ecp5 was not calibrated on {', '.join(sizes)}."
    assert said in advise(data, insides).sentences
    others = [data.machine(p["number"]).config for p in data.points]
    count = sum(any(getattr(c, name) > size for name, size in most.items()) for c in others)
    facts = dict(sweep_facts(data))
    assert facts["clock"] == f"calibrated model; {count} of 12 points beyond its calibration"
    assert facts["area"] == "calibrated area model, ecp5"
    data.row["tool"] = "nextpnr"
    assert beyond(data, data.point(taken)) == {}


def test_axes_by_their_effect(folder: Path) -> None:
    data, _ = read(folder)
    table = axis_table(data)
    assert table["heads"][:3] == ["axis", "values", "time"]
    assert {row[0] for row in table["rows"]} == set(data.varied)
    assert table["rows"][0][0] == "block_in" and table["rows"][-1][0] == "read_latency"
    lut = table["rows"][-1][table["heads"].index("LUT")]
    assert lut == "1.00 (1.00 to 1.00)"


def test_axes_of_points_without_neighbours(folder: Path) -> None:
    """A power law that all points follow is found again where no two points differ in one axis only."""
    data, _ = read(folder)
    chosen = [p for n, p in enumerate(data.points) if n in (0, 3, 4, 7, 9, 10)]
    for p in chosen:
        a = p["assignment"]
        p["metrics"]["lut"] = 100 * a["block_in"] ** 0.5 * a["block_out"] * a["read_latency"] ** -0.25
    data.points = chosen
    assert fitted(data, "lut") == pytest.approx({"block_in": 2.0, "block_out": 2.0, "read_latency": 4**-0.25})
    table = axis_table(data)
    lut = {row[0]: row[table["heads"].index("LUT")] for row in table["rows"]}
    assert lut["block_in"] == "2.00 by a fit" and len(lut) == 3
    data.points = chosen[:2]
    assert fitted(data, "lut") == {}


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (400, 844)])
def test_in_a_browser(browser: Any, page: Path, folder: Path, width: int, height: int) -> None:
    data, _ = read(folder)
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    sizes = "[...document.querySelectorAll('#scatter text, #parallel text')].map(t => t.getBoundingClientRect())"
    assert browser.execute_script(f"return Math.min(...{sizes}.map(b => b.height))") >= 8  # CSS pixels: can be read
    assert browser.execute_script(f"return Math.max(...{sizes}.map(b => b.right))") <= width

    def spots() -> dict[int, str]:
        found = browser.find_elements(By.CSS_SELECTOR, "#scatter .spot")
        return {int(spot.get_attribute("data-number")): spot.get_attribute("fill") for spot in found}

    assert set(spots()) == {p["number"] for p in data.points}
    Select(browser.find_element(By.ID, "colour")).select_by_value("block_in")
    colours: dict[int, set[str]] = {}
    for number, colour in spots().items():
        colours.setdefault(data.point(number)["assignment"]["block_in"], set()).add(colour)
    assert {len(one) for one in colours.values()} == {1} and len(set.union(*colours.values())) == 3

    button = browser.find_element(By.CSS_SELECTOR, '#filters button[data-value="block_in 4"]')
    browser.execute_script("arguments[0].click()", button)
    assert set(spots()) == {p["number"] for p in data.points if p["assignment"]["block_in"] != 4}
    assert browser.find_element(By.ID, "count").text == "8 of 12 points"
    browser.execute_script("arguments[0].click()", button)

    # Two points, by a click and by the list; then layer by layer as `tilewright compare` has them.
    spot = browser.find_element(By.CSS_SELECTOR, '#scatter .spot[data-number="5"]')
    browser.execute_script("arguments[0].dispatchEvent(new MouseEvent('click'))", spot)
    Select(browser.find_element(By.ID, "first")).select_by_value("2")
    heads = [h.text for h in browser.find_elements(By.CSS_SELECTOR, "#side > .wide th")]
    assert heads[1:3] == ["A: point 2", "B: point 5"]
    expected = compare(explained(data, 2), explained(data, 5))
    rows = browser.find_elements(By.CSS_SELECTOR, '#side details[data-name="digits"] tbody tr')
    for row, pair in zip(rows, expected.pairs, strict=True):
        cells = row.find_elements(By.TAG_NAME, "td")
        shown = [int(cell.get_attribute("data-value")) for cell in cells[1:3]]
        assert shown == list(pair.cycles)
        most, change = max(pair.changes.items(), key=lambda c: abs(c[1]))
        if change:
            first = cells[6].get_attribute("textContent").split(", ")[0].replace(",", "")
            assert abs(int(first.split()[-1].replace("−", "-"))) == abs(change), (first, most)
    assert browser.get_log("browser") == []
