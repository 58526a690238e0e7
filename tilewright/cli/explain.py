"""`tilewright explain`."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli import common
from tilewright.errors import UsageError
from tilewright.files import check_writable


@click.command(
    "explain",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright explain model.onnx                      cycles per layer, and what they were lost to\n"
        "  tilewright explain model.twp --plot roofline.png   a compiled program, with a roofline plot\n"
        "  tilewright explain model.onnx --latency 200 --interval 2 --json -\n"
    ),
)
@common.model_argument
@common.config_option
@common.shape_option
@common.effort_option
@common.latency_option
@common.interval_option
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a roofline plot: .png, .svg, or .html with all numbers.",
)
@common.json_option
def command(
    model: Path,
    config: str | None,
    shapes: tuple[tuple[str, list[int]], ...],
    effort: int,
    latency: int,
    interval: int,
    plot: Path | None,
    json_path: str | None,
) -> None:
    """Say where the cycles of MODEL, an ONNX or TFLite model or a compiled program, go.

    Runs it on the cycle-level simulator and compares every layer with the fewest cycles it could take; every cycle
    above that has a cause.
    """
    from tilewright.measure.explain import explain, summary, table
    from tilewright.measure.roofline import check_suffix, write_plot

    common.prepare_json(json_path)
    if plot is not None:
        check_suffix(plot)
        check_writable(plot)
    program, compiled = common.open_program(model, config, shapes, effort=effort, json_path=json_path)
    if not compiled and config is not None:
        raise UsageError(f"{model} is compiled already: --config has no effect on it")
    timing = common.memory_timing(latency, interval)
    with common.Working(f"running {program.name}"), common.stdout_for_json(json_path):
        found = explain(program, timing)
        if plot is not None:
            write_plot(plot, found)
    if json_path is not None:
        common.emit_json(json_path, found.to_dict())
    if json_path == "-":
        return
    console = common.table_console()
    console.print(table(found, console.width))
    for line in summary(found):
        console.print(line, markup=False)
