"""`tilewright zoo`."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from tilewright import registry, zoo
from tilewright.cli import arguments, terminal
from tilewright.cli.group import Group
from tilewright.errors import UsageError
from tilewright.store.files import write_bytes
from tilewright.zoo import ZOO
from tilewright.zoo.catalogue import entry


@click.group(
    "zoo",
    cls=Group,
    lazy=registry.commands_of("zoo"),
    epilog="\b\nExamples:\n  tilewright zoo list\n  tilewright zoo build resnet18 -o resnet18.onnx\n",
)
def command() -> None:
    """Well-known networks with seeded weights, as ONNX; TFLite networks with 16-bit activations."""


@command.command("list", epilog="\b\nExamples:\n  tilewright zoo list\n")
@arguments.json_option
def list_(json_path: str | None) -> None:
    """List the networks and their parameters."""
    found = {n: {"summary": e.summary, "parameters": e.parameters, "small": dict(e.small)} for n, e in ZOO.items()}
    if not terminal.emit_json(json_path, found):
        return
    table = Table()
    for heading in ("network", "what", "parameters"):
        table.add_column(heading, overflow="fold")
    for name, e in ZOO.items():
        table.add_row(name, e.summary, ", ".join(f"{k}={v}" for k, v in e.parameters.items()))
    terminal.table_console().print(table)


@command.command(
    "build",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright zoo build resnet18 -o resnet18.onnx\n"
        "  tilewright zoo build mobilenet_v2 -o m.onnx --set size=96 --set alpha=0.35\n"
        "  tilewright zoo build resnet8 -o r.onnx --form qoperator --activation uint8\n"
        "  tilewright zoo build resnet8 -o r.onnx --weights int4\n"
    ),
)
@click.argument("name", shell_complete=arguments.completes(ZOO))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="ONNX file to write.")
@click.option(
    "--form",
    type=click.Choice(["qdq", "qoperator", "float"]),
    default="qdq",
    show_default=True,
    help="How quantisation is written; float for none.",
)
@click.option(
    "--activation",
    type=click.Choice(["int8", "uint8"]),
    default="int8",
    show_default=True,
    help="Type of the activations.",
)
@click.option(
    "--weights",
    type=click.Choice(["int8", "uint8", "int4"]),
    default="int8",
    show_default=True,
    help="Type of the weights; uint8 with a zero point and one scale per tensor, as in older networks.",
)
@click.option("--small", is_flag=True, help="The parameters for quick tests.")
@click.option("--set", "settings", multiple=True, metavar="PARAMETER=VALUE", help="A parameter; repeatable.")
@arguments.json_option
def build(
    name: str,
    output: Path,
    form: str,
    activation: str,
    weights: str,
    small: bool,
    settings: tuple[str, ...],
    json_path: str | None,
) -> None:
    """Build network NAME and quantise it."""
    terminal.prepare_output(output)
    terminal.prepare_json(json_path)
    try:
        parameters: dict[str, Any] = (dict(entry(name).small) if small else {}) | dict(map(_setting, settings))
        with terminal.Working(f"building {name}"):
            if form == "float":
                model = zoo.build(name, **parameters)
            else:
                model = zoo.build_quantized(
                    name,
                    form=form,
                    activation=activation,
                    weights=weights,
                    per_channel=weights != "uint8",
                    network=parameters,
                )
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error
    write_bytes(output, model.SerializeToString())
    facts = {"output": str(output), "network": name, "parameters": entry(name).parameters | parameters}
    written(json_path, facts, output, name)


def written(json_path: str | None, facts: dict[str, Any], output: Path, what: str) -> None:
    """Reports a file that was written, as JSON or as a line."""
    nbytes = output.stat().st_size
    if terminal.emit_json(json_path, facts | {"bytes": nbytes}):
        click.echo(f"{output}: {what}, {nbytes} bytes")


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set must be PARAMETER=VALUE, not {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
