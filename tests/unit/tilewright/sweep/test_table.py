"""A sweep as a table: CSV, Parquet and data frame have what the database has."""

from __future__ import annotations

import csv
import json
import sqlite3
import sys
from pathlib import Path

import pandas
import pytest
from click.testing import CliRunner

from tests.unit.tilewright.sweep.here import SPACE, swept
from tilewright.cli import cli
from tilewright.errors import UsageError
from tilewright.sweep import Database, load
from tilewright.sweep.database import FILE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep with points of all kinds: too large, too slow, and no machine."""
    text = SPACE.replace("block_in = [4, 8, 16]", "block_in = [4, 8, 12]").replace('20000"', '20000", "lut <= 60000"')
    return swept(tmp_path_factory.mktemp("table"), text.replace("[16, 64]", "[16]"))


def rows_of(folder: Path) -> list[sqlite3.Row]:
    connection = sqlite3.connect(folder / FILE)
    connection.row_factory = sqlite3.Row
    found = connection.execute("select * from sweep_point order by number").fetchall()
    connection.close()
    return found


def test_exports_equal_the_database(folder: Path, tmp_path: Path) -> None:
    paths = [tmp_path / "points.csv", tmp_path / "points.parquet"]
    arguments = ["report", folder, "-o", tmp_path / "r", *(part for path in paths for part in ("--export", path))]
    done = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    expected = rows_of(folder)
    assert {row["state"] for row in expected} >= {"done", "invalid"}
    with paths[0].open(newline="") as file:
        lines = list(csv.DictReader(file))
    frames = [pandas.read_parquet(paths[1]).set_index("number"), load(folder).to_pandas()]
    assert len(lines) == len(expected)
    for row, line in zip(expected, lines, strict=True):
        said = (str(row["number"]), row["state"], row["reason"] or "")
        assert (line["number"], line["state"], line["reason"]) == said
        for name, value in json.loads(row["assignment"]).items():
            assert int(line[name]) == value == frames[0].loc[row["number"], name] == frames[1].loc[row["number"], name]
        metrics = json.loads(row["metrics"] or "{}")
        for name in set(line) - {"number", "state", "reason", "front"} - set(json.loads(row["assignment"])):
            if name in metrics:  # all digits
                assert float(line[name]) == metrics[name] == frames[0].loc[row["number"], name]
                assert frames[1].loc[row["number"], name] == metrics[name]
            else:
                assert line[name] == "" and pandas.isna(frames[0].loc[row["number"], name])


def test_the_front(folder: Path) -> None:
    frame = load(folder).to_pandas()
    done = frame[frame.state == "done"]
    for number, row in done.iterrows():
        better = (done.cycles <= row.cycles) & (done.lut <= row.lut)
        better &= (done.cycles < row.cycles) | (done.lut < row.lut)
        assert row.front == (not better.any()), number
    assert not frame[frame.state != "done"].front.any()


def test_it_shows_itself(folder: Path) -> None:
    table = load(folder)
    assert repr(table).startswith("Table(sweep=") and f"points={len(table)}" in repr(table)
    assert "<th>block_in</th>" in table._repr_html_() and "<th>objective1</th>" in table._repr_html_()


def test_mistakes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"has no sweep.sqlite"):
        load(tmp_path)
    with Database(tmp_path):
        pass
    with pytest.raises(UsageError, match="no sweep yet"):
        load(tmp_path)
    with pytest.raises(UsageError, match="no sweep 'zz'"):
        load(folder, "zz")
    for name, said in (("points.xlsx", "'.xlsx'"), ("points", "a file without suffix")):
        with pytest.raises(UsageError, match=rf"{name}: a table is written as .csv or .parquet, not as {said}"):
            load(folder).write(tmp_path / name)
    done = CliRunner().invoke(cli, ["report", str(folder), "--export", "x.xlsx"])
    assert done.exit_code == 2 and "a table is written as .csv or .parquet" in done.output
    for module, use in (("pandas", "to_pandas"), ("pyarrow", "to_arrow")):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, module, None)
            with pytest.raises(UsageError, match=rf"{module} is missing: .*pip install .*\[tables\]"):
                getattr(load(folder), use)()
