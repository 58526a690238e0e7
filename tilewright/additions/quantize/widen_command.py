"""`tilewright zoo widen`."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli import arguments, terminal
from tilewright.cli.commands.zoo import written
from tilewright.common import store
from tilewright.common.errors import TilewrightError
from tilewright.errors import UsageError
from tilewright.quantize.tflite_sixteen import widened
from tilewright.store.files import write_bytes


@click.command("widen", epilog="\b\nExamples:\n  tilewright zoo widen kws_int8.tflite -o kws_int16.tflite\n")
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="TFLite file to write.")
@arguments.json_option
def command(model: Path, output: Path, json_path: str | None) -> None:
    """Write MODEL, a TFLite file of int8 activations, with 16-bit activations ("16x8") and the same weights.

    To try such networks: the ranges stay, so the results are hardly better than those of MODEL.
    """
    terminal.prepare_output(output)
    terminal.prepare_json(json_path)
    try:
        raw = widened(store.read(model))
    except TilewrightError as error:
        raise UsageError(f"{model}: {error}") from None
    write_bytes(output, raw)
    what = f"{model.name} with 16-bit activations"
    written(json_path, {"output": str(output), "model": str(model)}, output, what)
