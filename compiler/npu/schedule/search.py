"""Schedule search over whole NPU steps, by exact cycles.

A policy says how much of ACT residents may take, how dearly a fused group pays for hand-overs, and how long groups
may be; residency and fusion follow from it by counting. With effort 2 and 3 several policies are emitted and their
cycles measured by a cost function that the caller hands in (the cycle-level simulator), in parallel.
"""

from __future__ import annotations

import itertools
import math
import os
import pickle
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tilewright.common.errors import TilewrightError
from tilewright.common.processes import Command, Outcome, processors, run_all
from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.emit.scratch import ScratchpadFull
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule.bands import LayerGroup
from tilewright.compiler.npu.schedule.emission import emit_step
from tilewright.compiler.npu.schedule.fusion import choose_groups
from tilewright.compiler.npu.schedule.residency import Stay, choose_residents, outside_groups
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import DeviceError
from tilewright.isa.encoding import to_bytes
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import Engine
from tilewright.isa.program import CONSTANT_REGION
from tilewright.isa.timing import MemoryTiming

#: Bytes of buffers without a view, and of what is read behind a view: rows of operands are padded to tiles.
_BEYOND = 1 << 20
#: So many policies are measured in this process.
_FEW = 3
#: What groups by channels have to bring at first: there are fewer tiles to choose from later.
_CHUNKS = 0.99
#: What a measured change has to bring: the constants lie elsewhere in the end, whose bursts then end elsewhere.
GAIN = 0.997
#: (configuration, instruction image, arena bytes) -> exact cycles, or whatever else is to be small. A program that the
#: machine stops is a `DeviceError`.
Measure = Callable[[NpuConfig, bytes, int], float]


@dataclass(frozen=True)
class Policy:
    """A policy, from which residency and fusion follow by counting.

    Attributes:
        share: of ACT rows that resident tensors may take.
        drain: share of a tile's drain that the next layer of a fused band is charged for.
        longest: layers in a fused group at most, 1 = no fusion.
        chunks: layers also run together by channels where only exact cycles can tell whether that pays.
    """

    share: float = 0.6
    drain: float = 0.25
    longest: int = 8
    chunks: bool = False


@dataclass
class Schedule:
    """The schedule of one NPU step: what stays in ACT, and which layers run together.

    Attributes:
        stays: without tensors between the layers of a group.
        units: groups of layers in order, every layer in one of them.
        tiles: tilings of layers (by number) where they are not those that the layer's plans prefer.
    """

    stays: list[Stay]
    units: list[LayerGroup]
    tiles: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stays = outside_groups(self.stays, self.units)

    @staticmethod
    def plain(layers: list[Layer]) -> Schedule:
        """Every layer alone, nothing stays in ACT."""
        return Schedule([], [LayerGroup((layer,)) for layer in layers])

    def use_tiles(self, context: Context, layers: list[Layer]) -> None:
        """Makes the emission of these layers use the schedule's tiles."""
        context.tiles |= {id(layers[number]): tile for number, tile in self.tiles.items()}


class Budget:
    """A cost function, for as many instructions as may be measured: for longer steps it would take too long.

    Attributes:
        left: instructions that may still be measured, below 0 if the last image had more.
    """

    def __init__(self, measure: Measure, instructions: int, progress: Callable[[float], None]) -> None:
        self.measure, self.instructions, self.progress = measure, instructions, progress
        self.left = instructions

    def __call__(self, config: NpuConfig, image: bytes, arena_bytes: int) -> float:
        self.left -= len(image) // INSTRUCTION_BYTES
        self.progress(1 - max(0, self.left) / self.instructions)
        return self.measure(config, image, arena_bytes)


#: Gives the schedule of a step, or None: (configuration, layers, buffers read after the step).
Scheduler = Callable[[NpuConfig, list[Layer], set[str]], Schedule | None]


def policies(effort: int) -> list[Policy]:
    """The policies an effort tries; the first is the default."""
    if effort <= 0:
        return [Policy(longest=1)]
    found = [Policy(), Policy(share=0.8), Policy(chunks=True)]
    if effort >= 2:
        found += [Policy(share, drain) for share in (0.35, 0.6, 0.8) for drain in (0.0, 0.25, 1.0)]
        found.append(Policy(longest=1))
    if effort >= 3:
        grid = itertools.product((0.2, 0.45, 0.7, 0.9), (0.0, 0.12, 0.5), (3, 5, 8))
        found += [Policy(*values) for values in grid]
    return list(dict.fromkeys(found))


def misfits(config: NpuConfig, layers: list[Layer]) -> dict[str, str]:
    """Layers that no tiling fits even with all of ACT to themselves: their source, and why."""
    context = dry_context(config, TilePlans())
    found = {}
    for layer in layers:
        if not layer.fits(context, config.act_rows):
            found[layer.source] = f"does not fit the scratchpads of {config.name!r}: {layer.name}: no tile fits"
    return found


def make_schedule(
    config: NpuConfig, layers: list[Layer], outside: set[str], policy: Policy, plans: TilePlans
) -> Schedule:
    """Residency and fusion under a policy; under ones with fewer residents and no fusion where that does not fit."""
    for tried in (policy, replace(policy, share=policy.share / 2), Policy(policy.share / 2, longest=1)):
        stays = choose_residents(config, layers, outside, tried.share)
        context = dry_context(config, plans)
        units, cost = choose_groups(context, layers, stays, outside, tried.drain, tried.longest, tried.chunks)
        if cost == math.inf:
            continue
        if cost is None:  # nobody has looked at the layers yet
            try:
                emit_step(dry_context(config, plans), units, stays)
            except TilewrightError:
                continue
        return Schedule(stays, units)
    return Schedule.plain(layers)


