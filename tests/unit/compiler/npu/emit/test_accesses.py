"""Accesses of instructions: results depend on no row outside the reads, and no row outside the writes changes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from tests.common.machine_harness import DATA_BYTES, Bench
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.tile_program import Place, PostFields
from tilewright.isa import numerics
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import from_bytes
from tilewright.isa.instructions import Memory, RowFunction, Source, WideByte
from tilewright.isa.program import ARENA_REGION
from verification.programs.accesses import Access, accesses_of, rows_of
from verification.programs.equality import VARIANTS

#: A machine with the row unit, and results of two bytes.
CONFIG = VARIANTS["one_queue"]
NARROW = VARIANTS["narrow_in"]  # rows of GEMM and of VECTOR differ in width
#: Results that show what they are made of: nothing is clamped that need not be.
_POST = PostFields(zp=3, lo=-128, hi=127, add_lo=-128, add_hi=127, za=5, zb=-7)
_CONSTANTS = {"ma": 3, "mb": 5, "c": 1, "shift": 3}
#: The statistics that ROW finds in STAT before a norm.
_NORM = 1 << 16
Emit = Callable[[Emitter, Random], None]


def arrays(bench: Bench) -> dict[str, np.ndarray]:
    """Returns the contents of each space as a view [rows, ...], by the name of the space."""
    return {name.lower(): array for name, array in bench.pads.arrays().items()} | {"memory": bench.out}


def masks(bench: Bench, accesses: list[Access]) -> dict[str, np.ndarray]:
    """Returns the rows that accesses touch as bool [rows], by the name of the space."""
    found = {name: np.zeros(len(array), bool) for name, array in arrays(bench).items()}
    for access in accesses:
        found[access.space][sorted(rows_of(access))] = True
    return found


def check(config: NpuConfig, emit: Emit, seed: int) -> None:
    """Checks the accesses of what `emit` writes, on two machines whose contents are equal only in those rows."""
    emitter = Emitter(config, DATA_BYTES)
    emit(emitter, Random(seed))
    runs = accesses_of(emitter.machine, emitter.tape)
    emitter.end_step()
    benches = [Bench(config), Bench(config)]
    # The state that one instruction of the row unit leaves for the next, on the same engine.
    maxima = np.random.default_rng(2).integers(-128, 128, config.prm_rows)
    for number, bench in enumerate(benches):
        bench.fill(number)
        bench.pads.maxima[:], bench.pads.norms[:] = maxima, _NORM
        bench.data[:] = benches[0].data
        scales = 2.0 ** np.random.default_rng(3 + number).uniform(-12, -4, bench.pads.prm.shape[:2])
        scales[: config.prm_rows // 2] *= 2.0**-17  # ACC has sums of 32 bits, beyond those of bytes
        bench.pads.prm[..., 1] = numerics.scale_bits(scales)
    one, other = map(arrays, benches)
    reads = masks(benches[0], [access for found, _ in runs for access in found])
    writes = masks(benches[0], [access for _, found in runs for access in found])
    for name, rows in one.items():
        used = reads[name] | writes[name]
        other[name][used] = rows[used]
    before = [{name: rows.copy() for name, rows in each.items()} for each in (one, other)]
    for bench in benches:
        bench.run(from_bytes(bytes(emitter.image)), end=False)
    for name, rows in one.items():
        np.testing.assert_array_equal(rows[writes[name]], other[name][writes[name]], f"{name} depends on other rows")
        for now, then in zip((one, other), before, strict=True):
            np.testing.assert_array_equal(now[name][~writes[name]], then[name][~writes[name]], f"other rows of {name}")
    pads = benches[0].pads
    left = (pads.maxima != maxima).any() or (pads.norms != _NORM).any()
    assert left or any((one[name] != before[0][name]).any() for name in one)


def gemm(emitter: Emitter, random: Random) -> None:
    count = lambda: random.randint(1, 3)
    reduce = [(count(), random.randint(0, 9), random.randint(0, 5), 0) for _ in range(2)]
    outer = [(count(), random.randint(0, 9), random.randint(0, 5), random.randint(1, 7)) for _ in range(2)]
    emitter.gemm(5, 3, 4, reduce, outer, accumulate=random.random() < 0.5)


def depthwise(emitter: Emitter, random: Random) -> None:
    pushes = [(random.randint(3, 5), random.randint(0, 5), 0, 0), (random.randint(1, 3), random.randint(1, 9), 0, 2)]
    outer = [(2, random.randint(1, 20), random.randint(0, 3), random.randint(8, 12))]
    emitter.depthwise(
        5, 3, 4, [(pushes[0][0], pushes[0][1], 0, 1), pushes[1], *outer], start=(2, 0), step=(1, 1), lanes_slice=0,
        delay=0, accumulate=False,
    )  # fmt: skip


def vector(emitter: Emitter, random: Random) -> None:
    source, draw = random.choice([Source.ACC, Source.ACT, Source.MUL, Source.MAX, Source.SUM]), random.randint
    reduce = [(2, draw(1, 5), 0, 0, 0)] if source in (Source.MAX, Source.SUM) else []
    loops = [(draw(1, 3), draw(0, 9), draw(0, 9), draw(1, 9), draw(0, 2)) for _ in range(2)]
    first = 1 if source == Source.ACC else emitter.config.prm_rows // 2
    emitter.vector(
        source, 2, 100, loops, b=50, prm=first, reduce=reduce, add=random.random() < 0.5 and source != Source.MUL,
        lut=random.choice((None, 1)), post=_POST, constants=_CONSTANTS,
    )  # fmt: skip


def wide(emitter: Emitter, random: Random) -> None:
    draw = random.randint
    loops = [(draw(1, 3), draw(0, 5), 0, draw(1, 9), draw(0, 2)) for _ in range(2)]
    emitter.vector_wide(
        random.choice([*WideByte]), 2, 100, loops, prm=1, reduce=[(2, draw(1, 9), 0, 0, 0)], low=-3000, high=3000
    )


def row(function: RowFunction) -> Emit:
    def emit(emitter: Emitter, random: Random) -> None:
        draw = random.randint
        table = None if function == RowFunction.MAXIMUM else 0
        loops = [(draw(2, 3), draw(1, 9), 0, draw(1, 9), draw(1, 2))]
        reduce = [] if function in (RowFunction.EXP, RowFunction.NORM) else [(draw(1, 3), draw(1, 9), 0, 0, 0)]
        emitter.row(function, 2, loops, prm=1, table=table, dst=100, reduce=reduce, post=_POST, constants=_CONSTANTS)

    return emit


def load(emitter: Emitter, random: Random) -> None:
    draw, target = random.randint, random.choice((Memory.ACT, Memory.ACT, Memory.WGT, Memory.PRM))
    bytes_ = target.row_bytes(emitter.config)
    y, z = (draw(1, 3), draw(4, 6), draw(4, 6) * bytes_), (draw(1, 2), draw(20, 30), draw(20, 25) * bytes_)
    pad = (draw(0, 1), draw(0, 1), draw(0, 1), draw(0, 1)) if target == Memory.ACT else (0, 0, 0, 0)
    emitter.load(Place(ARENA_REGION, 64), target, 3, draw(1, 4), y=y, z=z, pad=pad, fill=draw(-128, 127))


def store(emitter: Emitter, random: Random) -> None:
    draw, bytes_ = random.randint, emitter.config.block_in
    y, z = (draw(1, 3), draw(0, 6), draw(4, 6) * bytes_), (draw(1, 2), draw(0, 30), draw(20, 25) * bytes_)
    emitter.store(Place(ARENA_REGION, 64), 3, draw(1, 4), y=y, z=z)


def fill(emitter: Emitter, random: Random) -> None:
    emitter.fill(3, [(random.randint(1, 3), 9), (random.randint(1, 3), 40)], random.randint(1, 9), 77)


@pytest.mark.medium
@pytest.mark.parametrize("config", [CONFIG, NARROW], ids=lambda config: config.name)
@pytest.mark.parametrize("emit", [gemm, depthwise, vector, wide, load, store, fill], ids=lambda emit: emit.__name__)
def test_instructions_touch_what_they_say(emit: Emit, config: NpuConfig) -> None:
    for seed in range(16):
        check(config, emit, seed)


@pytest.mark.parametrize("function", [*RowFunction], ids=lambda function: function.name)
def test_functions_of_rows_touch_what_they_say(function: RowFunction) -> None:
    for seed in range(8):
        check(CONFIG, row(function), seed)
