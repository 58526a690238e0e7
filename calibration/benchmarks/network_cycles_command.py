"""`python -m calibration.benchmarks.network_cycles_command` or `make bench-cycles`: cycles of the zoo's networks."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from calibration.benchmarks.network_cycles import measure
from tilewright.cli import arguments, memory_options, terminal
from tilewright.isa.config import NpuConfig
from tilewright.measure.clock import show


@click.command(
    epilog=(
        "\b\nExamples:\n  python -m calibration.benchmarks.network_cycles_command --quick\n"
        "  python -m calibration.benchmarks.network_cycles_command"
        " --config wide --board ulx3s_85f --memory sdram --clock 60\n"
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
    with terminal.Working("measuring") as working, terminal.stdout_for_json(json_path):
        machine = NpuConfig.load(config or "base")
        clock, timing = beside.clock_and_memory(machine)
        entries = measure(machine, timing, quick=quick, clock=clock, progress=working.update)
    if json_path is not None:
        terminal.emit_json(json_path, entries)
    if json_path != "-":
        terminal.table_console().print(_table(entries))
        click.echo("* the bar is reached, ** the stretch target too (they are for base)")


def _table(entries: list[dict[str, Any]]) -> Table:
    """For people; * = at or below the bar, ** = at or below the stretch target."""
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
