"""`tilewright bench`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import click
from rich import box
from rich.table import Table

from tilewright import registry
from tilewright.cli import arguments, terminal
from tilewright.errors import UsageError
from tilewright.measure import compile_speed, cpu_speed, host_models, host_speed, speed

Progress: TypeAlias = Callable[..., None]
#: Options that one mode has, by field.
_OF_MODE = {"write": "--host", "cycles": "--onnxruntime", "only": "--cpu", "threads": "--cpu"}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Options of `tilewright bench`.

    Attributes:
        cpu, provider, host_model, compiling: flags, of which one at most chooses another mode than the speed of the
            simulator.
        write: keep the fitted model of this machine.
        cycles: sessions to make, run and drop.
        only: texts in names of cases and groups.
        threads: of the CPU kernels and of onnxruntime.
        model: a file in place of those of the mode.
        runs: timed ones.
        shapes, config: as --shape and --config give them.
    """

    cpu: bool = False
    provider: bool = False
    host_model: bool = False
    compiling: bool = False
    write: bool = False
    cycles: int = 0
    only: tuple[str, ...] = ()
    threads: int = 1
    model: Path | None = None
    runs: int = 5
    shapes: tuple[tuple[str, list[int]], ...] = ()
    config: str | None = None

    @property
    def modes(self) -> list[str]:
        """The options that choose a mode."""
        flags = {"--cpu": self.cpu, "--onnxruntime": self.provider, "--host": self.host_model,
                 "--compile": self.compiling}  # fmt: skip
        return [option for option, given in flags.items() if given]

    @property
    def mode(self) -> str:
        return self.modes[0] if self.modes else ""

    @property
    def machine(self) -> str:
        """Preset or file of the configuration."""
        return self.config or "base"

    @property
    def given(self) -> dict[str, list[int]]:
        """Shapes by input. Raises `UsageError` for one given twice."""
        return arguments.same_input_once(self.shapes)

    def check(self) -> None:
        """Raises `UsageError` for options that do not go together."""
        if len(self.modes) > 1:
            raise UsageError(f"{' and '.join(self.modes)} measure different things: give one of them")
        for field in fields(self):
            mode = _OF_MODE.get(field.name, self.mode)
            if mode != self.mode and getattr(self, field.name) != field.default:
                raise UsageError(f"--{field.name} goes with {mode}")
        if self.shapes and self.model is None:
            raise UsageError("--shape goes with --model")
        if self.mode == "--cpu" and self.config is not None:
            raise UsageError("--cpu measures without an NPU: --config does not go with it")
        if self.only and self.model is not None:
            raise UsageError("--only selects among the cases, --model measures a model: give one of them")


@click.command(
    "bench",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright bench\n"
        "  tilewright bench --json bench.json\n"
        "  tilewright bench --onnxruntime --cycles 1000\n"
        "  tilewright bench --cpu --only softmax --only networks\n"
        "  tilewright bench --cpu --only recurrent --threads 2\n"
        "  tilewright bench --host --write\n"
        "  tilewright bench --compile --runs 1\n"
        "  tilewright bench --cpu --model detector.onnx --shape x=1,3,640,640\n"
    ),
)
@click.option("--cpu", is_flag=True, help="Measure the CPU kernels instead, next to onnxruntime and numpy.")
@click.option(
    "--onnxruntime", "provider", is_flag=True, help="Measure sessions of onnxruntime with the provider instead."
)
@click.option(
    "--host",
    "host_model",
    is_flag=True,
    help="Measure the model of this machine's speed, by which explain and run estimate times, beside its kernels.",
)
@click.option(
    "--compile",
    "compiling",
    is_flag=True,
    help="Measure compiles of the networks in TILEWRIGHT_MODELS instead, next to Vela where `vela` is on the PATH.",
)
@click.option("--write", is_flag=True, help="With --host: keep the numbers that fit this machine, for its estimates.")
@click.option("--cycles", type=click.IntRange(0), default=0, help="With --onnxruntime: sessions to make, run and drop.")
@click.option(
    "--only", multiple=True, metavar="TEXT", help="With --cpu: cases or groups that contain TEXT; repeatable."
)
@click.option("--threads", type=click.IntRange(1), default=1, help="With --cpu: threads of ours and of onnxruntime.")
@click.option("--model", type=click.Path(path_type=Path), help="A model instead of those of the mode.")
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, help="Timed runs; medians are reported.")
@arguments.shape_option
@arguments.config_option
@arguments.json_option
@arguments.gather(Bench, "bench")
def command(bench: Bench, json_path: str | None) -> None:
    """Measure compile time and simulation speed on ResNet-18, next to onnxruntime on one thread."""
    terminal.prepare_json(json_path)
    bench.check()
    measure, shown = _MODES[bench.mode]
    with terminal.Working("measuring") as working, terminal.stdout_for_json(json_path):
        result = measure(bench, working.update)
    if terminal.emit_json(json_path, result):
        console = terminal.table_console()
        for part in shown(result):
            console.print(part)
    if bench.write:
        path = host_models.write(host_speed.fitted_model(result))
        click.echo(f"kept in {path}", err=True)


