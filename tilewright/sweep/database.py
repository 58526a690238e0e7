"""The sweep's database, one SQLite file: every result is committed as it arrives, and looked up before it is computed.

    point         a configuration with its memory
    network       a model by the digest of its content
    result        one network on one point: cycles, bytes; or the error
    inside        a result layer by layer; see `inside`
    rung          cycles of one network on one point at a rung below full effort; see `ladder`
    synthesis     cells of one configuration by one tool
    verification  cycles of the RTL beside those of the simulator
    sweep         a space that was swept;  sweep_point: its points, in order, with their state

Keys are digests of everything that decides a result, sources of compiler, simulator or RTL included, so results are
shared by all sweeps of a folder and never outlive a change that could alter them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewright.common.documents import parse_document
from tilewright.errors import UsageError
from tilewright.store.files import write_bytes
from tilewright.sweep.networks import Network
from tilewright.sweep.space import Point

FILE = "sweep.sqlite"
_FORMAT = 3
#: What sqlite3 raises for a damaged file: the second where its own message quotes bytes that are no text.
_DAMAGE = (sqlite3.Error, UnicodeDecodeError)
_SCHEMA = """
create table if not exists point (id text primary key, fingerprint text not null, config text not null,
    memory text not null);
create table if not exists network (id text primary key, name text not null, bytes integer not null);
create table if not exists result (key text primary key, point text not null references point,
    network text not null references network, sources text not null, effort integer not null,
    state text not null, error text, cycles integer, bound_cycles integer, utilization real, dram_read_bytes integer,
    dram_written_bytes integer, macs integer, npu_macs integer, npu_mac_fraction real, instructions integer,
    constant_bytes integer, arena_bytes integer, compile_seconds real, events text, seconds real, cpu_seconds real,
    finished text not null);
create index if not exists result_point on result (point);
create table if not exists inside (key text primary key references result, record blob not null);
create table if not exists rung (key text primary key, point text not null references point,
    network text not null references network, rung text not null, sources text not null, effort integer not null,
    state text not null, error text, cycles integer, dram_bytes integer, on_cpu text, seconds real,
    cpu_seconds real, finished text not null);
create table if not exists synthesis (key text primary key, fingerprint text not null, tool text not null,
    family text not null, sources text not null, state text not null, error text, lut integer, ff integer, dsp integer,
    bram integer, fmax_mhz real, seconds real, cpu_seconds real, finished text not null);
create table if not exists verification (key text primary key, point text not null references point,
    network text not null references network, sources text not null, effort integer not null, state text not null,
    error text, simulated_cycles integer, rtl_cycles integer, seconds real, cpu_seconds real, finished text not null);
create table if not exists sweep (id text primary key, space text not null, networks text not null,
    effort integer not null, tool text not null, started text not null, finished text);
create table if not exists sweep_point (sweep text not null references sweep, number integer not null,
    point text, assignment text not null, state text not null, reason text, metrics text,
    primary key (sweep, number));
"""
_DIGEST = re.compile("[0-9a-f]{16}")
_TABLES = {"cycles": "result", "rung": "rung", "synthesis": "synthesis", "verify": "verification"}


def key_of(*parts: object) -> str:
    """A digest of everything given, 32 hex digits."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