def work_of(config: NpuConfig, layers: list[Layer], schedule: Schedule, plans: TilePlans) -> tuple[int, int]:
    """Cycles in which the busier of GEMM and VECTOR works, and the busier of LOAD and STORE."""
    context = dry_context(config, plans)
    schedule.use_tiles(context, layers)
    emit_step(context, schedule.units, schedule.stays)
    work = context.emitter.work
    return max(work[Engine.GEMM], work[Engine.VECTOR]), max(work[Engine.LOAD], work[Engine.STORE])


def dry_context(config: NpuConfig, plans: TilePlans) -> Context:
    """A context that only counts."""
    emitter = Emitter(config, 0, dry=True, memory=plans.memory)
    return Context(config, emitter, ConstantPool(), defaultdict(int), plans=plans)


def measure_policy(
    config: NpuConfig, layers: list[Layer], outside: set[str], policy: Policy, measure: Measure, memory: MemoryTiming
) -> float:
    """Cost of a step under a policy, infinite if it does not fit."""
    plans = TilePlans(memory)
    try:
        schedule = make_schedule(config, layers, outside, policy, plans)
    except (ScratchpadFull, TilewrightError):
        return math.inf
    return measure_schedule(config, layers, schedule, measure, plans)


def measure_schedule(
    config: NpuConfig,
    layers: list[Layer],
    schedule: Schedule,
    measure: Measure,
    plans: TilePlans,
    units: tuple[int, int] | None = None,
) -> float:
    """Cost of a step, or of its units first..end-1 alone, by a schedule; infinite if it does not fit."""
    first, end = units or (0, len(schedule.units))
    start = sum(len(unit.layers) for unit in schedule.units[:first])
    return measure_units(config, layers, schedule, schedule.units[first:end], start, measure, plans)


def measure_units(
    config: NpuConfig,
    layers: list[Layer],
    schedule: Schedule,
    units: list[LayerGroup],
    start: int,
    measure: Measure,
    plans: TilePlans,
) -> float:
    """Cost of units that run from layer `start` on, with the stays and tiles of a schedule; infinite if they do not
    fit, or if the machine stops their program: that is a fault of the compiler, but others may be right."""
    offsets, at = {}, 0
    for view in (v for layer in layers for v in (*layer.reads, layer.output)):
        if view.region == CONSTANT_REGION:
            offsets[view.buffer] = 0  # where all constants are, for the clock
        elif view.buffer not in offsets:
            offsets[view.buffer] = at
            at += -(-max(view.nbytes, view.n * view.sn, 1) // 256) * 256
    for name in (n for layer in layers for n in layer.extra_reads if n not in offsets):
        offsets[name] = at
        at += _BEYOND
    at += _BEYOND
    emitter = Emitter(config, at, memory=plans.memory)
    context = Context(config, emitter, ConstantPool(), offsets, plans=plans, timing_only=True)
    schedule.use_tiles(context, layers)
    try:
        emit_step(context, units, schedule.stays, start)
    except (ScratchpadFull, TilewrightError):
        return math.inf
    try:
        return measure(config, to_bytes(emitter.image), at)
    except DeviceError as error:
        warnings.warn(
            f"a schedule of {len(units)} units from layer {start} on is left out, please report it: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return math.inf


def search(
    config: NpuConfig,
    layers: list[Layer],
    outside: set[str],
    effort: int,
    measure: Measure | None,
    plans: TilePlans,
    progress: Callable[[float], None] = lambda done: None,
) -> tuple[Schedule, float | None]:
    """The best schedule of a step that `effort` finds, and its cost if that was measured here.

    Args:
        outside: buffers read after the step.
        measure: cost function; without one the default policy is taken.
        progress: called with the fraction done.
    """
    options = policies(effort)
    if len(options) == 1 or measure is None:
        return make_schedule(config, layers, outside, options[0], plans), None
    if len(options) <= _FEW:
        found = [make_schedule(config, layers, outside, policy, plans) for policy in options]
        if all(schedule == found[0] for schedule in found[1:]):
            return found[0], None
        measured = [measure_schedule(config, layers, schedule, measure, plans) for schedule in found]
        looks = [cycles / (_CHUNKS if policy.chunks else 1) for policy, cycles in zip(options, measured, strict=True)]
        chosen = looks.index(min(looks))
        return found[chosen], measured[chosen]
    workers = min(processors(), len(options))
    shares = [options[i::workers] for i in range(workers)]
    report = lambda count: progress(count / len(shares))
    costs = _in_processes(config, layers, outside, shares, measure, plans.memory, report)
    best = min(options, key=lambda policy: costs[policy])
    return make_schedule(config, layers, outside, best, plans), costs[best]


def _in_processes(
    config: NpuConfig,
    layers: list[Layer],
    outside: set[str],
    shares: list[list[Policy]],
    measure: Measure,
    memory: MemoryTiming,
    done: Callable[[int], None],
) -> dict[Policy, float]:
    """Measures policies, each share in a process of its own (here if one cannot be started)."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    arguments = [sys.executable, "-m", "tilewright.compiler.npu.schedule.worker"]
    jobs = [
        Command(arguments, pickle.dumps((config, layers, outside, share, measure, memory)), environment)
        for share in shares
    ]
    costs: dict[Policy, float] = {}
    try:
        outcomes: list[Outcome | None] = [*run_all(jobs, len(jobs), done)]
    except OSError:
        outcomes = [None] * len(shares)
    for share, outcome in zip(shares, outcomes):
        if outcome is not None and outcome.status == 0:
            found, said = pickle.loads(outcome.output)
            costs |= found
            for text in said:
                warnings.warn(text, RuntimeWarning, stacklevel=2)
        else:
            costs |= {policy: measure_policy(config, layers, outside, policy, measure, memory) for policy in share}
    return costs
