"""Random programs: both paths leave the same memories, in whatever order engines get their turn."""

import random
from collections import Counter

import numpy as np
import pytest

from tilewright.isa.config import PRESETS, NpuConfig, preset
from tilewright.isa.device import DeviceError
from tilewright.isa.encoding import op, to_bytes
from tilewright.isa.instructions import BY_NAME, Engine
from tilewright.simulator import native
from tilewright.simulator.functional import FunctionalDevice
from tilewright.simulator.reference import ReferenceMachine
from tilewright.simulator.state import ExternalMemory, Scratchpads
from verification.programs.generator import GeneratedProgram, generate

#: Those that are no presets have a library of their own, built on first use.
CONFIGS = [
    *PRESETS.values(),
    preset("base").with_(name="16x8", block_out=8, queue_depth=3, gemm_loops=5, vector_loops=4),
    preset("base").with_(name="8x16", block_in=8, acc_rows=64, semaphores=12),
    preset("tiny").with_(name="32x4", block_in=32, acc_rows=256, gemm_loops=5, vector_loops=4),
    preset("tiny").with_(name="4x64", block_out=64, acc_rows=128, wgt_tiles=64, gemm_loops=8),
    preset("tiny").with_(name="no_units", depthwise=0, lut_tables=0),
    preset("small").with_(name="64x64", block_in=64, block_out=64, wgt_tiles=16, axi_data_bits=256, act_rows=256),
    preset("tiny").with_(name="one_queue", vector_queue=0, queue_depth=3),
    preset("tiny").with_(name="one_lane", vector_passes=4),
]
SEEDS = range(12)
#: Machines with the loops of others here and blocks of other sizes.
LONG = ("8x16", "32x4", "4x64", "one_lane")


def _marks(config: NpuConfig) -> list[pytest.MarkDecorator]:
    own = [] if config.name in PRESETS else [pytest.mark.slow]
    return [*own, pytest.mark.long] if config.name in LONG else own


def assert_same(a: Scratchpads, b: Scratchpads, context: object) -> None:
    kept = {"MAX": (a.maxima, b.maxima), "STAT": (a.norms, b.norms)}
    for name, (one, other) in {**{n: (v, b.arrays()[n]) for n, v in a.arrays().items()}, **kept}.items():
        assert (one == other).all(), f"{name} differs: {context}"


@pytest.mark.medium
@pytest.mark.parametrize(
    "config",
    [pytest.param(c, marks=_marks(c), id=c.name) for c in CONFIGS],
)
def test_fast_equals_reference(config: NpuConfig) -> None:
    """Devices keep their scratchpads from program to program, so later programs start from full memories."""
    fast, reference = FunctionalDevice(config), FunctionalDevice(config, "reference")
    assert fast.path == "fast"
    for seed in SEEDS:
        program = generate(seed, config)
        images = program.run(fast), program.run(reference)
        assert (images[0] == images[1]).all(), f"memory differs: {config.name}, seed {seed}"
        assert_same(fast.scratchpads, reference.scratchpads, (config.name, seed))


def test_counters_are_equal() -> None:
    program = generate(1, preset("small"))
    results = []
    for path in ("fast", "reference"):
        device = FunctionalDevice(program.config, path)
        _, regions = program.install(device)
        results.append(device.run(regions, 0, 0, len(program.ops)))
    assert results[0] == results[1]
    assert results[0].instructions == len(program.ops) and results[0].macs and results[0].cycles is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [("-DTW_NO_VNNI",), ("-DTW_NO_VNNI", "-DTW_NO_AVX2"), ("-fsanitize=undefined", "-fno-sanitize-recover=all", "-O1")],
    ids=["avx2", "plain", "sanitised"],
)
@pytest.mark.parametrize("config", [CONFIGS[4], pytest.param(CONFIGS[6], marks=pytest.mark.long)], ids=lambda c: c.name)
def test_every_instruction_set(config: NpuConfig, flags: tuple[str, ...]) -> None:
    """Programs run equally without VNNI, without any intrinsics, and with undefined behaviour ending the process."""
    for seed in range(3):
        program = generate(seed, config)
        reference = FunctionalDevice(config, "reference")
        image = program.run(reference)
        pads, memory = Scratchpads(config), program.memory.copy()
        native.run(config, pads, memory, program.windows, (0, 0, len(program.ops)), 1 << 40, flags)
        assert (image == memory).all(), f"memory differs: {config.name}, seed {seed}"
        assert_same(pads, reference.scratchpads, (config.name, seed))


