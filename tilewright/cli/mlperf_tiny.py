"""`tilewright mlperf-tiny`."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli import common
from tilewright.cli.group import MISMATCH
from tilewright.errors import UsageError
from tilewright.measure import mlperf_tiny


@click.command(
    "mlperf-tiny",
    epilog="\b\nExamples:\n  tilewright mlperf-tiny --models models/mlperf_tiny\n  tilewright mlperf-tiny --json -\n",
)
@click.option(
    "--models",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder with the four .tflite files; by default mlperf_tiny in $TILEWRIGHT_MODELS.",
)
@click.option("--mhz", type=click.FloatRange(1, 10000), default=500.0, show_default=True, help="Clock for latencies.")
@common.config_option
@common.json_option
def command(models: Path | None, mhz: float, config: str | None, json_path: str | None) -> int:
    """Measure the four MLPerf Tiny networks and compare their outputs with LiteRT.

    KWS: keyword spotting, IC: image classification, VWW: visual wake words, AD: anomaly detection. Cycles are those of
    the cycle-level simulator; constants and arena are memory, read and written bytes over the bus. The accuracy in
    parentheses is LiteRT's; the last column counts output bytes that differ from LiteRT's.
    """
    common.prepare_json(json_path)
    with common.Working("measuring") as working, common.stdout_for_json(json_path):
        entries = mlperf_tiny.measure(mlperf_tiny.folder(models), config or "base", mhz, working.update)
    if not entries:
        raise UsageError("none of the four networks is there")
    if json_path is not None:
        common.emit_json(json_path, entries)
    if json_path != "-":
        common.table_console().print(mlperf_tiny.table(entries))
    return MISMATCH if any(e["output_mismatches"] for e in entries) else 0
