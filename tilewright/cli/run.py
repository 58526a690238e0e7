"""`tilewright run`."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.table import Table

import tilewright as tw
from compiler.errors import OpenShapeError, StagingError
from isa.program import Program
from simulator.attribution import bound_cycles
from simulator.cycle import CycleDevice
from simulator.timeline import write_timeline
from tilewright.checking.report import CheckReport
from tilewright.cli import arguments, fixed_values, programs, run_dynamic, terminal
from tilewright.cli.group import MISMATCH
from tilewright.errors import UsageError
from tilewright.files import IMAGE_SUFFIXES, check_writable, read_arrays, write_arrays
from tilewright.images import FITS, RANGES, ImageOptions, image_input
from tilewright.measure.explain import performance
from tilewright.runtime.devices import Device, Runner, preset_of
from tilewright.runtime.inputs import random_inputs

if TYPE_CHECKING:
    from tilewright.dynamic.model import DynamicModel

_MOST_ROWS = 20  # of the table of differences


class RunCommand(click.Command):
    """Lets `--check` stand alone: what follows it is never its value, `--check=all` is."""

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
@arguments.config_option
@arguments.shape_option
@fixed_values.option
@arguments.effort_option
@click.option(
    "--check",
    "check_mode",
    type=click.Choice(["outputs", "all"]),
    metavar="[=all]",
    help="Compare with onnxruntime: the outputs, or with =all every quantised tensor. Exit code 1 on a difference.",
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
    "--trace-window",
    metavar="A:B",
    help="Cycles A..B-1 of every run only, for --trace-file (by default FILE is MODEL.vcd).",
)
@arguments.json_option
def command(
    model: Path,
    files: tuple[str, ...],
    inputs: tuple[str, ...],
    seed: int | None,
    image_fit: str,
    image_range: str,
    backend: str,
    config: str | None,
    shapes: tuple[tuple[str, list[int]], ...],
    values: tuple[tuple[str, str], ...],
    effort: int,
    check_mode: str | None,
    reference: Path | None,
    output: Path | None,
    timeline: Path | None,
    trace_file: Path | None,
    trace_window: str | None,
    json_path: str | None,
) -> int:
    """Run MODEL, an ONNX or TFLite model or a compiled program, once.

    Inputs come from --input (or simply as FILES after the model) or are random.
    """
    terminal.prepare_json(json_path)
    if output is not None and output.exists() and not output.is_dir():
        raise UsageError(f"cannot write to {output}: it is a file, not a directory")
    if timeline is not None:
        if backend != "cycle":
            raise UsageError(f"--timeline needs a clock: add --backend cycle (not {backend!r})")
        check_writable(timeline)
    options, notes = waveform_options(backend, model, trace_file, trace_window), terminal.Notes()
    if backend.startswith("tcp://"):
        options["notify"] = notes
    if config is None and not Program.is_program(model):
        config = preset_of(backend)
    runner = Device(backend, config, **options) if config is not None else Device(backend, **options)
    given, constants = arguments.same_input_once(shapes), fixed_values.parse(model, values)
    program: Program | DynamicModel
    try:
        program, compiled = programs.open_program(
            model, config, shapes, effort=effort, json_path=json_path, constants=constants
        )
        arrays = gather_inputs(program, [*files, *inputs], seed, ImageOptions(image_fit, image_range))
    except (OpenShapeError, StagingError) as reason:
        compiled = True
        program, arrays = run_dynamic.resolve(
            model, config, given, constants, effort, [*files, *inputs], seed, reason, json_path
        )
    golden = model if compiled else reference
    if check_mode and golden is None:
        raise UsageError(f"--check compares with the model, and {model} is a compiled program: add --reference MODEL")
    if timeline is not None and not isinstance(program, Program):
        raise UsageError(f"--timeline shows one program; {model} is compiled in parts while it runs")
    report: CheckReport | None = None
    with terminal.Working(f"running {program.name}") as notes.working:
        if isinstance(program, Program):
            runner.load(program)
        start = time.perf_counter()
        traced: dict[str, Any] = {"trace": True} if timeline is not None else {}
        outputs = runner.run(program, arrays, **traced)
        seconds = time.perf_counter() - start
    if timeline is not None and isinstance(program, Program):
        device = runner.load(program).device
        assert isinstance(device, CycleDevice)
        write_timeline(timeline, program.ops(), program.layers, device.traces)
    if check_mode and golden is not None:
        if isinstance(program, Program):
            given = {t.name: list(t.shape) for t in program.inputs}
        with terminal.Working("comparing with the reference"), terminal.stdout_for_json(json_path):
            report = tw.check(
                golden,
                arrays,
                shapes=given,
                keep=check_mode,
                device=runner,
                program=program,
                effort=effort,
                constants=constants,
            )
    if output is not None:
        write_arrays(output, outputs)
    result = summarise(program, runner, outputs, seconds, report)
    if json_path is not None:
        terminal.emit_json(json_path, result)
    if json_path != "-":
        show(result, report)
    return MISMATCH if report is not None and not report.ok else 0


def waveform_options(backend: str, model: Path, file: Path | None, window: str | None) -> dict[str, Any]:
    """Options of the RTL device for a waveform; none without one.

    Raises:
        UsageError: another backend, a window that is not A:B, a file that cannot be written.
    """
    if file is None and window is None:
        return {}
    if backend != "rtl":
        raise UsageError(f"--trace-file and --trace-window need signals: add --backend rtl (not {backend!r})")
    options: dict[str, Any] = {"trace_file": file or Path(f"{model.stem}.vcd")}
    check_writable(options["trace_file"])
    if window is not None:
        first, colon, last = window.partition(":")
        if not (colon and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
            raise UsageError(f"--trace-window must be A:B with cycles A < B, not {window!r}")
        options["trace_window"] = int(first), int(last)
    return options


def gather_inputs(program: Program, given: list[str], seed: int | None, options: ImageOptions) -> dict[str, np.ndarray]:
    """Inputs from files and random ones.

    Raises:
        UsageError: an unreadable file, an unknown or doubled name.
    """
    arrays: dict[str, np.ndarray] = {}
    infos = {t.name: t for t in program.inputs}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or (name not in infos and Path(text).is_file()):
            name, path = "", text
        if name and name not in infos:
            raise UsageError(f"unknown input {name!r}; inputs: {', '.join(infos)}")
        for key, array in _read(program, name, path, options).items():
            if key in arrays:
                raise UsageError(f"input {key!r} is given twice")
            arrays[key] = array
    if not given or seed is not None:
        arrays = random_inputs(program, seed or 0) | arrays
    return arrays


def _read(program: Program, name: str, path: str, options: ImageOptions) -> dict[str, np.ndarray]:
    infos = {t.name: t for t in program.inputs}
    image = Path(path).suffix.lower() in IMAGE_SUFFIXES
    found = {} if image else read_arrays(path)
    if not name and found and set(found) <= set(infos):
        return found  # an .npz with the inputs' own names
    if not name:
        if len(infos) != 1:
            raise UsageError(f"{path}: which input? there are {', '.join(infos)}; write NAME={path}")
        name = next(iter(infos))
    if image:
        return {name: image_input(path, program, infos[name], options)}
    if name in found or len(found) == 1:
        return {name: found[name] if name in found else next(iter(found.values()))}
    raise UsageError(
        f"{path} holds {', '.join(found) or 'no arrays'}; input {name!r} needs an array of its name, or one"
    )


def summarise(
    program: Program | DynamicModel,
    runner: Runner,
    outputs: dict[str, Any],
    seconds: float,
    report: CheckReport | None,
) -> dict[str, Any]:
    """The JSON form of a run."""
    parts = [program] if isinstance(program, Program) else program.ran
    counted = programs.totals(program) if isinstance(program, Program) else run_dynamic.totals(program)
    result: dict[str, Any] = {
        "model": program.name,
        "config": program.config.name,
        "backend": runner.name,
        "outputs": {name: describe_output(value) for name, value in outputs.items()},
    }
    if "programs" in counted:
        result["programs"] = counted["programs"]
    result |= {key: counted[key] for key in ("macs", "npu_macs", "npu_mac_fraction", "cpu_ops", "compile_seconds")}
    if runner.counters is not None and runner.counters.cycles is not None:
        result |= performance(
            runner.counters, bound_cycles([layer for part in parts for layer in part.layers], program.config)
        )
    result["run_seconds"] = seconds
    result["gmacs_per_second"] = counted["macs"] / seconds / 1e9 if seconds else 0.0
    if report is not None:
        result["check"] = report.to_dict()
    return result


def describe_output(value: Any) -> dict[str, Any]:
    """Type, shape and digest of an output; a sequence has the number of its elements as shape."""
    if isinstance(value, list):
        parts = [describe_output(v) for v in value]
        digest = hashlib.sha256("".join(p["sha256"] for p in parts).encode()).hexdigest()
        return {"shape": [len(value)], "dtype": "sequence", "sha256": digest}
    if value is None:
        return {"shape": [], "dtype": "none", "sha256": ""}
    strings = value.dtype == np.object_
    content = repr(value.tolist()).encode() if strings else np.ascontiguousarray(value).tobytes()
    kind = "string" if strings else str(value.dtype)
    return {"shape": list(value.shape), "dtype": kind, "sha256": hashlib.sha256(content).hexdigest()}


def show(result: dict[str, Any], report: CheckReport | None) -> None:
    """The table form of a run."""
    console = terminal.table_console()
    table = Table(title=f"{result['model']} on {result['backend']} ({result['config']})", title_justify="left")
    for heading in ("output", "type", "shape", "sha256"):
        table.add_column(heading)
    for name, out in result["outputs"].items():
        table.add_row(name, out["dtype"], "x".join(map(str, out["shape"])), out["sha256"][:16])
    console.print(table)
    count = result.get("programs", 0)
    programs = f"{count} program{'' if count == 1 else 's'}; " if count else ""
    console.print(
        f"{terminal.human(result['macs'], 'MAC')}, {result['npu_mac_fraction']:.2%} on the NPU, "
        f"{len(result['cpu_ops'])} ops on the CPU; {programs}run {result['run_seconds']:.3f} s, "
        f"{result['gmacs_per_second']:.2f} GMAC/s",
        markup=False,
    )
    if "cycles" in result:
        console.print(
            f"{result['cycles']:,} cycles, bound {result['bound_cycles']:,} ({result['utilization']:.1%}); "
            f"{terminal.human(result['bytes_read'], 'B')} read, {terminal.human(result['bytes_written'], 'B')} written",
            markup=False,
        )
    if report is None:
        return
    console.print(f"check: {report.summary()}", markup=False)
    rows = [r for r in report.rows if r.status != "equal"]
    if rows:
        table = Table(title="tensors that differ", title_justify="left")
        for heading in ("tensor", "where", "status", "elements", "differ", "max", "why"):
            table.add_column(heading, overflow="fold")
        for r in rows[:_MOST_ROWS]:
            found = (str(r.elements), str(r.mismatches), f"{r.max_abs_difference:g}", r.note or r.reason)
            table.add_row(r.name, r.where, r.status, *found)
        console.print(table)
        if len(rows) > _MOST_ROWS:
            console.print(f"and {len(rows) - _MOST_ROWS} more; --json lists all")
    for name, why in report.skipped.items():
        console.print(f"not compared: {name}: {why}", markup=False)
