"""`tilewright compile`."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright import registry
from tilewright.cli import arguments, fixed_values, memory_options, programs, terminal
from tilewright.cli.terminal import Working, stdout_for_json
from tilewright.compiler.errors import StagingError
from tilewright.errors import UsageError
from tilewright.isa.program import Program
from tilewright.store import trust


class PrintAfter(click.Option):
    """The option `--print-after`, whose help lists the names: only then are the passes imported."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from tilewright.compiler.options import printable  # takes 0.5 s

        self.help = f"Print the graph after this pass, rewrite or stage; repeatable: all, {', '.join(printable())}."
        return super().get_help_record(ctx)


@click.command(
    "compile",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright compile resnet18.onnx -o resnet18.twp\n"
        "  tilewright compile model.onnx -o model.twp --config small --shape input=1,3,160,160\n"
        "  tilewright compile model.onnx -o model.twp --host aarch64-linux  # then: tilewright export-c\n"
        "  tilewright compile model.onnx -o model.twp --config wide --board ulx3s_85f\n"
        "  tilewright compile model.onnx -o model.twp --value axes=1,2\n"
        "  tilewright compile model.mlirbc -o model.twp  # TOSA, as bytecode or text\n"
        "  tilewright compile model.onnx -o model.twp --effort 2 --for energy\n"
        "  tilewright compile model.onnx -o model.twp --prove\n"
        "  tilewright compile model.onnx -o model.twp --print-after fuse_quantization\n"
    ),
)
@arguments.model_argument
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Program file to write.")
@arguments.config_option
@arguments.shape_option
@fixed_values.option
@arguments.decoder_options
@arguments.entry_option
@arguments.host_option
@memory_options.options
@arguments.clock_option
@click.option("--cpu-only", is_flag=True, help="Leave the NPU out.")
@click.option(
    "--keep-weights", is_flag=True, help="Weights stay in the NPU from run to run; refused unless all of them fit."
)
@click.option(
    "--threads", type=click.IntRange(1, 64), default=1, show_default=True, help="That share every CPU kernel's work."
)
@click.option("--print-after", cls=PrintAfter, multiple=True, metavar="PASS")
@click.option(
    "--print-form",
    type=click.Choice(["text", "mlir"]),
    default="text",
    show_default=True,
    help="Form of what --print-after prints.",
)
@arguments.effort_option
@arguments.kernels_option
@click.option(
    "--schedule",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Schedule as `tilewright schedule` writes it, to be taken as it stands.",
)
@arguments.objective_option
@arguments.tuning_option("--tuning")
@click.option("--prove", is_flag=True, help="Prove that the program is right for all inputs, and write that into it.")
@arguments.json_option
@arguments.gather(programs.Request, "request")
def command(request: programs.Request, output: Path, prove: bool, json_path: str | None) -> None:
    """Compile MODEL, an ONNX or TFLite model, quantised or float, into a program file.

    The configuration is `base` unless another is given. Whatever the NPU does not run is compiled to native code for
    this machine's CPU, or for that of --host. With --for, schedules that --effort 2 and 3 compare, and those of the
    tuning log, are for less energy. Schedules are made for the memory that --board, or --latency and --interval, say.
    """
    terminal.prepare_output(output)
    terminal.prepare_json(json_path)
    if request.is_program:
        raise UsageError(f"{request.model} is a compiled program, not a model")
    if request.clock_mhz is not None and request.options.host is None and request.board is None:
        raise UsageError("--clock says how fast the NPU is beside a host or a board's memory: give --host or --board")
    if prove and (request.values or request.options.cpu_only):
        raise UsageError("--prove is for programs of the NPU without fixed values: not with --value or --cpu-only")
    if request.entries and request.options.tuning not in (None, "off"):
        raise UsageError("--tuning is for programs without entry points, not with --entry")
    arguments.check_log(request.options.tuning)
    try:
        program, _ = request.open(json_path)
    except StagingError as error:
        raise UsageError(f"{error}; `tilewright run` takes it in parts, --value fixes inputs that decide") from None
    if prove:
        certify(request, program, json_path)
    program.save(output)
    found = programs.totals(program)
    if terminal.emit_json(json_path, found | {"output": str(output), "notes": program.notes}):
        mark = "// " if request.options.print_form == "mlir" else ""  # what is printed is MLIR to its end
        for note in [] if request.options.cpu_only else program.notes:  # each would say that the NPU is left out
            click.echo(f"{mark}note: {note}")
        click.echo(
            f"{mark}{output}: {terminal.human(program.macs, 'MAC')}, {programs.on_the_npu(found)} "
            f"({program.config.name}), {len(found['cpu_ops'])} ops on the CPU, {found['instructions']} instructions, "
            f"{terminal.human(found['constant_bytes'], 'B')} constants; {program.compile_seconds:.2f} s"
            + ("; proved for all inputs" if prove else "")
        )


def certify(request: programs.Request, program: Program, json_path: str | None) -> None:
    """Proves the program of a request, and gives it a certificate. Raises `UsageError` if it cannot be proved."""
    with Working(f"proving {request.model.name}", log=True), stdout_for_json(json_path):
        registry.service("certificate of a program")(request, program)
    if program.signature:  # which is over all that the file says
        trust.sign(program)
