"""`tilewright compare`."""

from __future__ import annotations

from pathlib import Path

import click

from isa.config import PRESETS, NpuConfig
from isa.program import Program
from tilewright.cli import common
from tilewright.errors import UsageError


@click.command(
    "compare",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright compare small base --model resnet18.onnx         two configurations\n"
        "  tilewright compare base wide.toml --model a.onnx --model b.tflite\n"
        "  tilewright compare before.twp after.twp                     two programs\n"
        "  tilewright compare float_head.onnx int8_head.onnx --config small --json -\n"
    ),
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--model",
    "models",
    multiple=True,
    type=click.Path(path_type=Path),
    help="The network to run on two configurations; repeatable.",
)
@common.config_option
@common.shape_option
@common.effort_option
@common.latency_option
@common.interval_option
@click.option("--layers/--no-layers", default=None, help="The table per layer; by default with one network only.")
@common.json_option
def command(
    a: str,
    b: str,
    models: tuple[Path, ...],
    config: str | None,
    shapes: tuple[tuple[str, list[int]], ...],
    effort: int,
    latency: int,
    interval: int,
    layers: bool | None,
    json_path: str | None,
) -> None:
    """Compare A and B, two configurations or two programs, layer by layer.

    A configuration is a preset, a .json or a .toml file and needs --model; a program may also be a model, which is
    compiled for --config first. Cycles are those of the cycle-level simulator.
    """
    from tilewright.measure.compare import compare, table, totals_table
    from tilewright.measure.explain import explain

    common.prepare_json(json_path)
    timing = common.memory_timing(latency, interval)
    found = []
    for left, right in _sides(a, b, models, config):
        explained = []
        for path, chosen in (left, right):
            program, compiled = common.open_program(path, chosen, shapes, effort=effort, json_path=json_path)
            if not compiled and chosen is not None:
                raise UsageError(f"{path} is compiled already: a configuration has no effect on it")
            with common.Working(f"running {program.name}"), common.stdout_for_json(json_path):
                explained.append(explain(program, timing))
        found.append(compare(*explained))
    if json_path is not None:
        common.emit_json(json_path, [each.to_dict() for each in found])
    if json_path == "-":
        return
    console = common.table_console()
    if layers or (layers is None and len(found) == 1):
        for each in found:
            console.print(table(each, console.width))
    console.print(totals_table(found))


Side = tuple[Path, str | None]


def _sides(a: str, b: str, models: tuple[Path, ...], config: str | None) -> list[tuple[Side, Side]]:
    """What to run on each side, and for which configuration."""
    kinds = [_is_config(a), _is_config(b)]
    if kinds[0] != kinds[1]:
        one, other = (a, b) if kinds[0] else (b, a)
        raise UsageError(f"{one} is a configuration, {other} is not; give two configurations, or two programs")
    if not kinds[0]:
        if models:
            raise UsageError(f"--model goes with two configurations; {a} and {b} are programs or models")
        needs = [None if Path(name).is_file() and Program.is_program(Path(name)) else config for name in (a, b)]
        if config is not None and needs == [None, None]:
            raise UsageError(f"{a} and {b} are compiled already: --config has no effect on them")
        return [((Path(a), needs[0]), (Path(b), needs[1]))]
    if not models:
        raise UsageError("two configurations need a network: --model FILE")
    if config is not None:
        raise UsageError(f"--config has no effect: {a} and {b} are the configurations")
    for name in (a, b):
        NpuConfig.load(name)
    return [((model, a), (model, b)) for model in models]


def _is_config(name: str) -> bool:
    return name in PRESETS or Path(name).suffix in (".json", ".toml")
