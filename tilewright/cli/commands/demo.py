"""`tilewright demo`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.table import Table

from tilewright.cli import arguments, terminal
from tilewright.cli.group import MISMATCH
from tilewright.common.installation import require

if TYPE_CHECKING:
    from tilewright.measure.demo import Digits, Once


@click.command(
    "demo", epilog="\b\nExamples:\n  tilewright demo\n  tilewright demo --digits\n  tilewright demo --json -\n"
)
@click.option("--digits", "digits_alone", is_flag=True, help="The small network alone.")
@arguments.json_option
def command(digits_alone: bool, json_path: str | None) -> int:
    """Run trained digits and ResNet-18 on the simulated NPU, and compare every byte with onnxruntime."""
    require("onnxruntime")
    from tilewright.measure import demo

    terminal.prepare_json(json_path)
    with terminal.Working("digits") as working, terminal.stdout_for_json(json_path):
        digits = demo.digits(lambda fraction: working.fraction("digits", fraction))
        once = None if digits_alone else demo.resnet18(lambda text: working.fraction(text, 0))
    equal = digits.equal == digits.images and (once is None or once.mismatches == 0)
    found = {"digits": asdict(digits), "resnet18": once and asdict(once), "equal": equal}
    if terminal.emit_json(json_path, found):
        console = terminal.table_console()
        console.print(_digits_table(digits))
        if once is not None:
            console.print(_once_table(once))
        click.echo("Every byte equals onnxruntime's." if equal else "Some bytes differ from onnxruntime's.")
    return 0 if equal else MISMATCH


def _digits_table(digits: Digits) -> Table:
    table = Table(title=f"Handwritten digits: {digits.images} held-back images")
    table.add_column("arithmetic")
    table.add_column("accuracy", justify="right")
    table.add_column("bytes equal to int8 onnxruntime", justify="right")
    for name, correct in digits.correct.items():
        equal = f"{digits.equal} of {digits.images}" if name.endswith("NPU") else ""
        table.add_row(name, f"{correct / digits.images:.2%}", equal)
    return table


def _once_table(once: Once) -> Table:
    table = Table(title="ResNet-18 at 224 x 224, int8, one image")
    for heading in ("GMAC", "compile s", "run s", "GMAC/s", "outputs", "mismatches"):
        table.add_column(heading, justify="right")
    speed = once.macs / once.run_seconds / 1e9
    texts = (f"{once.macs / 1e9:.2f}", f"{once.compile_seconds:.2f}", f"{once.run_seconds:.2f}", f"{speed:.2f}")
    table.add_row(*texts, str(once.outputs), str(once.mismatches))
    return table