class AnyOrderMachine(ReferenceMachine):
    """Lets a random engine go first and FETCH run far ahead, as engines of different speed would."""

    seed = 0

    def _oldest_ready(self) -> Engine | None:
        if not hasattr(self, "rng"):
            self.rng = random.Random(self.seed)
        if not self.ended and self.rng.random() < 0.6:
            return None if self._dispatchable() else self._any_ready()
        return self._any_ready()

    def _dispatchable(self) -> bool:
        return all(len(q) < self.config.queue_depth for q in self.queues.values())

    def _any_ready(self) -> Engine | None:
        heads = [e for e, q in self.queues.items() if q and all(self.semaphores[s] for s in q[0][1].waits)]
        favourite = Engine(1 + self.seed % 4)
        return favourite if favourite in heads else self.rng.choice(heads) if heads else None


def run_in_any_order(program: GeneratedProgram, seed: int) -> tuple[np.ndarray, Scratchpads]:
    pads, memory = Scratchpads(program.config), program.memory.copy()
    machine = AnyOrderMachine(
        program.config, pads, ExternalMemory(memory, program.windows), 0, 0, len(program.ops), 1 << 40
    )
    machine.seed = seed
    machine.run()
    return memory, pads


@pytest.mark.slow
@pytest.mark.parametrize("config", [*CONFIGS[::3], CONFIGS[-1]], ids=lambda c: c.name)
def test_results_do_not_depend_on_order(config: NpuConfig) -> None:
    for seed in range(6):
        program = generate(seed, config)
        device = FunctionalDevice(config)
        image = program.run(device)
        for order in range(4):
            memory, pads = run_in_any_order(program, order)
            assert (memory == image).all(), (config.name, seed, order)
            assert_same(pads, device.scratchpads, (config.name, seed, order))


@pytest.mark.slow
def test_order_matters_without_semaphores() -> None:
    """The check above is worth something: with the semaphores taken out, results differ."""
    differing = 0
    for seed in range(6):
        program = generate(seed, preset("base"))
        bare = [op(o.name, **{k: v for k, v in o.values.items() if k[:4] not in ("wait", "sign")}) for o in program.ops]
        program.memory[: 16 * len(bare)] = np.frombuffer(to_bytes(bare), np.uint8)
        images = [run_in_any_order(program, order)[0] for order in range(4)]
        differing += any((image != images[0]).any() for image in images)
    assert differing == 6


@pytest.mark.medium
def test_generator_is_replayable_and_covers_the_table() -> None:
    seen: Counter[str] = Counter()
    flags: Counter[str] = Counter()
    for seed in range(10):
        program = generate(seed, preset("base"))
        assert program.ops == generate(seed, preset("base")).ops
        seen.update(o.name for o in program.ops)
        for o in program.ops:
            flags.update(f"{o.name}.{k}" for k, v in o.values.items() if v)
    known = [i for i in BY_NAME.values() if i.requires is None or getattr(preset("base"), i.requires)]
    assert set(seen) == {i.name for i in known}
    unused = {f"{i.name}.{f.name}" for i in known for f in i.fields} - set(flags)
    assert unused == {"DEPTHWISE.slice"}  # needs block_out < block_in


@pytest.mark.slow
def test_damaged_programs_stop_the_same_way() -> None:
    """Flipped bits: the same error or the same memory, and nothing outside the windows is written."""
    rng = np.random.default_rng(7)
    outcomes: Counter[str] = Counter()
    for config in (preset("tiny"), CONFIGS[4]):
        for seed in range(40):
            program = generate(seed, config, instructions=12, dump=False)
            for _ in range(rng.integers(1, 4)):
                bit = int(rng.integers(0, 128 * len(program.ops)))
                program.memory[bit // 8] ^= 1 << bit % 8
            results: list[tuple[str, bytes | str]] = []
            for path in ("fast", "reference"):
                device = FunctionalDevice(config, path)
                base, regions = program.install(device)
                try:
                    device.run(regions, 0, 0, len(program.ops), timeout=20000)
                    results.append(("ok", device.read(base, program.memory.size).tobytes()))
                except DeviceError as error:
                    results.append((error.code.name, f"{error} {error.engine} {error.pc} {error.address}"))
                image = device.read(base, program.memory.size)
                protected = program.windows[1].base + program.windows[1].size
                assert (image[:protected] == program.memory[:protected]).all()
            assert results[0] == results[1], (config.name, seed)
            outcomes[results[0][0]] += 1
    assert len(outcomes) >= 4 and outcomes["ok"] < 60, outcomes
