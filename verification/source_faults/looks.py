"""Checks that detect faults in the sources, each in a fraction of a second or few.

For the compiler: its golden texts, layers of every kind against the numpy reference, random quantised graphs against
onnxruntime, pinned cycles of networks. For the simulators: random programs and such that stop, against the definition
(`tilewright.simulator.reference`), and for the clock against what the simulator without a fault says, which
`tests/cosim` holds equal to the RTL.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.network.cycle_pins import FILE, cycles
from tests.network.layer_cases import KINDS, make
from tests.network.test_layers_against_reference import CONFIGS as LAYER_MACHINES
from tests.reference import quantized_ops
from tests.reference.random_quantized import random_quantized_graph
from tests.unit.compiler.npu.golden import cases
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.device import Device, DeviceError
from tilewright.isa.encoding import to_bytes
from tilewright.runtime.executor import Executor
from tilewright.simulator.cycle import CycleDevice
from tilewright.simulator.functional import FunctionalDevice
from verification.fuzz.codes import MACHINES as CODED
from verification.fuzz.quantized import differences
from verification.programs.coded import coded_program
from verification.programs.equality import CONFIGS, WATCHDOG, of_trace, random_timing
from verification.programs.error_cases import CASES, outcome
from verification.programs.generator import GeneratedProgram, generate
from verification.trials.trial import SIZES

#: Of blocks as large as those of `tiny`: one library of the functional simulator serves them all.
MACHINES: list[NpuConfig] = [*(CONFIGS[name] for name in ("tiny", "one_queue", "serial", "no_units")), CODED["tiny"]]
#: Seeds of layers, and the machine of each: first one with all units, one with little room, two with unequal blocks.
_LAYERS = tuple(
    zip(range(1000, 1008), ("base", "half", "narrow", "wide", "tiny", "no_units", "large", "small"), strict=True)
)
_PINNED = (("digits", "tiny"), ("digits", "base"), ("ds_cnn", "base"), ("resnet8", "base"))
#: Random graphs, of some 18 operators each, for every layer of each kind.
_GRAPHS = 24
#: Instructions and steps of random programs for the functional simulator, short ones first: its definition is slow.
_SHORT = ((4, 10), (8, 20), (12, 30), (20, 60))
#: The same on `base`, whose steps are more than the kernels take at once.
_WIDE = (6, 150)


@dataclass(frozen=True)
class Look:
    """A check that may find a fault.

    Attributes:
        name: of it.
        run: says what is wrong, "" if nothing is; or raises what a fault makes of it.
        seconds: of the processor, after which it has found something: without a fault it never takes so long.
    """

    name: str
    run: Callable[[], str]
    seconds: int = 120


def of_the_compiler(seeds: int) -> list[Look]:
    """Looks for faults in `compiler/npu`, with so many layers of each kind, and _GRAPHS graphs for each of those."""
    looks = [Look(f"golden {name}", functools.partial(_golden, name)) for name in sorted(cases())]
    for seed, machine in _LAYERS[:seeds]:
        looks += [Look(f"{kind} {machine}", functools.partial(_layer, kind, seed, machine)) for kind in sorted(KINDS)]
    looks += [Look(f"graph {seed}", functools.partial(_graph, seed)) for seed in range(_GRAPHS * seeds)]
    return looks + [Look(f"pin {pair[0]} {pair[1]}", functools.partial(_pin, *pair)) for pair in _PINNED]


def _golden(name: str) -> str:
    case = cases()[name]
    return "" if case.text() == case.path.read_text(encoding="utf-8") else "another text"


def _layer(kind: str, seed: int, machine: str) -> str:
    graph, inputs = make(kind, seed)
    config = next(config for config in reversed(LAYER_MACHINES) if config.name == machine)
    expected = quantized_ops.run(graph, inputs)
    outputs = list(graph.outputs)
    found = Executor(compile_graph(graph, config, CompileOptions()), FunctionalDevice(config)).run(inputs).outputs
    return "".join(f"{name} differs" for name in outputs if (found[name] != expected[name]).any())


def _graph(seed: int) -> str:
    return "; ".join(differences(seed, random_quantized_graph(seed)))


def _pin(network: str, config: str) -> str:
    found, pinned = cycles(network, config), json.loads(FILE.read_text(encoding="utf-8"))[f"{network} {config}"]
    return "" if found == pinned else f"{found} cycles, not {pinned}"


def unit_tests(files: list[str]) -> str:
    """Runs the quick tests in some files; returns the first failure, "" for none."""
    wanted = "not slow and not long and not cosim and not network"
    status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", wanted, *files])
    return "" if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else f"pytest ends with {status}"


def of_the_simulators(programs: int, *, clock: bool) -> Iterator[Look]:
    """Looks for faults in `simulator/native`: of the clock, or of what the machine computes."""
    said, sizes = (_clock, SIZES) if clock else (_results, _SHORT)
    for number in range(programs):
        config = MACHINES[number % len(MACHINES)]
        size = sizes[number * len(sizes) // programs]
        yield Look(f"program {number} {config.name}", _compared(functools.partial(said, number, config, size)))
    for number in range(len(CASES)):
        config = MACHINES[number % len(MACHINES)]
        yield Look(f"error {number} {config.name}", _compared(functools.partial(_stop, number, config, clock)))
    for number in range(0 if clock else programs // 4):  # a library of its own: only what is left gets here
        yield Look(f"program {number} base", _compared(functools.partial(said, number, PRESETS["base"], _WIDE)))


def _compared(said: Callable[[bool], object]) -> Callable[[], str]:
    """Returns a check that the simulators say what they say without a fault, which is found out at its first call."""
    expected = functools.cache(lambda: said(True))

    def run() -> str:
        wanted = expected()
        found = said(False)
        return "" if found == wanted else f"{found}, not {wanted}"[:200]

    return run


@functools.cache
def _program(seed: int, config: NpuConfig, size: tuple[int, int]) -> GeneratedProgram:
    if config.weight_codes:
        return coded_program(seed, config)[0]
    return generate(seed, config, instructions=size[0], max_steps=size[1])


def _results(seed: int, config: NpuConfig, size: tuple[int, int], definition: bool) -> object:
    program, device = _program(seed, config, size), FunctionalDevice(config, "reference" if definition else "fast")
    base, regions = program.install(device)
    try:
        counters = device.run(regions, 0, 0, len(program.ops))
        return counters, device.read(base, program.memory.size).tobytes()
    except DeviceError as error:
        return error.code, error.engine, error.pc, error.address


def _clock(seed: int, config: NpuConfig, size: tuple[int, int], _definition: bool) -> object:
    program = _program(seed, config, size)
    device = CycleDevice(config, random_timing(random.Random(seed)), functional=False)
    _, regions = program.install(device)
    try:
        counters = device.run(regions, 0, 0, len(program.ops), watchdog=WATCHDOG, trace=True)
    except DeviceError as error:
        return error.code, error.engine, error.pc, error.address
    return counters, tuple(of_trace(device.trace, program.ops).items())


def _stop(number: int, config: NpuConfig, clock: bool, definition: bool) -> object:
    device: Device = CycleDevice(config) if clock else FunctionalDevice(config, "reference" if definition else "fast")
    return outcome(device, to_bytes(CASES[number]), **({"watchdog": 2000} if clock else {}))