class Database:
    """The database in a folder, opened or made.

    Raises:
        UsageError: the folder cannot be made, or the file is none of ours.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / FILE
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make folder {folder}: {error.strerror or error}") from None
        try:
            self._db = sqlite3.connect(self.path, timeout=60)
            self._db.row_factory = sqlite3.Row
            self._db.execute("pragma trusted_schema = off")
            self._refuse_foreign()
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
            found = self._db.execute("pragma user_version").fetchone()[0]
            if found not in (0, _FORMAT):
                raise UsageError(f"{self.path} has format {found}, this version reads {_FORMAT}; use another folder")
            self._db.executescript(_SCHEMA)
            self._check_columns()
            self._db.execute(f"pragma user_version = {_FORMAT}")
        except _DAMAGE as error:
            raise UsageError(f"cannot use {self.path}: {error}") from None

    @classmethod
    def existing(cls, folder: str | Path) -> Database:
        """The database that a sweep left in a folder. Raises `UsageError` where there is none."""
        if not (Path(folder) / FILE).is_file():
            raise UsageError(f"{folder} has no {FILE}; `tilewright sweep -o {folder}` makes one")
        return cls(folder)

    def _refuse_foreign(self) -> None:
        """Raises `UsageError` for views and triggers: a view in place of a table can compute for ever."""
        kinds = {row[0] for row in self._db.execute("select type from sqlite_master")}
        if kinds - {"table", "index"}:
            raise UsageError(f"cannot use {self.path}: it has a {min(kinds - {'table', 'index'})}, and is none of ours")

    def _check_columns(self) -> None:
        """Raises `UsageError` where a table of one of our names has other columns."""
        with contextlib.closing(sqlite3.connect(":memory:")) as ours:
            ours.executescript(_SCHEMA)
            for (table,) in ours.execute("select name from sqlite_master where type = 'table'").fetchall():
                columns = [
                    {row[1] for row in database.execute(f"pragma table_info({table})")} for database in (ours, self._db)
                ]
                if columns[0] - columns[1]:
                    raise self.damaged(f"table {table} has no column {min(columns[0] - columns[1])}")

    def close(self) -> None:
        """Closes the database; further calls fail."""
        self._db.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def query(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """Rows as dictionaries. Raises `UsageError` for a damaged file."""
        try:
            return [dict(row) for row in self._db.execute(sql, values)]
        except _DAMAGE as error:
            raise UsageError(f"cannot use {self.path}: {error}") from None

    # Results.

    def find(self, kind: str, key: str) -> dict[str, Any] | None:
        """The result of a task ("cycles", "rung", "synthesis" or "verify"), None if it was never computed."""
        rows = self.query(f"select * from {_TABLES[kind]} where key = ?", key)
        return rows[0] if rows else None

    def keep(self, kind: str, key: str, values: dict[str, Any]) -> None:
        """Commits a result; one that was there is replaced. What `inside` among the values has is kept apart."""
        values = dict(values)
        if (record := values.pop("inside", None)) is not None:
            self.keep_inside(key, record)
        self._insert(_TABLES[kind], {"key": key, "finished": _now(), **values})

    def keep_inside(self, key: str, record: bytes) -> None:
        """Commits a result seen layer by layer."""
        self._insert("inside", {"key": key, "record": record})

    def insides(self, sweep: str) -> dict[str, object]:
        """Returns the records of `keep_inside` for the points of a sweep, by key of the result."""
        query = (
            "select inside.key, record from inside join result using (key) "
            "where point in (select point from sweep_point where sweep = ?)"
        )
        return {row["key"]: row["record"] for row in self.query(query, sweep)}

    def keep_point(self, point: Point) -> None:
        """Commits a point if it is new."""
        row = {"id": point.id, "fingerprint": point.config.fingerprint, "config": json.dumps(point.config.to_dict()),
               "memory": json.dumps(asdict(point.timing))}  # fmt: skip
        self._insert("point", row, "ignore")

    def keep_networks(self, networks: Iterable[Network]) -> None:
        """Commits the networks that are new, and puts the models into the folder, for reports."""
        for network in networks:
            row = {"id": network.digest, "name": network.name, "bytes": len(network.content)}
            self._insert("network", row, "ignore")
            path = self._model(network.digest)
            if not path.is_file():
                path.parent.mkdir(exist_ok=True)
                write_bytes(path, network.content)

    def network_content(self, digest: str) -> bytes | None:
        """Bytes of a model, None if it was taken out of the folder, or is another."""
        if not _DIGEST.fullmatch(digest):
            raise self.damaged(f"{digest!r} is no digest of a network")
        try:
            content = self._model(digest).read_bytes()
        except OSError:
            return None
        return content if Network("", content).digest == digest else None

    def _model(self, digest: str) -> Path:
        return self.path.parent / "networks" / digest

    # Sweeps.

    def begin_sweep(self, space: str, networks: dict[str, str], effort: int, tool: str, version: str = "") -> str:
        """The id of a sweep, made if it is new. `networks`: digest by name; `version`: what else its metrics need."""
        sweep = key_of(space, networks, effort, tool, version)[:16]
        row = {"id": sweep, "space": space, "networks": json.dumps(networks), "effort": effort, "tool": tool,
               "started": _now()}  # fmt: skip
        self._insert("sweep", row, "ignore")
        return sweep

    def end_sweep(self, sweep: str) -> None:
        """Notes that every point has its state."""
        with self._db:
            self._db.execute("update sweep set finished = ? where id = ?", (_now(), sweep))

    def keep_sweep_point(
        self,
        sweep: str,
        number: int,
        assignment: dict[str, int],
        state: str,
        *,
        point: str | None = None,
        reason: str | None = None,
        metrics: dict[str, float] | None = None,
    ) -> None:
        """Commits the state of a sweep's point: planned, done, failed, pruned, invalid (no such machine) or
        infeasible."""
        row = {"sweep": sweep, "number": number, "point": point, "assignment": json.dumps(assignment), "state": state,
               "reason": reason, "metrics": json.dumps(metrics) if metrics is not None else None}  # fmt: skip
        self._insert("sweep_point", row)

    def sweep_points(self, sweep: str) -> list[dict[str, Any]]:
        """A sweep's points in order, `assignment` and `metrics` as dictionaries of numbers.

        Raises:
            UsageError: a damaged file.
        """
        rows = self.query("select * from sweep_point where sweep = ? order by number", sweep)
        for row in rows:
            self.checked(row, "number", int)
            where = f"sweep_point {row['number']}"
            for name in ("state", "assignment"):
                self.checked(row, name, str, where)
            if not isinstance(row["reason"], str | None):
                raise self.damaged(f"{where}: reason is {row['reason']!r}")
            row["assignment"] = self.table(row["assignment"], int, f"{where}: assignment")
            metrics = row["metrics"]
            row["metrics"] = self.table(metrics, (int, float), f"{where}: metrics") if metrics else None
        return rows

    # What is read of the file may be damaged, or never was ours.

    def checked(self, row: dict[str, Any], name: str, kind: type, where: str = "") -> Any:
        """A value of a row. Raises `UsageError` where it has another type."""
        if not isinstance(row.get(name), kind):
            raise self.damaged(f"{where}{': ' if where else ''}{name} is {row.get(name)!r}, not {kind.__name__}")
        return row[name]

    def table(self, text: str, kind: type | tuple[type, ...], where: str) -> dict[str, Any]:
        """A dictionary of values of a kind, from JSON. Raises `UsageError` for anything else."""
        try:
            found = parse_document(text, toml=False)
        except (ValueError, TypeError, AttributeError) as error:
            raise self.damaged(f"{where}: {error}") from None
        if not isinstance(found, dict):
            raise self.damaged(f"{where} is {text!r}, not a table")
        for key, value in found.items():
            fits = isinstance(value, kind) and not isinstance(value, bool)
            if not fits or (isinstance(value, float) and not math.isfinite(value)):
                raise self.damaged(f"{where}: {key} is {value!r}")
        return found

    def damaged(self, what: str) -> UsageError:
        """The error for a value that no sweep wrote."""
        return UsageError(f"{self.path} is damaged: {what}")

    def _insert(self, table: str, row: dict[str, Any], conflict: str = "replace") -> None:
        names, places = ", ".join(row), ", ".join("?" * len(row))
        try:
            with self._db:
                self._db.execute(f"insert or {conflict} into {table} ({names}) values ({places})", tuple(row.values()))
        except sqlite3.Error as error:
            raise UsageError(f"cannot write {self.path}: {error}") from None


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
