"""Databases of sweeps."""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime.energy import meter
from tilewright.sweep import inside
from tilewright.sweep import load as load_table
from tilewright.sweep.database import FILE, Database
from tilewright.sweep.report.advice import advise
from tilewright.sweep.report.data import load
from tilewright.sweep.report.inside import look_inside
from tilewright.sweep.report.page import render
from tilewright.sweep.space import load_space
from verification.fuzz.files import mutations as m
from verification.fuzz.files.files import placed


@functools.cache
def _database(folder: Path) -> Path:
    """Returns a folder with a sweep of three points, as `tilewright sweep` leaves it."""
    made = folder / "swept"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    (made / "space.toml").write_text(
        '[axes]\nblock_in = [4, 8, 16]\n[objective]\nminimise = ["cycles", "lut"]\n', encoding="utf-8"
    )
    space = load_space(made / "space.toml", ["net"])
    with Database(made) as database:
        sweep = database.begin_sweep(space.text, {"net": "0" * 16}, 1, "model")
        for number in range(3):
            assignment = space.assignment(number)
            point = space.point(assignment)
            database.keep_point(point)
            metrics = {"cycles": 1000.0 / (number + 1), "lut": 100.0 * number + 50, "utilization": 0.5,
                       "dram_bytes": 4096, "scratchpad_bytes": 1000 + number}  # fmt: skip
            metrics |= {"objective0": metrics["cycles"], "objective1": metrics["lut"]}
            database.keep_sweep_point(sweep, number, assignment, "done", point=point.id, metrics=metrics)
            row = {"point": point.id, "network": "0" * 16, "sources": "s", "effort": 1, "state": "done",
                   "cycles": 1000 // (number + 1), "utilization": 0.5, "dram_read_bytes": 2048,
                   "dram_written_bytes": 2048, "npu_mac_fraction": 1.0}  # fmt: skip
            rows = [([f"conv_{layer}"], "QConv") for layer in range(2)]
            numbers = np.arange(2 * len(inside.NUMBERS)).reshape(2, -1)
            busy = np.full((len(inside.ENGINES), inside.SLOTS), 7, np.uint8)
            row["inside"] = inside.pack(rows, numbers, np.ones((2, len(meter().EVENTS))), busy)
            database.keep("cycles", f"key{number}", row)
        database.end_sweep(sweep)
    with sqlite3.connect(made / FILE) as connection:
        connection.execute("pragma journal_mode = delete")
    connection.close()
    return made / FILE


def mutated_database(rng: random.Random) -> bytes:
    source = _database(Path(tempfile.gettempdir()) / f"tilewright-fuzz-{os.getpid()}")
    data = source.read_bytes()
    if rng.random() < 0.5:
        return m.mutate_bytes(rng, data)
    changed = source.with_name("changed.sqlite")
    changed.write_bytes(data)
    connection = sqlite3.connect(changed)
    with connection:
        for _ in range(rng.choice((1, 1, 2))):
            _change_table(rng, connection)
    connection.close()
    return changed.read_bytes()


def _change_table(rng: random.Random, connection: sqlite3.Connection) -> None:
    tables = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
    table = rng.choice(tables)
    columns = [row[1] for row in connection.execute(f"pragma table_info({table})")]
    column = rng.choice(columns)
    kind = rng.random()
    try:
        if kind < 0.06:
            connection.execute(f"drop table {table}")
        elif kind < 0.12:
            connection.execute(f"alter table {table} rename column {column} to other")
        elif kind < 0.16:
            connection.execute(f"delete from {table}")
        elif kind < 0.2:
            connection.execute(f"alter table {table} rename to moved")
            connection.execute(f"create view {table} as select * from moved")
        else:
            rows = [row[0] for row in connection.execute(f"select rowid from {table}")]
            if rows:
                at = rng.choice(rows)
                (old,) = connection.execute(f"select {column} from {table} where rowid = ?", (at,)).fetchone()
                connection.execute(f"update {table} set {column} = ? where rowid = ?", (_cell(rng, old), at))
    except (sqlite3.Error, OverflowError):
        pass  # a key that is there twice, a number beyond 64 bits: left as it was


def _cell(rng: random.Random, old: Any) -> Any:
    if isinstance(old, str) and old[:1] in ("{", "[") and old[1:2] not in ("", "[") and rng.random() < 0.7:
        return json.dumps(m.mutate_tree(rng, json.loads(old)))
    return rng.choice(
        (None, b"\xff\xfe", "text", "{}", "[" * 5000, "{", 1 << 62, -1, 1e300, float("inf"), "../../etc/passwd", "é")
    )


def read_database(data: bytes, rng: random.Random, folder: Path) -> None:
    for old in folder.glob(f"{FILE}*"):
        old.unlink()
    placed(folder, FILE, data)
    with Database(folder) as database:
        found = load(database)
        for digest in found.networks.values():
            database.network_content(digest)
        for x in found.quantities:
            found.front_over(x.key, found.latency.key)
        first = (found.front or [found.points[0]["number"]])[0]
        insides, _ = look_inside(database, found, [], lambda _, __: None)
        for p in found.points:
            found.machine(p["number"])
        ends = [first, found.points[-1]["number"]]
        render(found, [], [], insides, [], list(found.networks), advise(found, insides), ends)
        load_table(folder).to_csv()
