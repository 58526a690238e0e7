"""`tilewright mlperf-tiny`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table

from tilewright.cli import arguments, terminal
from tilewright.cli.group import MISMATCH
from tilewright.errors import UsageError
from tilewright.measure import mlperf_tiny

_SHORT = dict(zip((name for name, _ in mlperf_tiny.NETWORKS), ("KWS", "IC", "VWW", "AD")))


@click.command(
    "mlperf-tiny",
    epilog="\b\nExamples:\n  tilewright mlperf-tiny --models models/mlperf_tiny\n  tilewright mlperf-tiny --json -\n"
    "  tilewright mlperf-tiny --activation int16 --config base16.toml\n",
)
@click.option(
    "--models",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder with the four .tflite files; by default mlperf_tiny in $TILEWRIGHT_MODELS.",
)
@click.option(
    "--activation",
    type=click.Choice(["int8", "int16"]),
    default="int8",
    show_default=True,
    help="int16: the same weights with 16-bit activations.",
)
@click.option(
    "--mhz", type=arguments.FloatRange(1, 10000), default=500.0, show_default=True, help="Clock for latencies."
)
@arguments.config_option
@arguments.json_option
def command(models: Path | None, activation: str, mhz: float, config: str | None, json_path: str | None) -> int:
    """Measure the four MLPerf Tiny networks and compare their outputs with LiteRT.

    KWS: keyword spotting, IC: image classification, VWW: visual wake words, AD: anomaly detection. Cycles are those of
    the cycle-level simulator, of what runs on the NPU; constants and arena are memory, read and written bytes over the
    bus. The accuracy in parentheses is LiteRT's; the last column counts output bytes that differ from LiteRT's.
    """
    terminal.prepare_json(json_path)
    with terminal.Working("measuring") as working, terminal.stdout_for_json(json_path):
        entries = mlperf_tiny.measure(mlperf_tiny.folder(models), config or "base", mhz, working.update, activation)
    if not entries:
        raise UsageError("none of the four networks is there")
    if terminal.emit_json(json_path, entries):
        terminal.table_console().print(_table(entries))
    return MISMATCH if any(e["output_mismatches"] for e in entries) else 0


def _table(entries: list[dict[str, Any]]) -> Table:
    """Makes the table for people."""
    first = entries[0] if entries else {"config": "", "mhz": 0}
    title = f"MLPerf Tiny on {first['config']} at {first['mhz']:g} MHz"
    shown = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False, collapse_padding=True)
    shown.add_column("")
    headings = ("MAC", "cycles", "us", "constants", "arena", "read", "written", "inputs", "top-1", "differ")
    for heading in headings:
        shown.add_column(heading, justify="right")
    for e in entries:
        sizes = [terminal.human(e[k], "B") for k in ("constant_bytes", "arena_bytes", "bytes_read", "bytes_written")]
        top = "" if e["accuracy"] is None else f"{e['accuracy']:.1%} ({e['reference_accuracy']:.1%})"
        inputs = f"{e['inputs']}{'' if e['inputs_are_real'] else ' random'}"
        differ = f"{e['output_mismatches']}/{e['output_bytes']}"
        work = terminal.human(e["macs"]), f"{e['cycles']:,}", f"{e['latency_us']:.1f}"
        shown.add_row(_SHORT[e["network"]], *work, *sizes, inputs, top, differ)
    return shown
