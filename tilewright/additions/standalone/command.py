"""`tilewright fpga image`, `ask` and `simulate`: boards without a host."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tilewright.cli import arguments, terminal
from tilewright.cli.input_files import InputFiles
from tilewright.cli.run_report import describe_output
from tilewright.errors import UsageError
from tilewright.fpga.board import Board, Point
from tilewright.fpga.standalone import record
from tilewright.fpga.standalone.boards import StandaloneBoard
from tilewright.fpga.standalone.record import Exchange
from tilewright.isa.config import NpuConfig
from tilewright.standalone import ask as asking
from tilewright.standalone import pseudo_terminal
from tilewright.standalone.build import board_with_core, write_image
from tilewright.store.files import write_arrays

name_option = click.option("--model-name", metavar="TEXT", help="What the board calls the network; default: its own.")
inputs_option = click.option(
    "--inputs",
    type=click.Choice(record.INPUTS),
    help="How inputs come to the board: as the network has them (own, the default), int8 as bytes of 0 to 255 "
    "(unsigned), or bytes as float32 (floats).",
)
results_option = click.option(
    "--results",
    type=click.Choice(record.RESULTS),
    help="What the board says after an inference: the first output's values (default), or the mean square of its "
    "differences from the first input (error).",
)


@dataclass(frozen=True, kw_only=True)
class Network:
    """The network that `fpga build --standalone` puts beside the NPU.

    Attributes:
        standalone: file of the model; None for a board with a host.
        model_name: what the board calls it.
        inputs, results: form of what goes over the line, as for `Exchange`.
    """

    standalone: Path | None = None
    model_name: str | None = None
    inputs: str | None = None
    results: str | None = None

    def check(self) -> None:
        """Raises `UsageError` for options of a network where there is none."""
        if self.standalone is None and (self.model_name or self.inputs or self.results):
            raise UsageError("--model-name, --inputs and --results are for --standalone")

    def board(self, name: str) -> Board:
        """The board of that name, with a core. Raises `FpgaError` or `UsageError` where there is none."""
        return board_with_core(name)

    def write(self, board: Board, config: NpuConfig, point: Point, folder: Path, *, quiet: bool) -> None:
        """Writes the image of the network into the folder of the build."""
        assert self.standalone is not None
        exchange = exchange_of(self.inputs, self.results)
        write(board, config, point, folder, self.standalone, self.model_name, exchange, quiet=quiet)


def network_options(command: arguments.Command) -> arguments.Command:
    """The options of `fpga build` for a network without a host, handed over as a `Network` called `network`."""
    model = click.option(
        "--standalone",
        metavar="MODEL",
        type=click.Path(path_type=Path),
        help="A RISC-V core beside the NPU runs this network without a host: writes its image too.",
    )
    command = arguments.gather(Network, "network")(command)
    for option in (results_option, inputs_option, name_option, model):
        command = option(command)
    return command


def exchange_of(inputs: str | None, results: str | None) -> Exchange:
    """Returns the form of inputs and results that the options choose."""
    return Exchange(inputs or Exchange.inputs, results or Exchange.results)


def write(
    board: Board,
    config: NpuConfig,
    point: Point,
    folder: Path,
    model: Path,
    name: str | None,
    exchange: Exchange,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Writes the image of a network into a folder, and says how large it is.

    Returns:
        The same for JSON.
    """
    assert isinstance(board, StandaloneBoard)
    with terminal.Working("compiling", log=True) as working:
        made = write_image(folder, board, config, point, model, name=name, exchange=exchange, progress=working.update)
    if not quiet:
        click.echo(
            f"{folder / record.IMAGE}: {len(made.image)} bytes of {board.alone.place.room}, "
            f"{made.needed} bytes of memory of {point.memory_kib << 10}"
        )
    return {
        "image": str(folder / record.IMAGE),
        "bytes": len(made.image),
        "room_bytes": board.alone.place.room,
        "memory_needed_bytes": made.needed,
        "memory_bytes": point.memory_kib << 10,
    }


