"""What options of a machine cost: cells counted by Yosys, and cycles of networks.

    python -m tilewright.measure.prices tiny                                 the table of docs/machine.md
    python -m tilewright.measure.prices small vector_passes=1 queue_depth=8

Each option is a change of the machine, `FIELD=VALUE` or several of them with commas. A row shows what the change adds
to the machine as it is, or takes away. Synthesis takes a minute or more for each and is done once:
`fpga.bare.resources` keeps what it found. Networks are those of the zoo at the size of the quick tests.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from common.errors import TilewrightError
from fpga.bare.resources import FAMILIES, Resources, synthesise
from isa.config import NpuConfig
from tilewright import zoo
from tilewright.api.compilation import compile_program
from tilewright.runtime.devices import Device
from tilewright.runtime.inputs import random_inputs

NETWORKS = ("resnet8", "ds_cnn", "vww", "mobilenet_v2")
#: What the table of docs/machine.md has: fields that change the logic, and not what the machine can do.
OPTIONS = (
    "vector_passes=1", "vector_passes=2", "semaphores=31", "queue_depth=32", "vector_queue=0",
    "gemm_loops=5,vector_loops=4",
)  # fmt: skip


@dataclass(frozen=True)
class Price:
    """A machine: its cells, and the cycles of each network."""

    resources: Resources
    cycles: dict[str, int]


def parse_option(text: str) -> dict[str, int]:
    """`FIELD=VALUE[,FIELD=VALUE...]`. Raises `TilewrightError` if it is not that."""
    changes: dict[str, int] = {}
    for part in text.split(","):
        field, equals, value = part.partition("=")
        if not equals or not value.isdecimal():
            raise TilewrightError(f"an option is FIELD=VALUE, with a number, not {part!r}")
        changes[field] = int(value)
    return changes


def cycles_of(model: onnx.ModelProto, config: NpuConfig) -> int:
    """Of one run, with the default timing of memory."""
    program = compile_program(model, config)
    with Device("cycle", functional=False) as device:
        device.run(program, random_inputs(program))
        assert device.counters is not None and device.counters.cycles is not None
        return device.counters.cycles


def price(config: NpuConfig, models: dict[str, onnx.ModelProto], family: str) -> Price:
    """Raises `FpgaError` where the tools are missing."""
    return Price(synthesise(config, family), {name: cycles_of(model, config) for name, model in models.items()})


def rows(config: NpuConfig, options: Sequence[str], family: str) -> Iterator[list[str]]:
    """Lines of the table: the machine as it is, then the difference that each option makes.

    Raises:
        TilewrightError: an option that cannot be read or built.
    """
    sizes: dict[str, Any] = {name: zoo.ZOO[name].small for name in NETWORKS}
    models = {name: zoo.build_quantized(name, **size) for name, size in sizes.items()}
    machines = [(text, config.with_(**parse_option(text))) for text in options]  # all of them before the first minute
    here = price(config, models, family)
    counts = ("lut", "ff", "dsp", "bram")
    yield [
        f"`{config.name}`",
        *(f"{getattr(here.resources, count):,}" for count in counts),
        *(f"{cycles:,}" for cycles in here.cycles.values()),
    ]
    for text, machine in machines:
        there = price(machine, models, family)
        yield [
            f"`{text.replace(',', ', ')}`",
            *(f"{getattr(there.resources, count) - getattr(here.resources, count):+,}" for count in counts),
            *(f"{there.cycles[name] / cycles * 100 - 100:+.1f} %" for name, cycles in here.cycles.items()),
        ]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line: prints the table in Markdown, each row when it is known."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.measure.prices", description=__doc__.splitlines()[0])
    parser.add_argument("config", help="preset or file")
    parser.add_argument("option", nargs="*", default=OPTIONS, help=f"default: {' '.join(OPTIONS)}")
    parser.add_argument("--family", choices=FAMILIES, default="ecp5")
    asked = parser.parse_args(arguments)
    try:
        head = ["option", "LUT", "FF", "DSP", "block RAM", *NETWORKS]
        print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
        for row in rows(NpuConfig.load(asked.config), asked.option, asked.family):
            print(f"| {' | '.join(row)} |", flush=True)
    except TilewrightError as error:
        parser.exit(2, f"tilewright: error: {error}\n")


if __name__ == "__main__":
    main()