#: How tables with many columns are drawn.
_NARROW: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False}


def _table(title: str, *headings: str, **options: Any) -> Table:
    """A table whose first column is text, and the others numbers."""
    shown = Table(title=title, **options)
    for number, heading in enumerate(headings):
        shown.add_column(heading, justify="right" if number else "left")
    return shown


def _measure_speed(bench: Bench, progress: Progress) -> dict[str, Any]:
    return speed.measure(bench.model, config=bench.machine, shapes=bench.given, runs=bench.runs, progress=progress)


def _measure_cpu(bench: Bench, progress: Progress) -> dict[str, Any]:
    return cpu_speed.measure(
        bench.only, threads=bench.threads, model=bench.model, shapes=bench.given, progress=progress
    )


def _measure_sessions(bench: Bench, progress: Progress) -> dict[str, Any]:
    found: dict[str, Any] = registry.service("speed of sessions")(
        bench.model, bench.machine, bench.given, runs=4 * bench.runs, sessions=2 * bench.runs, cycles=bench.cycles,
        progress=progress,
    )  # fmt: skip
    return found


def _measure_host(bench: Bench, progress: Progress) -> dict[str, Any]:
    models = [] if bench.model is None else [bench.model]
    return host_speed.measure(models, config=bench.machine, shapes=bench.given, progress=progress)


def _measure_compiles(bench: Bench, progress: Progress) -> dict[str, Any]:
    return compile_speed.measure(
        bench.model, config=bench.machine, shapes=bench.given, runs=bench.runs, progress=progress
    )


def _show_compiles(result: dict[str, Any]) -> Iterator[Table | str]:
    """Compile times beside Vela's, for people, and what could not be compiled."""
    version, accelerator = result["vela"], result["accelerator"]
    theirs = f"Vela {version} for {accelerator}; ratio: our CPU time over Vela's, below 1 is less"
    shown = _table(
        f"compiles for {result['config']}, nothing kept but native code; medians of {result['runs']} runs",
        "network", "MB", "seconds", "CPU s", "Vela CPU s", "ratio", box=box.SIMPLE_HEAD,
        caption=theirs if version is not None else "no command vela on the PATH",
    )  # fmt: skip
    for row in result["networks"]:
        times = (row["seconds"], row["cpu_seconds"], row["vela_cpu_seconds"], row["ratio"])
        cells = ("" if value is None else f"{value:.2f}" for value in times)
        shown.add_row(row["name"], f"{row['bytes'] / 1e6:.2f}", *cells)
    yield shown
    for row in result["networks"]:
        for key, whose in (("error", ""), ("vela_error", "Vela: ")):
            if key in row:
                yield f"{row['name']}: {whose}{row[key]}"


def _show_sessions(result: dict[str, Any]) -> Iterator[Table | str]:
    """Device and session side by side, for people."""
    title = f"{result['model']}, {result['runs']} runs and {result['sessions']} sessions"
    shown = _table(title, "what", "least ms", "median CPU ms", box=box.SIMPLE_HEAD)
    for key, what in (("device", "Device.run"), ("session", "session.run"), ("from_context", "session from a context")):
        shown.add_row(what, *(f"{result[f'{key}_{kind}'] * 1e3:.2f}" for kind in ("seconds", "cpu_seconds")))
    shown.add_row("overhead of session.run", "", f"{result['overhead']:.1%}")
    for process, (early, late) in result.get("resident_bytes", {}).items():
        text = f"resident MB, {process}, after {-(-result['cycles'] // 10)} and {result['cycles']} sessions"
        shown.add_row(text, f"{early / 1e6:.1f}", f"{late / 1e6:.1f}")
    yield shown


