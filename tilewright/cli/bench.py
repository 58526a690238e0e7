"""`tilewright bench`."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright import bench
from tilewright.cli import common


@click.command("bench", epilog="\b\nExamples:\n  tilewright bench\n  tilewright bench --json bench.json\n")
@click.option("--model", type=click.Path(path_type=Path), help="An ONNX model instead of ResNet-18.")
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, help="Timed runs; medians are reported.")
@common.config_option
@common.json_option
def command(model: Path | None, runs: int, config: str | None, json_path: str | None) -> None:
    """Measure compile time and simulation speed on ResNet-18, next to onnxruntime on one thread."""
    common.prepare_json(json_path)
    with common.Working("measuring") as working, common.stdout_for_json(json_path):
        result = bench.measure(model, config=config or "base", runs=runs, progress=working.update)
    if json_path is not None:
        common.emit_json(json_path, result)
    if json_path != "-":
        common.table_console().print(bench.table(result))