@click.command(
    "image",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright fpga image alone other.onnx\n"
        "  tilewright fpga image alone ad01.tflite --model-name ad01 --inputs floats --results error\n"
        "  tilewright fpga flash alone --permanent\n"
    ),
)
@click.argument("folder", type=click.Path(path_type=Path))
@arguments.model_argument
@name_option
@inputs_option
@results_option
@arguments.json_option
def image(
    folder: Path,
    model: Path,
    model_name: str | None,
    inputs: str | None,
    results: str | None,
    json_path: str | None,
) -> None:
    """Replace the network in FOLDER, which a build with --standalone wrote; the bitstream stays as it is."""
    build = record.board_of(folder)
    exchange = exchange_of(inputs, results)
    terminal.prepare_json(json_path)
    found = write(build.board, build.config, build.point, folder, model, model_name, exchange, quiet=json_path == "-")
    terminal.emit_json(json_path, found)


@click.command(
    "ask",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright fpga ask alone image.npy --port /dev/ttyUSB0\n"
        "  tilewright fpga ask alone image.npy --simulated\n"
    ),
)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("files", nargs=-1)
@click.option("--port", metavar="DEVICE", help="Serial port of the board.")
@click.option("--simulated", is_flag=True, help="The SoC of the bitstream, Verilated, instead of a board.")
@click.option(
    "--infer", "count", type=click.IntRange(1, 1 << 20), default=1, show_default=True, help="Inferences that are timed."
)
@click.option(
    "--warmups", type=click.IntRange(0, 1 << 20), default=0, show_default=True, help="Inferences before them."
)
@click.option("--output", type=click.Path(path_type=Path), metavar="FOLDER", help="Write the outputs, a .npy each.")
@arguments.json_option
def ask(
    folder: Path,
    files: tuple[str, ...],
    port: str | None,
    simulated: bool,
    count: int,
    warmups: int,
    output: Path | None,
    json_path: str | None,
) -> None:
    """Send inputs to a board with the build in FOLDER, and show what goes over the line and comes back.

    Inputs are .npy, .npz or image files, as for `run`; without any they are random.
    """
    if (port is None) != simulated:
        raise UsageError("give the board's --port, or --simulated")
    terminal.prepare_json(json_path)
    program = asking.program_in(folder)
    values = InputFiles(files=files).of_program(program)
    lines: list[str] = []

    def echo(line: str) -> None:
        lines.append(line)
        if json_path != "-":
            click.echo(line)

    with contextlib.ExitStack() as stack:
        with terminal.Working(f"opening {port or 'the simulation'}"):  # which may be built now
            line = stack.enter_context(asking.line_of(folder, port))
        found = asking.ask(line, program, asking.input_bytes(folder, program, values), count, warmups, echo)
    if output is not None:
        write_arrays(output, found)
    outputs = {name: describe_output(value) for name, value in found.items()}
    terminal.emit_json(json_path, {"model": program.name, "outputs": outputs, "lines": lines})


@click.command(
    "simulate",
    epilog=(
        "\b\nExamples:\n  tilewright fpga simulate alone\n  tilewright fpga ask alone image.npy --port /dev/pts/7\n"
    ),
)
@click.argument("folder", type=click.Path(path_type=Path))
def simulate(folder: Path) -> None:
    """Give the board with the build in FOLDER a serial port here: the SoC, Verilated, behind a pseudo-terminal.

    Whatever talks to serial ports can talk to it, at any baud rate. Ctrl-C ends it.
    """
    with contextlib.ExitStack() as stack:
        with terminal.Working("building the simulation") as working:
            line = stack.enter_context(contextlib.closing(asking.simulated(folder)))
            working.update("the board starts")
            pseudo_terminal.start(line)
        with contextlib.suppress(KeyboardInterrupt):
            pseudo_terminal.serve(line, lambda name: click.echo(f"{name}: the board is ready; Ctrl-C ends it"))
