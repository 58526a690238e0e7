"""Cycles of the zoo's networks on the cycle-level simulator, beside bounds, targets and another NPU's estimates.

Memory: `MemoryTiming()`, the first beat 64 cycles after its request, then one per cycle; or that of a board. The
columns `bar` and `stretch` are the targets of this project for `base`. `U65-256` is the estimate of Arm's Vela for an
Ethos-U65 with as many MACs per cycle, for orientation: machine, memory and model of time are others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
from rich.table import Table

from tilewright import zoo
from tilewright.api.compilation import compile_program
from tilewright.cli import arguments, memory_options, terminal
from tilewright.fpga.bare.command import one_line_errors
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.measure.clock import Clock, clock_of, show
from tilewright.measure.explain import performance
from tilewright.runtime.devices import Device
from tilewright.runtime.inputs import random_inputs
from tilewright.simulator.bound import bound_cycles


@dataclass(frozen=True)
class Target:
    """A network, and the thousands of cycles that it is compared with; None where no estimate is known."""

    network: str
    bar: int
    stretch: int
    u65: int | None = None
    quick: bool = False


TARGETS = (
    Target("resnet8", 65, 55, 104, quick=True),
    Target("ds_cnn", 27, 20, 54, quick=True),
    Target("vww", 85, 60, 147, quick=True),
    Target("autoencoder", 39, 34, 41, quick=True),
    Target("mobilenet_v2", 2500, 1750, 3405),
    Target("resnet18", 7900, 7300),
    Target("resnet50", 18500, 16500),
)


def measure(
    machine: NpuConfig,
    timing: MemoryTiming = DEFAULT_MEMORY,
    *,
    quick: bool = False,
    clock: Clock | None = None,
    progress: Callable[..., None] = lambda *_: None,
) -> list[dict[str, Any]]:
    """Compiles and runs the networks on the cycle-level simulator.

    Args:
        machine, timing: configuration and timing of the external memory.
        quick: leaves out the large networks.
        clock: clock for times in ms; by default that of the fastest board known to run the machine.
        progress: called with a line, the number of networks done and their total.

    Returns:
        One entry per network, as `--json` writes it.
    """
    found = []
    chosen = [t for t in TARGETS if t.quick or not quick]
    for index, target in enumerate(chosen):
        progress(f"measuring {target.network}", index, len(chosen))
        program = compile_program(
            zoo.build_quantized(target.network), machine, memory=timing, cache=False, tuning="off"
        )
        inputs = random_inputs(program)
        with Device("cycle", timing=timing) as device:
            device.load(program)
            start = time.perf_counter()
            device.run(program, inputs)
            seconds = time.perf_counter() - start
            assert device.counters is not None
            bound = bound_cycles(program.layers, program.config, timing)
            entry: dict[str, Any] = {"network": target.network, "config": program.config.name, "macs": program.macs}
            entry |= performance(device.counters, bound)
            if (known := clock_of(program.config, clock)) is not None:
                entry |= known.describe(device.counters.cycles or 0)
        entry |= {"bar_cycles": 1000 * target.bar, "stretch_cycles": 1000 * target.stretch}
        entry["ethos_u65_256_cycles"] = 1000 * target.u65 if target.u65 else None
        entry |= {"compile_seconds": program.compile_seconds, "run_seconds": seconds}
        found.append(entry)
    return found


@click.command(
    epilog=(
        "\b\nExamples:\n  python -m calibration.benchmarks.network_cycles --quick\n"
        "  python -m calibration.benchmarks.network_cycles --config wide --board ulx3s_85f --memory sdram --clock 60\n"
    )
)
@arguments.config_option
@memory_options.options
@arguments.clock_option
@arguments.json_option
@click.option("--quick", is_flag=True, help="Only the small networks.")
@arguments.gather(memory_options.MemoryOptions, "beside")
def main(
    config: str | None,
    beside: memory_options.MemoryOptions,
    json_path: str | None,
    quick: bool,
) -> None:
    """Cycles of the zoo's networks."""
    terminal.prepare_json(json_path)
    with one_line_errors(), terminal.Working("measuring") as working, terminal.stdout_for_json(json_path):
        machine = NpuConfig.load(config or "base")
        clock, timing = beside.clock_and_memory(machine)
        entries = measure(machine, timing, quick=quick, clock=clock, progress=working.update)
    if json_path is not None:
        terminal.emit_json(json_path, entries)
    if json_path != "-":
        terminal.table_console().print(_table(entries))
        click.echo("* the bar is reached, ** the stretch target too (they are for base)")


def _table(entries: list[dict[str, Any]]) -> Table:
    """Makes the table that is printed; * = at or below the bar, ** = at or below the stretch target."""
    config = entries[0]["config"] if entries else ""
    known = bool(entries) and "clock_mhz" in entries[0]
    clock = f"; milliseconds at {entries[0]['clock_mhz']:g} MHz ({entries[0]['clock_from']})" if known else ""
    shown = Table(title=f"cycles on {config}, in thousands{clock}", title_justify="left")
    shown.add_column("network")
    for heading in (
        "cycles",
        "bound",
        "util",
        "bar",
        "stretch",
        "",
        "U65-256",
        *(["ms"] if known else []),
        "compile s",
        "run s",
    ):
        shown.add_column(heading, justify="right")
    for e in entries:
        stars = "**" if e["cycles"] <= e["stretch_cycles"] else "*" if e["cycles"] <= e["bar_cycles"] else ""
        cycles = [_thousands(e[key]) for key in ("cycles", "bound_cycles")]
        targets = [_thousands(e[key]) for key in ("bar_cycles", "stretch_cycles")]
        other = _thousands(e["ethos_u65_256_cycles"]) if e["ethos_u65_256_cycles"] else ""
        times = [show(e["milliseconds"])] if known else []
        seconds = f"{e['compile_seconds']:.2f}", f"{e['run_seconds']:.2f}"
        shown.add_row(e["network"], *cycles, f"{e['utilization']:.1%}", *targets, stars, other, *times, *seconds)
    return shown


def _thousands(cycles: int) -> str:
    return f"{cycles / 1000:.1f}" if cycles < 1e6 and cycles % 1000 else f"{cycles / 1000:.0f}"


if __name__ == "__main__":
    main()
