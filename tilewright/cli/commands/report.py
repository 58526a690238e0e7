"""`tilewright report`."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli import arguments, terminal


@click.command(
    "report",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright report build/sweep                    writes build/sweep/report/report.html and every plot\n"
        "  tilewright report build/sweep --point 17 --against 3\n"
        "  tilewright report build/sweep --sweep 4f2a -o pages --json -\n"
        "  tilewright report build/sweep --export points.csv --export points.parquet\n"
    ),
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="DIR",
              help="Folder to write to; by default `report` in DIR.")  # fmt: skip
@click.option(
    "--sweep", metavar="ID", help="Beginning of a sweep's id, if the folder has several; by default the last."
)
@click.option("--point", type=int, metavar="N", help="Point to look into; by default the best by the first objective.")
@click.option("--against", type=int, metavar="N",
              help="Point to compare it with; by default the best by the last objective.")  # fmt: skip
@click.option("--export", "exports", type=click.Path(path_type=Path), metavar="FILE", multiple=True,
              help="Also write all points as a table, .csv or .parquet; may be repeated.")  # fmt: skip
@arguments.json_option
def command(
    folder: Path,
    output: Path | None,
    sweep: str | None,
    point: int | None,
    against: int | None,
    exports: tuple[Path, ...],
    json_path: str | None,
) -> None:
    """Make a page of the sweep in DIR: a recommendation, points to compare, effects of axes, tables.

    The page is one file that needs no network; each plot is written as PNG and SVG besides.
    """
    from tilewright.sweep import load  # here, because `report --help` works without the extra
    from tilewright.sweep.report import write_report
    from tilewright.sweep.table import check_suffix

    for path in exports:
        check_suffix(path)
    terminal.prepare_json(json_path)
    with terminal.Working("reading") as working, terminal.stdout_for_json(json_path):
        found = write_report(
            folder, output or folder / "report", sweep=sweep, point=point, against=against, progress=working.fraction
        )
        points = load(folder, sweep) if exports else None
        if points is not None:
            for path in exports:
                points.write(path)
    if terminal.emit_json(json_path, found):
        click.echo("\n".join([*found["recommendation"], *(f"{path}: the table of all points" for path in exports)]))
        click.echo(f"{found['page']}: {found['points']} points, {len(found['front'])} on the front; "
                   f"{len(found['plots'])} plots beside it")  # fmt: skip
