"""The command line: one file per command, errors as one line, results as tables or JSON."""

from __future__ import annotations

import click

from tilewright.cli.group import Cli

#: The commands in the order of the help; each is `command` of the module of its name.
COMMANDS = (
    "compile", "quantize", "run", "explain", "compare", "tune", "info", "disasm", "asm", "export-c", "config", "rtl",
    "fpga", "probe", "serve", "backends", "zoo", "bench", "mlperf-tiny", "sweep", "report",
)  # fmt: skip


@click.command(
    cls=Cli,
    modules={name: f"tilewright.cli.{name.replace('-', '_')}" for name in COMMANDS},
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=(
        "\b\nExamples:\n"
        "  tilewright zoo build resnet18 -o resnet18.onnx\n"
        "  tilewright compile resnet18.onnx -o resnet18.twp\n"
        "  tilewright run resnet18.twp --input image.png\n"
        "  tilewright run resnet18.onnx --check=all\n"
    ),
)
@click.version_option(package_name="tilewright", message="%(prog)s %(version)s")
def cli() -> None:
    """Compile quantised models for the Tilewright NPU, run them, and check every byte.

    Exit codes: 0 success, 1 a check found differences, 2 a mistake in what was given (one line says which),
    3 a fault of Tilewright, 130 interrupted.
    """


def main() -> None:
    """Entry point of the `tilewright` script."""
    cli.main(prog_name="tilewright")
