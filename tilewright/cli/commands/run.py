"""`tilewright run`."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.checking.tolerance import Tolerance
from tilewright.cli import arguments, fixed_values, memory_options, terminal
from tilewright.cli.group import MISMATCH
from tilewright.cli.input_files import InputFiles
from tilewright.cli.job import Job, Recording
from tilewright.cli.programs import Request
from tilewright.cli.run_report import show, summarise
from tilewright.errors import UsageError
from tilewright.runtime.images import FITS, RANGES
from tilewright.store.files import write_arrays


class RunCommand(click.Command):
    """A command whose `--check` stands alone: what follows it is never its value, `--check=all` is."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        plain = ["--check=outputs" if a == "--check" else a for a in args[:end]]
        return super().parse_args(ctx, plain + args[end:])


@click.command(
    "run",
    cls=RunCommand,
    epilog=(
        "\b\nExamples:\n"
        "  tilewright run model.onnx                        compile, run on random input\n"
        "  tilewright run model.twp --input image.png       a compiled program on an image\n"
        "  tilewright run model.onnx --input a=a.npy --input b=b.npy --output results/\n"
        "  tilewright run model.onnx --check=all --json -   every quantised tensor against onnxruntime\n"
        "  tilewright run model.mlir --check                TOSA, every byte against IREE\n"
        "  tilewright run llm.onnx --shape input_ids=1,1 --state auto   the first token of a language model\n"
        "  tilewright run model.onnx --backend cycle --config wide --board ulx3s_85f    cycles with its SDRAM\n"
    ),
)
@arguments.model_argument
@click.argument("files", nargs=-1)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE",
    help=".npy, .npz or an image (.png .bmp .jpg); NAME may be left out if there is one input.",
)
@click.option(
    "--random",
    "seed",
    type=click.IntRange(0),
    default=None,
    metavar="SEED",
    help="Seeded random values for inputs that are not given (the default, with seed 0, if none is).",
)
@click.option(
    "--image-fit",
    type=click.Choice(FITS),
    default="crop",
    show_default=True,
    help="How an image meets the input's size: cut the middle, stretch, or pad with black.",
)
@click.option(
    "--image-range",
    type=click.Choice(RANGES),
    default="auto",
    show_default=True,
    help="Values of black and white. auto: what the input's quantisation suggests, raw bytes for byte inputs.",
)
@click.option(
    "--backend", "--device", "backend", default="functional", show_default=True,
    help="Device to run on: board://serial:PORT an FPGA, tcp://HOST:PORT one of another machine; see `backends`.",
)  # fmt: skip
@click.option("--entry", metavar="NAME", help="Entry point to run, of a compiled program that has several.")
@arguments.config_option
@arguments.shape_option
@fixed_values.option
@arguments.decoder_options
@arguments.effort_option
@arguments.kernels_option
@click.option(
    "--check",
    "check_mode",
    type=click.Choice(["outputs", "all"]),
    metavar="[=all]",
    help="Compare with onnxruntime: the outputs, or with =all every quantised tensor. Exit code 1 on a difference.",
)
@click.option(
    "--tolerance",
    metavar="LIMITS",
    help="For --check, of floats: 1e-4 of the tensor's largest magnitude, or any of rel=, abs= and ulp=, such as "
    "rel=1e-4,ulp=8. By default rounding, see docs/numerics.md.",
)
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="The model a program file was compiled from, for --check.",
)
@click.option("--output", type=click.Path(path_type=Path), metavar="DIR", help="Write every output as .npy here.")
@click.option(
    "--timeline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write when every instruction ran, as a trace for ui.perfetto.dev; with --backend cycle.",
)
@click.option(
    "--trace-file", type=click.Path(path_type=Path), metavar="FILE", help="Write a waveform (VCD); with --backend rtl."
)
@click.option(
    "--fst",
    type=click.Path(path_type=Path),
    metavar="FILE.fst",
    help="Write a waveform (FST) with the instruction that each engine works on, as text; with --backend rtl.",
)
@click.option(
    "--trace-window",
    metavar="A:B",
    help="Cycles A..B-1 of every run only, for --fst or --trace-file (by default FILE is MODEL.vcd).",
)
@memory_options.options
@arguments.clock_option
@arguments.trust_option
@arguments.json_option
@arguments.gather(Request, "request")
@arguments.gather(InputFiles, "given")
@arguments.gather(Recording, "recording")
def command(
    request: Request,
    given: InputFiles,
    recording: Recording,
    backend: str,
    entry: str | None,
    check_mode: str | None,
    tolerance: str | None,
    reference: Path | None,
    output: Path | None,
    json_path: str | None,
) -> int:
    """Run MODEL, an ONNX or TFLite model or a compiled program, once.

    Inputs come from --input (or simply as FILES after the model) or are random. With --board the program is
    compiled for the board's memory, which cycle-level simulator and RTL have then.
    """
    terminal.prepare_json(json_path)
    if output is not None and output.exists() and not output.is_dir():
        raise UsageError(f"cannot write to {output}: it is a file, not a directory")
    whole = check_mode == "all" or recording != Recording()
    if tolerance is not None and not check_mode:
        raise UsageError("--tolerance is for --check, which is not given")
    allowed = None if tolerance is None else Tolerance.parse(tolerance)
    if entry is not None and check_mode:
        raise UsageError("--check compares whole models, not an entry point: leave out --check or --entry")
    for option, chosen in {"--state": request.states, "--last": request.options.last}.items():
        if check_mode and chosen:
            raise UsageError(f"--check compares all outputs of one run: leave out {option}, or see `generate --check`")
    job = Job.prepare(request, given, backend, recording, json_path, whole, entry)
    golden = request.model if job.compiled else reference
    if check_mode and golden is None:
        raise UsageError(
            f"--check compares with the model, and {request.model} is a compiled program: add --reference MODEL"
        )
    job.run(recording.timeline)
    if check_mode and golden is not None:
        job.check(check_mode, golden, json_path, allowed)
    if output is not None:
        write_arrays(output, job.outputs)
    result = summarise(job.entry_program, job.runner, job.outputs, job.seconds, job.report, job.clock, job.timing)
    if terminal.emit_json(json_path, result):
        show(result, job.report)
    return MISMATCH if job.report is not None and not job.report.ok else 0
