"""Emission of loop nests: nests with too many levels are split, and work is counted without emission."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.tile_program import Place
from tilewright.isa.assembler import disassemble
from tilewright.isa.config import PRESETS
from tilewright.isa.device import Region
from tilewright.isa.encoding import Op, from_bytes
from tilewright.isa.instructions import ROW_WRITES, Memory, RowFunction, Source, WideByte
from tilewright.simulator.cycle import CycleDevice
from verification.programs.equality import VARIANTS, of_trace


def image(emitter: Emitter) -> list[Op]:
    """Returns the decoded instructions of an emitter."""
    return from_bytes(bytes(emitter.image))


def test_nest_with_too_many_levels_is_split() -> None:
    emitter = Emitter(PRESETS["tiny"].with_(gemm_loops=5), 0)
    outer = [(2, 3 * 10**i, 0, 2**i) for i in range(4)]
    emitter.gemm(0, 0, 0, [(2, 10, 1, 0)], [*outer, (2, 7, 0, 100)])
    emitter.end_step()
    runs = [line for line in disassemble(image(emitter)).splitlines() if "LOOP" not in line]
    assert runs == ["GEMM reduce=1", "GEMM act=7 acc=100 reduce=1", "END"]


def test_products_that_do_not_fit_one_nest_accumulate() -> None:
    emitter = Emitter(PRESETS["tiny"].with_(gemm_loops=5), 0)
    inner = [(2, 4 * 3**i, 2**i, 0) for i in range(5)]
    emitter.gemm(0, 0, 0, [*inner, (2, 7, 100, 0)], [])
    emitter.end_step()
    runs = [line for line in disassemble(image(emitter)).splitlines() if "LOOP" not in line]
    assert runs == ["GEMM reduce=5", "GEMM act=7 wgt=100 reduce=5 accumulate=1", "END"]


def test_bytes_of_transfers_are_counted() -> None:
    """Every row of a run, at each index of both levels, whatever their strides; rows that are filled are not read."""
    config = PRESETS["tiny"]
    emitter = Emitter(config, 0)
    emitter.load(Place(0, 0), Memory.ACT, 0, 3, y=(4, 6, 256), z=(2, 30, 4096), pad=(1, 1, 0, 0))
    assert (emitter.read_bytes, emitter.write_bytes) == (3 * 4 * 2 * config.block_in, 0)
    emitter.store(Place(0, 0), 0, 3, y=(5, 7, 512), z=(2, 40, 8192))
    assert emitter.write_bytes == 3 * 5 * 2 * config.block_in


def test_values_that_no_field_holds_are_named() -> None:
    emitter = Emitter(PRESETS["tiny"], 0)
    emitter.gemm(1 << 20, 0, 0, [], [])
    with pytest.raises(ValueError, match="gemm_act cannot be 1048576"):
        emitter.end_step()


def test_vector_nest_with_too_many_levels_is_split() -> None:
    """The outermost level becomes an instruction for each index, with every address advanced by its own stride."""
    emitter = Emitter(PRESETS["tiny"].with_(vector_loops=4, prm_rows=256), 0)
    inner = [(2, 3 * 5**i, 4 * 5**i, 6 * 5**i, 5**i) for i in range(4)]
    emitter.vector(Source.MUL, 100, 300, [*inner, (3, 7, 9, 11, 13)], b=200, prm=1)
    emitter.end_step()
    runs = [o for o in image(emitter) if o.name == "VECTOR"]
    found = [tuple(o[name] for name in ("a", "b", "dst", "prm")) for o in runs]
    assert found == [(100 + 7 * i, 200 + 9 * i, 300 + 11 * i, 1 + 13 * i) for i in range(3)]


def test_depthwise_nest_with_too_many_levels_is_split() -> None:
    emitter = Emitter(PRESETS["tiny"].with_(gemm_loops=5), 0)
    outer = [(2, 3 * 5**i, 4 * 5**i, 6 * 5**i) for i in range(3)]
    pushes = [(3, 1, 0, 0), (2, 3, 0, 1)]
    options = {"start": (2, 0), "step": (1, 1), "lanes_slice": 0, "delay": 0, "accumulate": False}
    emitter.depthwise(100, 200, 300, [*pushes, *outer, (3, 7, 9, 11)], **options)
    emitter.end_step()
    runs = [o for o in image(emitter) if o.name == "DEPTHWISE"]
    found = [tuple(o[name] for name in ("act", "wgt", "acc")) for o in runs]
    assert found == [(100 + 7 * i, 200 + 9 * i, 300 + 11 * i) for i in range(3)]


LONG: dict[str, Callable[[Emitter], None]] = {
    "GEMM": lambda emitter: emitter.gemm(0, 0, 0, [(4, 1, 1, 0)], [(10, 3, 0, 1), (8, 20, 0, 10)]),
    "DEPTHWISE": lambda emitter: emitter.depthwise(
        0, 0, 0, [(10, 1, 0, 1), (9, 10, 0, 10), (3, 2, 1, 90)], start=(2, 2), step=(1, 1), lanes_slice=0, delay=0,
        accumulate=False,
    ),
    "VECTOR": lambda emitter: emitter.vector(Source.ACT, 0, 270, [(20, 2, 0, 1, 0), (12, 30, 0, 20, 0)]),
    "VECTOR_WIDE": lambda emitter: emitter.vector_wide(
        WideByte.HIGH, 0, 0, [(20, 3, 0, 1, 0), (12, 1, 0, 20, 0)], prm=0, reduce=[(2, 1, 0, 0, 0)], low=-9, high=9
    ),
}  # fmt: skip
LONG |= {
    f"ROW {function.name}": lambda emitter, function=function: emitter.row(
        function, 0, [(20, 5, 0, 6, 0)], prm=0, dst=500, reduce=[(4, 1, 0, 0, 0)] if function not in ROW_WRITES else []
    )
    for function in RowFunction
}


@pytest.mark.parametrize(
    ("machine", "name"), [*(("one_queue", name) for name in LONG), ("one_lane", "GEMM"), ("one_lane", "VECTOR")]
)
def test_work_is_what_the_cycle_level_simulator_counts(machine: str, name: str) -> None:
    """Counted work of long instructions is within a tenth of the simulator's cycles, or 30 % for the row unit.

    Rows of the row unit end one after the other. The second machine makes several passes over a vector.
    """
    config = VARIANTS[machine]
    emitter, dry, device = Emitter(config, 0), Emitter(config, 0, dry=True), CycleDevice(config, functional=False)
    for each in (emitter, dry):
        LONG[name](each)
    emitter.end_step()
    base, program = device.allocate(1 << 14), image(emitter)
    device.write(base, bytes(emitter.image))
    device.run([Region(base, 1 << 14, read=True)] * 3, 0, 0, emitter.length, trace=True)
    (at,) = (n for n, o in enumerate(program) if o.name == name.split()[0])
    engine = program[at].instruction.engine
    times = of_trace(device.trace, program)
    cycles = times[engine, "end", at] - times[engine, "start", at]
    assert abs(dry.work[engine] / cycles - 1) < (0.3 if "ROW" in name else 0.1), (dry.work[engine], cycles)
