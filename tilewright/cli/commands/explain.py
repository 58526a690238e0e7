"""`tilewright explain`."""

from __future__ import annotations

from pathlib import Path

import click
from rich import box
from rich.table import Table

from tilewright import registry
from tilewright.cli import arguments, memory_options, programs, terminal
from tilewright.compiler.stages.note_forms import general
from tilewright.errors import UsageError
from tilewright.isa.program import Layer
from tilewright.measure.clock import show
from tilewright.measure.explain import Explanation, explain
from tilewright.measure.labels import short, short_name
from tilewright.measure.latency import Latency
from tilewright.measure.roofline import check_suffix, write_plot
from tilewright.simulator.attribution import LOSSES, LayerLosses
from tilewright.store.files import write_bytes, write_text

#: Columns of the table: what they sum up.
_COLUMNS = {
    "pad": ("padding",), "win": ("window",), "traf": ("traffic",), "load": ("load",), "post": ("vector",),
    "store": ("store",), "fill": ("fill",), "rest": ("fetch", "pipeline"), "ovl": ("overlap",),
}  # fmt: skip

_MOST_KERNELS = 24  # rows of the CPU's table


@click.command(
    "explain",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright explain model.onnx                      cycles per layer, and what they were lost to\n"
        "  tilewright explain model.twp --plot roofline.png   a compiled program, with a roofline plot\n"
        "  tilewright explain model.onnx --onnx compiled.onnx the layers as a graph, for Netron\n"
        "  tilewright explain model.onnx --latency 200 --interval 2 --json -\n"
        "  tilewright explain model.onnx --config wide --board ulx3s_85f\n"
        "  tilewright explain model.onnx --clock 100          times at 100 MHz\n"
        "  tilewright explain llm.onnx --shape input_ids=1,1 --state auto  a token of a language model\n"
        "  tilewright explain model.onnx --host armv7-linux   with the CPU's ops on the processor of a Zynq-7000\n"
    ),
)
@arguments.model_argument
@arguments.config_option
@arguments.shape_option
@arguments.decoder_options
@arguments.effort_option
@arguments.kernels_option
@arguments.objective_option
@memory_options.options
@arguments.clock_option
@arguments.host_option
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a roofline plot: .png, .svg, or .html with all numbers.",
)
@click.option(
    "--onnx",
    "onnx_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the compiled graph, a node for each layer, with place, cycles and bytes; opens in Netron.",
)
@click.option(
    "--model-explorer",
    "explorer_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the cycles as node data, which Model Explorer lays over the model.",
)
@arguments.trust_option
@arguments.json_option
@arguments.gather(programs.Request, "request")
def command(
    request: programs.Request,
    plot: Path | None,
    onnx_path: Path | None,
    explorer_path: Path | None,
    json_path: str | None,
) -> None:
    """Say where the cycles of MODEL, an ONNX or TFLite model or a compiled program, go.

    Runs it on the cycle-level simulator and compares every layer with the fewest cycles it could take; every cycle
    above that has a cause. Energy is that of a model, see docs/energy.md. What the CPU does is estimated for this
    machine or for --host.
    """
    terminal.prepare_json(json_path)
    if plot is not None:
        check_suffix(plot)
        terminal.prepare_output(plot)
    views = {"--onnx": onnx_path, "--model-explorer": explorer_path}
    for option, path in views.items():
        if path is not None and (request.is_program or request.entries):
            what = "has entry points" if request.entries else "is compiled already"
            raise UsageError(f"{request.model} {what}: {option} needs a model and one computation")
        if path is not None:
            terminal.prepare_output(path)
    program, compiled = request.open(json_path)
    if not compiled and request.config is not None:
        raise UsageError(f"{request.model} is compiled already: --config has no effect on it")
    if not compiled and request.options.host is not None:
        raise UsageError(f"{request.model} is compiled already: --host has no effect on it")
    clock, timing = request.clock_and_memory(program.config)
    with terminal.Working(f"running {program.name}"), terminal.stdout_for_json(json_path):
        found = explain(program, timing, clock)
        if plot is not None:
            write_plot(plot, found)
        write_views(found, request, onnx_path, explorer_path)
    if not terminal.emit_json(json_path, found.to_dict()):
        return
    energy = registry.service("energy tables")
    console = terminal.table_console()
    console.print(table(found, console.width))
    if found.rows:
        console.print(energy.table(found, console.width))
    if found.latency.kernels:
        console.print(cpu_table(found.latency, console.width))
    for line in (*summary(found), *energy.sentences(found.energy, found.energy_model, found.program.config)):
        console.print(line, markup=False)


def write_views(
    found: Explanation, request: programs.Request, onnx_path: Path | None, explorer_path: Path | None
) -> None:
    """Writes the graph of the request's model with the figures of its program, to the files that are named."""
    if onnx_path is None and explorer_path is None:
        return
    # the compiler, which a program that is kept need not wait for
    from tilewright.measure.graph_view import graph_view

    view = graph_view(found, request.source(), request.options.compiler)
    if onnx_path is not None:
        write_bytes(onnx_path, view.to_onnx().SerializeToString())
    if explorer_path is not None:
        write_text(explorer_path, view.node_data())


def table(found: Explanation, width: int) -> Table:
    """Makes the table for people: per cent of each layer's cycles, so that a row sums up to 100."""
    shown = Table(
        title=f"{found.program.name} for {found.program.config.name}: cycles per layer, and per cent of them",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        pad_edge=False,
        show_footer=True,
    )
    narrow = width < 98  # leaves out MAC and bytes
    names = [row.layer.name for row in found.rows]
    room = max(12, min(max(map(len, names), default=0), width - (68 if narrow else 86)))
    shown.add_column("layer", footer="all", no_wrap=True)
    sums = _cells(_sum(found.rows), room)
    for place, heading in enumerate(("MAC", "bytes", "least", "bound", "cycles", "util", *_COLUMNS), 1):
        if not (narrow and place <= 3):
            shown.add_column(heading, justify="right", no_wrap=True, footer=sums[place])
    for row in found.rows:
        cells = _cells(row, room)
        shown.add_row(cells[0], *cells[4 if narrow else 1 :])
    return shown


