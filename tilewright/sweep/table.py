"""`load`: a sweep as a table, a row for each point, for notebooks, spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.common.installation import install_extra
from tilewright.common.shown import Shown
from tilewright.errors import UsageError
from tilewright.store.files import write_bytes
from tilewright.sweep.database import Database

if TYPE_CHECKING:
    import pandas
    import pyarrow

#: Kinds of files that `Table.write` knows.
SUFFIXES = (".csv", ".parquet")
#: Rows that a notebook shows.
_SHOWN = 20


@dataclass(repr=False)
class Table(Shown):
    """A sweep's points with their axes and metrics.

    Attributes:
        sweep: its id in the database.
        columns: values by name, one per point, None where a point has none: `number`, `state`, `reason`, `front` (no
            other point beats it), the axes, and the metrics of docs/sweeps.md.
        axes: names of the columns that are axes.
    """

    sweep: str
    columns: dict[str, list[Any]] = field(default_factory=dict)
    axes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.columns["number"])

    def facts(self) -> dict[str, Any]:
        """Returns facts, for `repr` and notebooks."""
        return {"sweep": self.sweep, "points": len(self), "front": sum(self.columns["front"]),
                "columns": len(self.columns)}  # fmt: skip

    def table(self) -> list[list[str]]:
        """The first points with their axes and objectives."""
        names = ["number", "state", *self.axes, *(name for name in self.columns if name.startswith("objective"))]
        texts = ([_text(self.columns[name][n]) for name in names] for n in range(min(len(self), _SHOWN)))
        return [names, *texts]

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the table as a data frame, indexed by the points' numbers. Raises `UsageError` without pandas."""
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise _missing(error) from None
        return pandas.DataFrame(self.columns).set_index("number")

    def to_csv(self) -> str:
        """Returns the table as CSV with a line of names; numbers keep all digits, and what a point has not is empty."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(zip(*self.columns.values()))
        return buffer.getvalue()

    def to_arrow(self) -> pyarrow.Table:
        """Returns the table for Arrow. Raises `UsageError` without pyarrow."""
        try:
            import pyarrow
        except ModuleNotFoundError as error:
            raise _missing(error) from None
        return pyarrow.table(self.columns)

    def write(self, path: str | Path) -> None:
        """Writes the table as .csv or .parquet. Raises `UsageError` for other files, or where pyarrow is missing."""
        path = Path(path)
        check_suffix(path)
        if path.suffix.lower() == ".csv":
            write_bytes(path, self.to_csv().encode())
            return
        table = self.to_arrow()
        from pyarrow import BufferOutputStream, parquet

        sink = BufferOutputStream()
        parquet.write_table(table, sink)
        write_bytes(path, sink.getvalue().to_pybytes())


def check_suffix(path: Path) -> None:
    """Raises `UsageError` for a kind of file that a table cannot be written as."""
    if path.suffix.lower() not in SUFFIXES:
        has = repr(path.suffix) if path.suffix else "a file without suffix"
        raise UsageError(f"{path}: a table is written as {' or '.join(SUFFIXES)}, not as {has}")


def load(folder: str | Path, sweep: str | None = None) -> Table:
    """The points of the last sweep in a folder, or of the one whose id begins with `sweep`, finished or not.

    Raises:
        UsageError: there is no such sweep, or the database is damaged.
    """
    from tilewright.sweep.report.data import choose, front_of, swept  # brings what plots need

    with Database.existing(folder) as database:
        row = choose(database, sweep)
        _, space = swept(database, row)
        points = database.sweep_points(row["id"])
        axes = tuple(axis.field for axis in space.axes)
        for p in points:
            if set(p["assignment"]) != set(axes):
                raise database.damaged(f"sweep_point {p['number']}: {p['assignment']} is no point of the space")
    front = set(front_of(space, [p for p in points if p["state"] == "done"]))
    columns: dict[str, list[Any]] = {key: [p[key] for p in points] for key in ("number", "state", "reason")}
    columns["front"] = [p["number"] in front for p in points]
    columns |= {axis: [p["assignment"][axis] for p in points] for axis in axes}
    metrics = [p["metrics"] or {} for p in points]
    for name in dict.fromkeys(name for found in metrics for name in found):
        values = [found.get(name) for found in metrics]
        whole = all(isinstance(value, int) for value in values)
        columns.setdefault(name, values if whole else [None if v is None else float(v) for v in values])
    return Table(row["id"], columns, axes)


def _missing(error: ModuleNotFoundError) -> UsageError:
    return UsageError(f"{error.name} is missing: {install_extra('tables')}")


def _text(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
