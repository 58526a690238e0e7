"""`tilewright bench`."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli import common
from tilewright.errors import UsageError
from tilewright.measure import cpu_speed, speed


@click.command(
    "bench",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright bench\n"
        "  tilewright bench --json bench.json\n"
        "  tilewright bench --cpu --only softmax --only networks\n"
    ),
)
@click.option("--cpu", is_flag=True, help="Measure the CPU kernels instead, next to onnxruntime and numpy.")
@click.option(
    "--only", multiple=True, metavar="TEXT", help="With --cpu: cases or groups that contain TEXT; repeatable."
)
@click.option("--model", type=click.Path(path_type=Path), help="An ONNX model instead of ResNet-18.")
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, help="Timed runs; medians are reported.")
@common.config_option
@common.json_option
def command(
    cpu: bool, only: tuple[str, ...], model: Path | None, runs: int, config: str | None, json_path: str | None
) -> None:
    """Measure compile time and simulation speed on ResNet-18, next to onnxruntime on one thread."""
    common.prepare_json(json_path)
    if cpu:
        if model is not None or config is not None:
            raise UsageError("--cpu measures its own cases: --model and --config do not go with it")
        _measure_cpu(only, json_path)
        return
    if only:
        raise UsageError("--only goes with --cpu")
    with common.Working("measuring") as working, common.stdout_for_json(json_path):
        result = speed.measure(model, config=config or "base", runs=runs, progress=working.update)
    if json_path is not None:
        common.emit_json(json_path, result)
    if json_path != "-":
        common.table_console().print(speed.table(result))


def _measure_cpu(only: tuple[str, ...], json_path: str | None) -> None:
    with common.Working("measuring") as working, common.stdout_for_json(json_path):
        result = cpu_speed.measure(only, progress=working.update)
    if json_path is not None:
        common.emit_json(json_path, result)
    if json_path != "-":
        console = common.table_console()
        for shown in (cpu_speed.table(result), cpu_speed.memory_table(result)):
            if shown is not None:
                console.print(shown)
