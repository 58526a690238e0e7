"""The figures of docs/energy.md: `python examples/energy.py`, or with the names of questions.

python examples/energy.py array window int4 published
"""

from __future__ import annotations

import sys

from tilewright import zoo
from tilewright.api.compilation import compile_program
from tilewright.energy import Energy, events, load
from tilewright.energy.memories import OSU018, Technology
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.device import Counters
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import Memory
from tilewright.isa.program import Program
from tilewright.runtime.cost import run_npu_steps
from tilewright.simulator.cycle import CycleDevice

NETWORKS = ("resnet8", "ds_cnn")
#: What published figures are compared with: network, published µJ on the chip, its process, where from.
PUBLISHED = (
    ("resnet8", "28 to 40", Technology("GAP9, 22 nm, 0.65 to 0.8 V", 22, 0.8)),
    ("ds_cnn", "19", Technology("GAP9, 22 nm, 0.65 V", 22, 0.65)),
    ("resnet50", "1,040", Technology("NVDLA of 256 MACs, 16 nm, taken for 0.8 V", 16, 0.8)),
)


def run(network: str, config: NpuConfig) -> tuple[Program, Counters, Energy]:
    """A network of the zoo, quantised, on a machine."""
    program = compile_program(zoo.build_quantized(network), config, tuning="off")
    counters = run_npu_steps(program, CycleDevice(config, functional=False))
    return program, counters, load().energy(config, events.of_program(program, counters.cycles or 0))


def microjoules(energy: Energy) -> str:
    """µJ on the chip and of DRAM."""
    return f"{energy.chip / 1e6:,.0f} + {energy.dram / 1e6:,.0f}"


def array() -> None:
    """Compares arrays for these networks."""
    configs = [PRESETS[name] for name in ("tiny", "small", "base")]
    print("|".join(["network", *(f"{c.name}, {c.block_in} x {c.block_out}" for c in configs)]))
    for network in NETWORKS:
        found = [run(network, config) for config in configs]
        print("|".join([network, *(f"{microjoules(energy)} uJ, {n.cycles:,} cycles" for _, n, energy in found)]))


def window() -> None:
    """Compares a machine with and without the depthwise window."""
    for depthwise in (1, 0):
        _, counters, energy = run("ds_cnn", PRESETS["small"].with_(depthwise=depthwise))
        print(f"ds_cnn on small, depthwise = {depthwise}: {microjoules(energy)} uJ, {counters.cycles:,} cycles")


def weight_bytes(program: Program) -> int:
    """Bytes of weights the program loads, each as often as it does."""
    config, ops = program.config, program.ops()
    beats = events.per_instruction(ops, config)[:, events.EVENTS.index("beat read")]
    weights = [o.name == "LOAD" and o["target"] == Memory.WGT for o in ops]
    return round((beats[weights] * config.bus_bytes - INSTRUCTION_BYTES).sum())  # without fetching the instructions


def int4() -> None:
    """Estimates the savings of int4 weights."""
    model = load()
    for network in NETWORKS:
        for name in ("small", "base"):
            program, counters, energy = run(network, PRESETS[name])
            nbytes = weight_bytes(program)
            dram = nbytes / 2 * model.dram_pj_per_byte
            # On the chip: reads of WGT of half the width, and half the beats of weights.
            costs = {part: dict(zip(events.EVENTS, cost)) for part, cost in model.costs(PRESETS[name]).items()}
            beats = nbytes / 2 / PRESETS[name].bus_bytes
            chip = energy.memories["tile"] / 2 + beats * (costs["logic"]["beat read"] + costs["memories"]["beat read"])
            print(
                f"{network} on {name}: {nbytes:,} of {counters.bytes_read + counters.bytes_written:,} bytes are "
                f"weights; {microjoules(energy)} uJ; int4 saves {dram / 1e6:.1f} of DRAM, about "
                f"{chip / 1e6:.1f} on the chip, {(dram + chip) / energy.total:.1%} together"
            )


def published() -> None:
    """Compares our energies with published figures."""
    for network, uj, other in PUBLISHED:
        _, counters, energy = run(network, PRESETS["base"])
        factor = OSU018.factor(other)
        print(
            f"{network} on base: {microjoules(energy)} uJ, {counters.cycles:,} cycles; {other.name}: "
            f"a factor of 1/{1 / factor:.0f}, {energy.chip / 1e6 * factor:,.1f} uJ on the chip, published {uj}"
        )


QUESTIONS = {question.__name__: question for question in (array, window, int4, published)}

if __name__ == "__main__":
    for asked in sys.argv[1:] or QUESTIONS:
        if asked not in QUESTIONS:
            sys.exit(f"no question {asked!r}; there are {', '.join(QUESTIONS)}")
        print(f"\n{QUESTIONS[asked].__doc__}")
        QUESTIONS[asked]()