def cpu_table(found: Latency, width: int) -> Table:
    """A table of CPU kernels, the longest first: milliseconds, and the share of the whole latency."""
    title = f"on the CPU, by a model of {found.host.name} at {found.host.mhz:g} MHz ({found.host.source})"
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("nodes", "ops", "step", "ms", "share"):
        shown.add_column(heading, justify="left" if heading in ("nodes", "ops") else "right", no_wrap=True)
    whole = found.seconds or found.cpu_seconds + found.border_seconds
    ordered = sorted(found.kernels, key=lambda k: -k[1])
    room = max((width - 30) // 2, 16)

    def row(names: str, ops: str, step: str, seconds: float) -> None:
        shown.add_row(
            short_name(names, room), short_name(ops, room), step, show(1e3 * seconds), f"{seconds / whole:.1%}"
        )

    for kernel, seconds in ordered[:_MOST_KERNELS]:
        row(kernel.name, kernel.op, str(kernel.step), seconds)
    rest = ordered[_MOST_KERNELS:]
    if rest:
        row(f"{len(rest)} more", "", "", sum(s for _, s in rest))
    calls = found.cpu_seconds - sum(s for _, s in found.kernels)
    row(f"calling {found.calls} steps", "", "", calls)
    if found.border_seconds:
        row(f"starting the NPU {found.turns} times", "", "", found.border_seconds)
    return shown


def _sum(rows: list[LayerLosses]) -> LayerLosses:
    """All rows as one; its bound is the sum of theirs."""
    layer = Layer(
        "all", "", "npu", macs=sum(r.layer.macs for r in rows), read_bytes=sum(r.layer.read_bytes for r in rows),
        write_bytes=sum(r.layer.write_bytes for r in rows), minimum_bytes=sum(r.layer.minimum_bytes for r in rows),
    )  # fmt: skip
    cycles, compute, memory, bound = (
        sum(getattr(r, key) for r in rows) for key in ("cycles", "compute", "memory", "bound")
    )
    losses = {key: sum(r.losses[key] for r in rows) for key in LOSSES}
    return LayerLosses(layer, [], cycles, compute, memory, bound, losses=losses)


def _cells(row: LayerLosses, room: int) -> list[str]:
    layer = row.layer
    cells = [short_name(layer.name, room), short(layer.macs)]
    cells += [short(layer.read_bytes + layer.write_bytes), short(layer.minimum_bytes)]
    cells += [str(row.bound), str(row.cycles), f"{row.utilization:.0%}" if row.cycles else ""]
    for keys in _COLUMNS.values():
        share = sum(row.losses[key] for key in keys) / row.cycles if row.cycles else 0.0
        cells.append("" if round(100 * share) == 0 else f"{100 * share:.0f}")
    return cells


def summary(found: Explanation) -> list[str]:
    """The lines under the table."""
    peak, bus = found.program.config.macs_per_cycle, found.program.config.bus_bytes
    lines = [
        "bound: part of the fewest cycles any schedule can take: steps of the array, and more where memory takes "
        "longer; util = bound / cycles; lost: pad padding of channels and pixels, "
        "win depthwise window, traf avoidable traffic, load waiting for LOAD, post for VECTOR, store for STORE, "
        "fill array empty before and after a layer, rest pipelines and fetch, ovl shared with neighbours",
        f"{found.cycles:,} cycles, bound {found.bound:,} ({_percent(found.bound, found.cycles)}); "
        f"peak {peak} MAC and {bus} B per cycle; memory latency {found.timing.read_latency}, "
        f"a beat every {found.timing.read_interval:g}",
    ]
    if found.later_cycles is not None:
        lines.append(f"{found.later_cycles:,} cycles in later runs, which find the weights in the NPU")
    lost = sorted(((n, key) for key, n in found.losses.items() if n), reverse=True)
    if lost:
        parts = ", ".join(f"{key} {n:,} ({_percent(n, found.cycles)})" for n, key in lost)
        lines.append(f"{found.cycles - found.bound:,} cycles above the bound: {parts}")
    fill: dict[str, int] = {}
    for row in found.rows:
        for cause, n in row.fill.items():
            fill[cause] = fill.get(cause, 0) + n
    if any(fill.values()):
        parts = ", ".join(f"{cause} {n:,}" for cause, n in sorted(fill.items(), key=lambda f: -f[1]) if n)
        lines.append(f"fill waited for: {parts}")
    every = found.cpu_layers or found.program.config.weight_codes
    lines += [f"note: {note}" for note in (found.program.notes if every else general(found.program.notes))]
    by_ops = list(found.latency.by_ops.items())
    if by_ops:
        whole = found.latency.seconds or found.latency.cpu_seconds
        shares = (f"{ops} {show(1e3 * seconds)} ms ({seconds / whole:.1%})" for ops, seconds in by_ops[:8])
        lines.append(f"CPU by ops: {', '.join(shares)}{', ...' if len(by_ops) > 8 else ''}")
    lines += [line for ends in found.ends for line in ends.sentences()]
    if found.program.entries:
        names = ", ".join(entry.name for entry in found.program.entries)
        lines.append(f"cycles and times are of all entry points, one after the other: {names}")
    lines.append(found.latency.sentence())
    return lines


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0%"
