"""`tilewright bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table

from tilewright import additions
from tilewright.cli import arguments, terminal
from tilewright.errors import UsageError
from tilewright.measure import cpu_speed, host_speed, speed


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
@click.option("--write", is_flag=True, help="With --host: keep the numbers that fit this machine, for its estimates.")
@click.option("--cycles", type=click.IntRange(0), default=0, help="With --onnxruntime: sessions to make, run and drop.")
@click.option(
    "--only", multiple=True, metavar="TEXT", help="With --cpu: cases or groups that contain TEXT; repeatable."
)
@click.option("--threads", type=click.IntRange(1), default=1, help="With --cpu: threads of ours and of onnxruntime.")
@click.option("--model", type=click.Path(path_type=Path), help="An ONNX model instead of ResNet-18 or the cases.")
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, help="Timed runs; medians are reported.")
@arguments.shape_option
@arguments.config_option
@arguments.json_option
def command(
    cpu: bool,
    provider: bool,
    host_model: bool,
    write: bool,
    cycles: int,
    only: tuple[str, ...],
    threads: int,
    model: Path | None,
    runs: int,
    shapes: tuple[tuple[str, list[int]], ...],
    config: str | None,
    json_path: str | None,
) -> None:
    """Measure compile time and simulation speed on ResNet-18, next to onnxruntime on one thread."""
    terminal.prepare_json(json_path)
    if shapes and model is None:
        raise UsageError("--shape goes with --model")
    given = arguments.same_input_once(shapes)
    if write and not host_model:
        raise UsageError("--write goes with --host")
    if host_model:
        if cpu or provider or only or cycles or threads != 1:
            raise UsageError("--host does not go with --cpu, --onnxruntime, --cycles, --only and --threads")
        with terminal.Working("measuring") as working, terminal.stdout_for_json(json_path):
            found = host_speed.measure(
                [] if model is None else [model], config=config or "base", shapes=given, progress=working.update
            )
        _show_host(found, json_path)
        if write:
            path = host_speed.write(host_speed.fitted_model(found))
            click.echo(f"kept in {path}", err=True)
        return
    if cycles and not provider:
        raise UsageError("--cycles goes with --onnxruntime")
    if provider and (cpu or only or threads != 1):
        raise UsageError("--onnxruntime does not go with --cpu, --only and --threads")
    if cpu:
        if config is not None:
            raise UsageError("--cpu measures without an NPU: --config does not go with it")
        if only and model is not None:
            raise UsageError("--only selects among the cases, --model measures a model: give one of them")
        with terminal.Working("measuring") as working, terminal.stdout_for_json(json_path):
            found = cpu_speed.measure(only, threads=threads, model=model, shapes=given, progress=working.update)
        _show_cpu(found, json_path)
        return
    for name, there in (("--only", only), ("--threads", threads != 1)):
        if there:
            raise UsageError(f"{name} goes with --cpu")
    if provider:
        with terminal.Working("measuring") as working, terminal.stdout_for_json(json_path):
            found = additions.service("speed of sessions")(
                model, config or "base", given, runs=4 * runs, sessions=2 * runs, cycles=cycles, progress=working.update
            )
        if json_path is not None:
            terminal.emit_json(json_path, found)
        if json_path != "-":
            terminal.table_console().print(_provider_table(found))
        return
    with terminal.Working("measuring") as working, terminal.stdout_for_json(json_path):
        result = speed.measure(model, config=config or "base", shapes=given, runs=runs, progress=working.update)
    if json_path is not None:
        terminal.emit_json(json_path, result)
    if json_path != "-":
        terminal.table_console().print(_speed_table(result))


def _provider_table(result: dict[str, Any]) -> Table:
    """For people."""
    shown = Table(
        title=f"{result['model']}, {result['runs']} runs and {result['sessions']} sessions", box=box.SIMPLE_HEAD
    )
    for heading in ("what", "least ms", "median CPU ms"):
        shown.add_column(heading, justify="left" if heading == "what" else "right")
    for key, what in (("device", "Device.run"), ("session", "session.run"), ("from_context", "session from a context")):
        shown.add_row(what, *(f"{result[f'{key}_{kind}'] * 1e3:.2f}" for kind in ("seconds", "cpu_seconds")))
    shown.add_row("overhead of session.run", "", f"{result['overhead']:.1%}")
    for process, (early, late) in result.get("resident_bytes", {}).items():
        text = f"resident MB, {process}, after {-(-result['cycles'] // 10)} and {result['cycles']} sessions"
        shown.add_row(text, f"{early / 1e6:.1f}", f"{late / 1e6:.1f}")
    return shown


def _show_host(result: dict[str, Any], json_path: str | None) -> None:
    if json_path is not None:
        terminal.emit_json(json_path, result)
    if json_path == "-":
        return
    title = f"{result['cpu']}: time of kernels, and estimates over it; model {result['source']}"
    shown = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("kernel or CPU step", "us", "estimate", "fitted"):
        shown.add_column(name, justify="left" if name.startswith("kernel") else "right")
    for row in result["cases"]:
        ratios = (f"{row[key] / row['seconds']:.2f}" for key in ("estimate", "fitted_estimate"))
        shown.add_row(row["name"], f"{row['seconds'] * 1e6:.1f}", *ratios)
    console = terminal.table_console()
    console.print(shown)
    for key, what in (("ratio", "estimate"), ("fitted_ratio", "fitted estimate")):
        r = result[key]
        text = f"{what} / measured: median {r['median']:.2f}, 80 % of the cases {r['p10']:.2f} to {r['p90']:.2f}"
        console.print(text, markup=False)
    cycles = ", ".join(f"{k} {v:g}" for k, v in result["model"]["cycles"].items())
    console.print(f"fitted cycles: {cycles}, byte {result['model']['byte_cycles']:g}", markup=False)


def _show_cpu(result: dict[str, Any], json_path: str | None) -> None:
    if json_path is not None:
        terminal.emit_json(json_path, result)
    if json_path != "-":
        console = terminal.table_console()
        for shown in (_kernel_table(result), _memory_table(result)):
            if shown is not None:
                console.print(shown)


def _speed_table(result: dict[str, Any]) -> Table:
    """For people."""
    shown = Table(title=f"{result['model']} for {result['config']}, medians of {result['runs']} runs")
    for heading in ("what", "seconds", "GMAC/s"):
        shown.add_column(heading, justify="left" if heading == "what" else "right")

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
    return shown


def _kernel_table(result: dict[str, Any]) -> Table:
    """For people."""
    heading = f"{result['cpu']}, {result['threads']} thread(s), onnxruntime {result['onnxruntime']}: minima, and ratios"
    caption = "ratios are our time over theirs: below 1 is faster"
    shown = Table(title=heading, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
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


def _memory_table(result: dict[str, Any]) -> Table | None:
    """Peak memory for people, None where it was not measured."""
    if not result["memory"]:
        return None
    title = "peak resident memory of a process that runs the network"
    shown = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("network", "ours MB", "onnxruntime MB", "ratio"):
        shown.add_column(name, justify="left" if name == "network" else "right")
    for row in result["memory"]:
        mb = (f"{row[key] / 1e6:.0f}" for key in ("bytes", "onnxruntime_bytes"))
        shown.add_row(row["name"], *mb, f"{row['ratio']:.2f}")
    return shown