def _show_host(result: dict[str, Any]) -> Iterator[Table | str]:
    """Kernels beside the estimates of their times, for people."""
    title = f"{result['cpu']}: time of kernels, and estimates over it; model {result['source']}"
    shown = _table(title, "kernel or CPU step", "us", "estimate", "fitted", **_NARROW)
    for row in result["cases"]:
        ratios = (f"{row[key] / row['seconds']:.2f}" for key in ("estimate", "fitted_estimate"))
        shown.add_row(row["name"], f"{row['seconds'] * 1e6:.1f}", *ratios)
    yield shown
    for key, what in (("ratio", "estimate"), ("fitted_ratio", "fitted estimate")):
        r = result[key]
        yield f"{what} / measured: median {r['median']:.2f}, 80 % of the cases {r['p10']:.2f} to {r['p90']:.2f}"
    cycles = ", ".join(f"{k} {v:g}" for k, v in result["model"]["cycles"].items())
    yield f"fitted cycles: {cycles}, byte {result['model']['byte_cycles']:g}"


def _show_cpu(result: dict[str, Any]) -> Iterator[Table | str]:
    """Kernels, and peak memory where it was measured, for people."""
    yield _kernel_table(result)
    if result["memory"]:
        yield _memory_table(result)


def _show_speed(result: dict[str, Any]) -> Iterator[Table | str]:
    """Compile time and speed, for people."""
    title = f"{result['model']} for {result['config']}, medians of {result['runs']} runs"
    shown = _table(title, "what", "seconds", "GMAC/s")

    def row(what: str, seconds: float | None) -> None:
        if seconds is not None:
            shown.add_row(what, f"{seconds:.4f}", f"{result['macs'] / seconds / 1e9:.2f}")

    shown.add_row("compile", f"{result['compile_seconds']:.2f}", "")
    if "detector_compile_seconds" in result:
        network = f"zoo detector, {result['detector_macs'] / 1e9:.1f} GMAC"
        shown.add_row(f"compile {network}, no kernels kept", f"{result['detector_compile_seconds']:.2f}", "")
        shown.add_row("  CPU seconds of it", f"{result['detector_compile_cpu_seconds']:.2f}", "")
    row("functional simulator", result["run_seconds"])
    row(f"{result['reference']}, 1 thread, same model", result["reference_seconds"])
    row(f"{result['reference']}, 1 thread, uint8 activations", result["reference_uint8_seconds"])
    shown.add_row("simulator / fastest onnxruntime", f"{result['ratio']:.2f}x", "")
    largest = f"no; at most {result['difference']:.1e} of the largest value"
    shown.add_row("bytes equal", "yes" if result["equal"] else largest, "")
    yield shown


def _kernel_table(result: dict[str, Any]) -> Table:
    """Times and ratios of the cases, for people."""
    heading = f"{result['cpu']}, {result['threads']} thread(s), onnxruntime {result['onnxruntime']}: minima, and ratios"
    caption = "ratios are our time over theirs: below 1 is faster"
    shown = Table(title=heading, caption=caption, **_NARROW)
    for name in ("case", "ours ms", "ort ms", "/ ort", "median", "limit", "/ numpy", "compile", "arena"):
        shown.add_column(name, justify="left" if name == "case" else "right", no_wrap=True)
    group = ""
    for row in result["cases"]:
        if group not in ("", row["group"]):
            shown.add_section()
        group = row["group"]
        ratio = f"{row['ratio']:.2f}" + ("" if row["within"] else " [red]over[/red]")
        shown.add_row(
            row["name"],
            f"{row['seconds']['ours'] * 1e3:.3f}",
            f"{row['seconds']['onnxruntime'] * 1e3:.3f}",
            ratio,
            f"{row['median_ratio']:.2f}",
            "" if row["limit"] is None else f"{row['limit']:.1f}",
            "" if row["numpy_ratio"] is None else f"{row['numpy_ratio']:.2f}",
            f"{row['compile_seconds']:.2f} s",
            f"{row['arena_bytes'] / 1e6:.1f} MB",
        )
    return shown


def _memory_table(result: dict[str, Any]) -> Table:
    """Peak memory, for people."""
    title = "peak resident memory of a process that runs the network"
    shown = _table(title, "network", "ours MB", "onnxruntime MB", "ratio", **_NARROW)
    for row in result["memory"]:
        mb = (f"{row[key] / 1e6:.0f}" for key in ("bytes", "onnxruntime_bytes"))
        shown.add_row(row["name"], *mb, f"{row['ratio']:.2f}")
    return shown


#: By the option that chooses it: what measures, and what shows the result.
_MODES: dict[str, tuple[Callable[[Bench, Progress], dict[str, Any]], Callable[[dict[str, Any]], Iterator[Table | str]]]]
_MODES = {
    "": (_measure_speed, _show_speed),
    "--cpu": (_measure_cpu, _show_cpu),
    "--onnxruntime": (_measure_sessions, _show_sessions),
    "--host": (_measure_host, _show_host),
    "--compile": (_measure_compiles, _show_compiles),
}
