"""`tilewright report`: what the page says is what the database has, and the page works in a browser."""

from __future__ import annotations

import io
import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from tests.unit.tilewright.sweep.here import SPACE, swept
from tilewright.cli import cli
from tilewright.sweep import Database
from tilewright.sweep.database import FILE
from tilewright.sweep.report import page as report_page
from tilewright.sweep.report.data import SweepData, effect, load
from tilewright.sweep.report.plots import Plot, Prefixed, front_plot, sensitivity_plot

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A swept folder: 12 points on the digits network, some of them too slow."""
    return swept(tmp_path_factory.mktemp("report"), SPACE)


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    found = json.loads(invoke("report", folder, "--json", "-").stdout)
    assert found["points"] == 12
    return Path(found["page"])


def invoke(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="tilewright")
    assert done.exit_code == code, done.output
    return done


def data_of(folder: Path) -> SweepData:
    with Database(folder) as database:
        return load(database)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0, 20000, 40000], ["0", "20k", "40k"]),
        ([49900, 50000, 50100], ["49.9k", "50.0k", "50.1k"]),
        ([1.0e6, 1.00001e6], ["1.00000M", "1.00001M"]),
        ([0.1, 0.2, 0.3], ["0.1", "0.2", "0.3"]),
        ([500], ["500"]),
        ([12500, 15000, 17500], ["12.5k", "15.0k", "17.5k"]),
        ([10000, 20000, 50000], ["10k", "20k", "50k"]),
    ],
)
def test_neighbouring_ticks_read_differently(values: list[float], labels: list[str]) -> None:
    assert Prefixed().format_ticks(values) == labels


def test_the_page_is_named_by_what_is_swept(folder: Path) -> None:
    """No digest as its title, no front of a quantity that is the same everywhere."""
    with Database(folder) as database:
        data = load(database)
    assert report_page.page_title(data) == "Sweep of block_in, block_out, read_latency over digits"
    varying = {q.key for q in data.changing}
    assert {"milliseconds", "lut"} <= varying <= {q.key for q in data.quantities}
    for point in data.points:
        point["metrics"]["lut"] = 1000
    assert "lut" not in {q.key for q in data.changing}


def test_fronts_by_brute_force(folder: Path) -> None:
    data = data_of(folder)
    assert {p["state"] for p in data.points} == {"done", "infeasible"}
    rows = {p["number"]: (p["metrics"]["cycles"], p["metrics"]["lut"]) for p in data.feasible}
    expected = {
        n for n, (x, y) in rows.items()
        if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in rows.values())
    }  # fmt: skip
    assert set(data.front) == set(data.front_over("cycles", "lut")) == expected
    assert data.front[0] == min(rows, key=lambda n: rows[n])


def test_effect_of_an_axis(folder: Path) -> None:
    data = data_of(folder)
    found = effect(data, "block_in", "cycles")
    cycles = {tuple(p["assignment"][k] for k in ("block_in", "block_out", "read_latency")): p["metrics"]["cycles"]
              for p in data.points}  # fmt: skip
    steps = [cycles[8, out, wait] / cycles[4, out, wait] for out in (8, 16) for wait in (16, 64)]
    assert found.values == [4, 8, 16] and found.pairs == [4, 4, 4]
    assert found.low[1] == pytest.approx(min(steps)) and found.high[1] == pytest.approx(max(steps))
    assert found.middle[1] == pytest.approx((steps[0] * steps[1] * steps[2] * steps[3]) ** 0.25)
    assert found.middle[2] < found.middle[1] < 1
    assert effect(data, "read_latency", "lut").middle == [1.0, 1.0]


def test_spots_lie_on_their_marks(folder: Path) -> None:
    """A spot in the picture is where matplotlib drew the point."""
    data = data_of(folder)
    plot = front_plot(data, *data.quantities[:2], [])
    assert len(plot.spots) == len(data.points)
    picture = np.asarray(Image.open(io.BytesIO(plot.png())).convert("RGB"), np.int32)
    scale = picture.shape[1] / plot.figure.bbox.width
    for spot in plot.spots:
        pixel = picture[round(spot.y * scale), round(spot.x * scale)]
        assert np.abs(pixel - 255).max() > 30, spot  # grid lines are lighter
    found = sensitivity_plot(data, data.latency)
    assert isinstance(found, Plot) and len(found.spots) == 7


def test_page_and_plots(folder: Path, page: Path) -> None:
    text = page.read_text()
    assert not re.search(r'(src|href)="(?!#|data:)', text) and "@import" not in text  # opens offline
    data = data_of(folder)
    for p in data.points:
        assert f"{p['metrics']['cycles']:,.0f}" in text
    for name in ("front_milliseconds_lut", "sensitivity_milliseconds", "roofline_digits", "timeline_digits"):
        assert (page.parent / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (page.parent / f"{name}.svg").read_text().startswith("<?xml")
        assert f'id="{name}"' in text


def test_pruned_points_are_on_the_page(tmp_path: Path) -> None:
    """Points that were left out before full effort are listed, with the rung and the point they lose to."""
    space = SPACE.replace("prune = false", "prune = true").replace('constraints = ["cycles <= 20000"]', "")
    space = space.replace("read_latency = [16, 64]", "read_interval = [1, 32]")
    swept(tmp_path, space)
    pruned = [p for p in data_of(tmp_path).rest if p["state"] == "pruned"]
    text = Path(json.loads(invoke("report", tmp_path, "--json", "-").stdout)["page"]).read_text()
    rows = text.split('<section id="pruned">')[1].split("</section>")[0]
    assert pruned and f"{len(pruned)} points lose to others before full effort" in rows
    for point in pruned:
        assert f'<td class="text">{point["reason"]}</td>' in rows
        assert re.match(
            r"(bound|estimate|schedule|full effort of some networks): in nothing better than point \d+$",
            point["reason"],
        )


def test_networks_by_time(folder: Path, page: Path) -> None:
    """The table of a network has the fastest points by time, each at a clock of its own; facts say where it is from."""
    data = data_of(folder)
    table = report_page.network_table(data, "digits", data.networks["digits"])
    place = {head: n for n, head in enumerate(table["heads"])}
    rows = [{head: row[n].replace(",", "") for head, n in place.items()} for row in table["rows"]]
    times = [float(row["cycles"]) / float(row["MHz"]) / 1e3 for row in rows]
    assert times == sorted(times) and len({row["MHz"] for row in rows}) > 1 and table["unit"] == "time"
    for row, ms in zip(rows, times):
        assert float(row["ms"]) == pytest.approx(ms, rel=0.02)
        assert float(row["inferences/s"]) == pytest.approx(1e3 / ms, rel=0.02)
    assert dict(report_page.sweep_facts(data))["clock"].startswith("calibrated model")
    for point in data.points:
        del point["metrics"]["clock_mhz"], point["metrics"]["milliseconds"]
    assert data.latency.key == "cycles"
    plain = report_page.network_table(data, "digits", data.networks["digits"])
    cycles = [int(row[plain["heads"].index("cycles")].replace(",", "")) for row in plain["rows"]]
    assert cycles == sorted(cycles) and "ms" not in plain["heads"] and plain["unit"] == "cycles"


def test_inside_agrees_with_the_sweep(folder: Path, tmp_path: Path) -> None:
    data = data_of(folder)
    found = json.loads(
        invoke("report", folder, "-o", tmp_path / "r", "--point", 7, "--against", 0, "--json", "-").stdout
    )
    assert found["networks"]["digits"]["cycles"] == data.point(7)["metrics"]["cycles"]
    assert found["networks"]["digits"]["against_cycles"] == data.point(0)["metrics"]["cycles"]
    assert found["config_differences"]
    text = (tmp_path / "r" / "report.html").read_text()
    said = re.search(r"Energy</span> ([\d.,]+) µJ, of which DRAM", text)
    assert said and float(said[1]) == pytest.approx(data.point(7)["metrics"]["microjoules"], rel=1e-3)
    rows = re.findall(r'<tr>(<td class="text">.*?)</tr>', text.split("<th>µJ</th>")[1].split("</table>")[0])
    parts = [float(re.sub(r"<.*?>", "", row.split("</td>")[5])) for row in rows]
    assert sum(parts) == pytest.approx(float(said[1]), rel=0.02)


def test_a_model_that_was_taken_away(folder: Path, tmp_path: Path) -> None:
    """The layers are in the database; only those of an older version need the model again."""
    shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("report"))
    shutil.rmtree(tmp_path / "copy" / "networks")
    page = tmp_path / "copy" / "report" / "report.html"
    invoke("report", tmp_path / "copy")
    assert "is not in the folder" not in page.read_text() and "<h3>digits:" in page.read_text()
    with sqlite3.connect(tmp_path / "copy" / FILE) as database:
        database.execute("delete from inside")
    invoke("report", tmp_path / "copy")
    assert "The model of digits is not in the folder" in page.read_text()


def test_mistakes(folder: Path, tmp_path: Path) -> None:
    assert "has no sweep.sqlite" in invoke("report", tmp_path, code=2).stderr
    assert "no sweep 'zz'" in invoke("report", folder, "--sweep", "zz", code=2).stderr
    assert "point 99 has no results" in invoke("report", folder, "--point", 99, code=2).stderr
    with Database(tmp_path / "empty"):
        pass
    assert "no sweep yet" in invoke("report", tmp_path / "empty", code=2).stderr


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_in_a_browser(browser: Any, page: Path, folder: Path, width: int, height: int) -> None:
    from selenium.webdriver.common.by import By

    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width  # nothing sticks out
    heights = "[...document.querySelectorAll('#fronts svg text')].map(t => t.getBoundingClientRect().height)"
    smallest = browser.execute_script(f"return Math.min(...{heights})")
    assert smallest >= 8  # CSS pixels: axis labels can be read

    about = browser.find_element(By.ID, "about")
    assert not about.is_displayed()
    spot = browser.find_element(By.CSS_SELECTOR, "#front_milliseconds_lut .spots circle:last-child")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus()", spot)
    assert about.is_displayed() and "cycles:" in about.text and "block_in" in about.text
    box = browser.execute_script("const b = arguments[0].getBoundingClientRect(); return [b.left, b.right]", about)
    assert box[0] >= 0 and box[1] <= width
    browser.execute_script("arguments[0].blur()", spot)
    assert not about.is_displayed()

    heads = browser.find_elements(By.CSS_SELECTOR, "#points th")
    column = [head.text for head in heads].index("cycles")
    cells = f"#points tbody td:nth-child({column + 1})"
    cycles = sorted(p["metrics"]["cycles"] for p in data_of(folder).points)
    for expected in (cycles, cycles[::-1]):
        browser.execute_script("arguments[0].click()", heads[column])
        shown = [float(cell.get_attribute("data-value")) for cell in browser.find_elements(By.CSS_SELECTOR, cells)]
        assert shown == expected
    assert browser.get_log("browser") == []
