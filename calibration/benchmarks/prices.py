"""Costs of a machine's options: cells counted by Yosys, and cycles of networks.

    python -m calibration.benchmarks.prices tiny                                 the table of docs/machine.md
    python -m calibration.benchmarks.prices small vector_passes=1 queue_depth=8
    python -m calibration.benchmarks.prices tiny --write docs/machine.md         and puts it into the page

Each option is a change of the machine, `FIELD=VALUE` or several of them with commas. A row shows what the change adds
to the machine as it is, or takes away. Synthesis takes a minute or more for each and is done once: cells and cycles
are kept, so a run that was stopped goes on where it was. Networks are those of the zoo at the size of the quick tests.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from tilewright import zoo
from tilewright.api.compilation import compile_program
from tilewright.common.errors import TilewrightError
from tilewright.common.store import sources_digest, write_atomically
from tilewright.fpga.bare.kept import cache_file, read_json, write_json
from tilewright.fpga.bare.resources import FAMILIES, Resources, synthesise
from tilewright.isa.config import NpuConfig
from tilewright.runtime.devices import Device
from tilewright.runtime.inputs import random_inputs

NETWORKS = ("resnet8", "ds_cnn", "vww", "mobilenet_v2")
#: Options in the table of docs/machine.md: fields that change the logic, but not the function of the machine.
OPTIONS = (
    "window_pairs=1", "vector_passes=1", "vector_passes=2", "semaphores=31", "queue_depth=32", "vector_queue=0",
    "gemm_loops=5,vector_loops=4",
)  # fmt: skip
HEAD = ("option", "LUT", "FF", "DSP", "block RAM", *NETWORKS)
#: Sources that decide a cycle count.
CYCLE_SOURCES = ("common/**/*", "isa/**/*", "compiler/**/*", "simulator/**/*")


@dataclass(frozen=True)
class Price:
    """Cells of a machine, and the cycles of each network on it."""

    resources: Resources
    cycles: dict[str, int]


def parse_option(text: str) -> dict[str, int]:
    """Reads the fields of an option `FIELD=VALUE[,FIELD=VALUE...]`. Raises `TilewrightError` if it is not of this
    form."""
    changes: dict[str, int] = {}
    for part in text.split(","):
        field, equals, value = part.partition("=")
        if not equals or not value.isdecimal():
            raise TilewrightError(f"an option is FIELD=VALUE, with a number, not {part!r}")
        changes[field] = int(value)
    return changes


def cycles_of(model: onnx.ModelProto, config: NpuConfig) -> int:
    """Returns the cycles of one run with the default memory timing; kept by model, machine and sources."""
    digest = hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
    kept = cache_file("cycles", digest, config.fingerprint, sources_digest(*CYCLE_SOURCES))
    found = read_json(kept)
    if found is None:
        found = {"cycles": _run(model, config)}
        write_json(kept, found)
    return int(found["cycles"])


def _run(model: onnx.ModelProto, config: NpuConfig) -> int:
    program = compile_program(model, config, tuning="off")
    with Device("cycle", functional=False) as device:
        device.run(program, random_inputs(program))
        assert device.counters is not None and device.counters.cycles is not None
        return device.counters.cycles


def networks() -> dict[str, onnx.ModelProto]:
    """Builds the networks of the table, at the size of the quick tests."""
    sizes: dict[str, Any] = {name: zoo.ZOO[name].small for name in NETWORKS}
    return {name: zoo.build_quantized(name, **size) for name, size in sizes.items()}


def rows(
    config: NpuConfig,
    options: Sequence[str],
    family: str,
    *,
    models: Mapping[str, onnx.ModelProto] | None = None,
    count_cells: Callable[[NpuConfig, str], Resources] = synthesise,
) -> Iterator[list[str]]:
    """Yields the rows of the table: first the machine as it is, then the difference that each option makes.

    Args:
        models: networks by name; those of `networks` by default.
        count_cells: counts the cells of a configuration on a family.

    Raises:
        TilewrightError: an option that cannot be read or built.
    """
    chosen = networks() if models is None else models

    def price(machine: NpuConfig) -> Price:
        cycles = {name: cycles_of(model, machine) for name, model in chosen.items()}
        return Price(count_cells(machine, family), cycles)

    machines = [(text, config.with_(**parse_option(text))) for text in options]  # all of them before the first minute
    here = price(config)
    counts = ("lut", "ff", "dsp", "bram")
    yield [
        f"`{config.name}`",
        *(f"{getattr(here.resources, count):,}" for count in counts),
        *(f"{cycles:,}" for cycles in here.cycles.values()),
    ]
    for text, machine in machines:
        there = price(machine)
        yield [
            f"`{text.replace(',', ', ')}`",
            *(f"{getattr(there.resources, count) - getattr(here.resources, count):+,}" for count in counts),
            *(f"{there.cycles[name] / cycles * 100 - 100:+.1f} %" for name, cycles in here.cycles.items()),
        ]


def line(cells: Sequence[str]) -> str:
    """Returns a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def put(table: Sequence[str], page: Path) -> None:
    """Replaces the table of a page that has the same heading.

    Raises:
        TilewrightError: the page cannot be read or written, or has no such table.
    """
    try:
        lines = page.read_text(encoding="utf-8").splitlines()
        if table[0] not in lines:
            raise TilewrightError(f"{page} has no table with the heading {table[0]!r}")
        first = last = lines.index(table[0])
        while last < len(lines) and lines[last].startswith("|"):
            last += 1
        write_atomically(page, "\n".join([*lines[:first], *table, *lines[last:]]) + "\n")
    except OSError as error:
        raise TilewrightError(f"cannot write {page}: {error.strerror}") from None


def main(
    arguments: Sequence[str] | None = None,
    *,
    models: Mapping[str, onnx.ModelProto] | None = None,
    count_cells: Callable[[NpuConfig, str], Resources] = synthesise,
) -> None:
    """Runs the command line, which prints the table in Markdown, each row as soon as it is known; see `rows`."""
    parser = argparse.ArgumentParser(
        prog="python -m calibration.benchmarks.prices", description=__doc__.splitlines()[0]
    )
    parser.add_argument("config", help="preset or file")
    parser.add_argument("option", nargs="*", default=OPTIONS, help=f"default: {' '.join(OPTIONS)}")
    parser.add_argument("--family", choices=FAMILIES, default="ecp5")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="a page whose table with this heading is replaced")
    asked = parser.parse_args(arguments)
    table = [line(HEAD), f"|{'---|' * len(HEAD)}"]
    try:
        print("\n".join(table), flush=True)
        config = NpuConfig.load(asked.config)
        for row in rows(config, asked.option, asked.family, models=models, count_cells=count_cells):
            table.append(line(row))
            print(table[-1], flush=True)
        if asked.write is not None:
            put(table, asked.write)
    except TilewrightError as error:
        parser.exit(2, f"tilewright: error: {error}\n")


if __name__ == "__main__":
    main()
