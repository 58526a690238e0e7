"""Every error code and every diagnosis, the same on both paths."""

import re

import numpy as np
import pytest

from tests.common.machine_harness import DATA_BYTES, PROGRAM_BYTES, Bench
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.device import DeviceError, Region
from tilewright.isa.encoding import Op, op
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import Engine, Memory, Source
from tilewright.isa.timing import MemoryTiming
from tilewright.simulator import native
from tilewright.simulator.cycle import CycleDevice, simulate

TINY = preset("tiny")
WIDE = TINY.with_(name="8x4", block_in=8)
#: The highest row address there is.
LAST_ADDRESS = 2**TINY.address_bits - 1
NO_UNITS = TINY.with_(name="no_units", depthwise=0, lut_tables=0)
ONE_QUEUE = TINY.with_(name="one_queue", vector_queue=0)


@pytest.fixture(params=["reference", "fast"])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fails(path: str, *ops: Op, config: NpuConfig = TINY, end: bool = True, timeout: int = 0) -> DeviceError:
    return Bench(config, path).fails(ops, end, timeout=timeout)


def where(error: DeviceError) -> tuple[ErrorCode, Engine, int | None, int]:
    return error.code, error.engine, error.pc, error.address


def test_illegal_opcode(path: str) -> None:
    with pytest.raises(DeviceError, match="ILLEGAL_OPCODE: FETCH at instruction 1: unknown opcode 0x77") as info:
        Bench(TINY, path).words([op("GEMM").encode(), 0x77])
    assert where(info.value) == (ErrorCode.ILLEGAL_OPCODE, Engine.FETCH, 1, 0)


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (op("GEMM_LOOP", level=6, count=1), "level must be 0..5, not 6"),
        (op("GEMM_LOOP", count=0), "count must be 1..65535, not 0"),
        (op("GEMM", reduce=7), "reduce must be 0..6, not 7"),
        (op("GEMM", wait0=13), "wait0 must be 0..12, not 13"),
        (op("GEMM", wait0=4, wait1=4), "wait0 and wait1 must differ, both are 4"),
        (op("GEMM", signal0=4, signal1=4), "signal0 and signal1 must differ, both are 4"),
        (op("GEMM_LOOP", count=1, signal1=1), "takes no semaphores"),
        (op("END", wait0=1), "takes no semaphores"),
        (op("DEPTHWISE", step1=1), "step0 must be 1..15, not 0"),
        (op("DEPTHWISE", step0=1), "step1 must be 1..15, not 0"),
        (op("DEPTHWISE", step0=1, step1=1, slice=1), "slice must be 0..0, not 1"),
        (op("VECTOR", source=5), "source must be 0..4, not 5"),
        (op("VECTOR", rounding=3), "rounding must be 0..2, not 3"),
        (op("VECTOR", reduce=7), "reduce must be 0..6, not 7"),
        (op("VECTOR_LOOP", level=7, count=1), "level must be 0..5, not 7"),
        (op("VECTOR_LOOP"), "count must be 1..65535, not 0"),
        (op("VECTOR_POST", table=4), "table must be 0..3, not 4"),
        (op("STORE"), "count must be 1..65535, not 0"),
        (op("STORE_DIM"), "count must be 1..65535, not 0"),
    ],
)
def test_illegal_operand(path: str, operation: Op, text: str) -> None:
    error = fails(path, op("GEMM_SYNC"), operation)
    assert where(error) == (ErrorCode.ILLEGAL_OPERAND, Engine.FETCH, 1, 0)
    assert text in str(error) and f"instruction 1 `{operation.name}" in str(error)


@pytest.mark.parametrize(
    ("operation", "code", "engine", "text"),
    [
        (op("DEPTHWISE", step0=1, step1=1), ErrorCode.ILLEGAL_OPCODE, Engine.FETCH, "depthwise is 0"),
        (op("DEPTHWISE"), ErrorCode.ILLEGAL_OPCODE, Engine.FETCH, "depthwise is 0"),
        (op("VECTOR", lut=1), ErrorCode.ILLEGAL_OPERAND, Engine.FETCH, "lut must be 0..0, not 1"),
        (op("VECTOR_POST", table=1), ErrorCode.ILLEGAL_OPERAND, Engine.FETCH, "table must be 0..0, not 1"),
        (op("LOAD", target=Memory.LUT, count=1), ErrorCode.SCRATCHPAD_RANGE, Engine.LOAD, "LUT row 0 must be below 0"),
    ],
)
def test_units_the_machine_lacks(path: str, operation: Op, code: ErrorCode, engine: Engine, text: str) -> None:
    error = fails(path, op("VECTOR_POST"), operation, config=NO_UNITS)
    assert where(error)[:3] == (code, engine, 1)
    assert text in str(error)


@pytest.mark.parametrize("dims", [[op("LOAD_DIM", level=0)], [op("LOAD_DIM", level=1)], []])
def test_empty_box(path: str, dims: list[Op]) -> None:
    error = fails(path, *dims, op("LOAD", count=1 if dims else 0))
    assert where(error) == (ErrorCode.ILLEGAL_OPERAND, Engine.LOAD, len(dims), 0)
    assert "the box has no rows" in str(error)


@pytest.mark.parametrize(
    ("ops", "memory", "address"),
    [
        ([op("LOAD", region=1, row=4095, count=2)], "ACT", 4096),
        ([op("LOAD", region=1, target=Memory.WGT, row=1024, count=1)], "WGT", 1024),
        ([op("LOAD", region=1, target=Memory.PRM, row=63, count=2)], "PRM", 64),
        ([op("LOAD", region=1, target=Memory.LUT, row=4, count=1)], "LUT", 4),
        ([op("LOAD_PAD", right=3), op("LOAD", region=1, row=4093, count=1)], "ACT", 4096),
        ([op("LOAD_DIM", level=1, count=2, row_stride=-1), op("LOAD", region=1, count=1)], "ACT", LAST_ADDRESS),
        ([op("GEMM", act=4096)], "ACT", 4096),
        ([op("GEMM", wgt=1024)], "WGT", 1024),
        ([op("GEMM", acc=512)], "ACC", 512),
        ([op("GEMM_LOOP", level=5, count=9, acc_stride=100), op("GEMM", reduce=5)], "ACC", 600),
        ([op("GEMM_LOOP", level=5, count=9, wgt_stride=-1), op("GEMM", wgt=1, reduce=6)], "WGT", LAST_ADDRESS),
        ([op("GEMM", act=4096, wgt=1024, acc=512)], "ACT", 4096),
        ([op("DEPTHWISE", act=4096, step0=1, step1=1)], "ACT", 4096),
        ([op("DEPTHWISE", wgt=1024, acc=512, step0=1, step1=1)], "WGT", 1024),
        ([op("DEPTHWISE", acc=512, step0=1, step1=1)], "ACC", 512),
        ([op("VECTOR", a=512)], "ACC", 512),
        ([op("VECTOR", prm=64)], "PRM", 64),
        ([op("VECTOR", dst=4096)], "ACT", 4096),
        ([op("VECTOR", source=Source.ACT, a=4097)], "ACT", 4097),
        ([op("VECTOR", source=Source.ACT, b=4098, add=1)], "ACT", 4098),
        ([op("VECTOR", source=Source.MUL, b=4098, prm=100)], "ACT", 4098),
        ([op("STORE", region=2, row=4095, count=3)], "ACT", 4096),
    ],
)
def test_scratchpad_range(path: str, ops: list[Op], memory: str, address: int) -> None:
    error = fails(path, *ops)
    assert where(error) == (ErrorCode.SCRATCHPAD_RANGE, ops[-1].instruction.engine, len(ops) - 1, address)
    assert f"{memory} row {address} must be below" in str(error)


def test_rows_that_are_not_used_are_not_checked(path: str) -> None:
    b = Bench(TINY, path)
    b.run(
        [
            op("VECTOR", source=Source.ACT, b=200000, prm=4000),
            op("VECTOR", source=Source.MAX, b=200000, prm=4000),
            op("DEPTHWISE", wgt=200000, acc=200000, start0=5, step0=1, step1=1),
        ]
    )


def test_acc_limits_depend_on_the_view(path: str) -> None:
    assert fails(path, op("VECTOR", a=256), config=WIDE).address == 256
    assert fails(path, op("GEMM", acc=512), config=WIDE).address == 512
    tall = TINY.with_(name="4x8", block_out=8)
    assert fails(path, op("DEPTHWISE", acc=1024, step0=1, step1=1), config=tall).address == 1024
    assert fails(path, op("VECTOR", a=1024), config=tall).address == 1024


def test_window(path: str) -> None:
    data = PROGRAM_BYTES + 64
    cases = [
        ([op("LOAD", region=1, offset=DATA_BYTES - 3, count=1)], data + DATA_BYTES - 3),
        ([op("LOAD_DIM", level=0, count=2, mem_stride=-4), op("LOAD", region=1, count=1)], data + 2**32 - 4),
        ([op("STORE", region=1, count=1)], data),
        ([op("STORE", region=2, offset=DATA_BYTES - 3, count=1)], data + 2 * DATA_BYTES - 3),
        ([op("LOAD", region=6, offset=8, count=1)], 8),
    ]
    for ops, address in cases:
        error = fails(path, *ops)
        assert where(error) == (ErrorCode.WINDOW, ops[-1].instruction.engine, len(ops) - 1, address)
    assert "of region 1, which has 0x4000 bytes with read" in str(fails(path, op("STORE", region=1, count=1)))
    # Nothing is stored where the run does not fit as a whole.
    b = Bench(TINY, path)
    b.fill()
    before = b.out.copy()
    b.fails([op("STORE", region=2, offset=DATA_BYTES - 4 * 10 + 1, count=10)])
    assert (b.out == before).all()


def test_window_of_the_program(path: str) -> None:
    b = Bench(TINY, path)
    with pytest.raises(DeviceError, match="WINDOW: FETCH at instruction 0") as info:
        b.device.run(b.regions, 0, PROGRAM_BYTES - 16, 2)
    assert where(info.value) == (ErrorCode.WINDOW, Engine.FETCH, 0, 64 + PROGRAM_BYTES - 16)


def test_bus_errors(path: str) -> None:
    b = Bench(TINY, path)
    far = Region(1 << 30, 4096, read=True, write=True)
    b.regions.append(far)
    assert where(b.fails([op("LOAD", region=3, offset=4, count=1)])) == (
        ErrorCode.BUS_READ, Engine.LOAD, 0, far.base + 4,
    )  # fmt: skip
    assert b.fails([op("STORE", region=3, count=1)]).code == ErrorCode.BUS_WRITE
    with pytest.raises(DeviceError) as info:
        b.device.run(b.regions, 3, 0, 1)
    assert info.value.code == ErrorCode.BUS_READ and info.value.engine == Engine.FETCH


def test_semaphore_overflow(path: str) -> None:
    error = fails(path, *[op("LOAD_SYNC", signal0=9)] * 256)
    assert where(error) == (ErrorCode.SEMAPHORE_OVERFLOW, Engine.LOAD, 255, 9)
    Bench(TINY, path).run([op("LOAD_SYNC", signal0=9)] * 255)


def test_no_end(path: str) -> None:
    error = fails(path, op("GEMM"), end=False)
    assert where(error) == (ErrorCode.NO_END, Engine.FETCH, 1, 0)
    assert fails(path, end=False).code == ErrorCode.NO_END


def test_end_stops_fetching(path: str) -> None:
    b = Bench(TINY, path)
    counters = b.words([op("GEMM").encode(), op("END").encode(), 0xFF])
    assert counters.instructions == 2


def test_timeout(path: str) -> None:
    ops = [op("GEMM_LOOP", count=100), op("GEMM"), op("GEMM")]
    assert where(fails(path, *ops, timeout=199)) == (ErrorCode.TIMEOUT, Engine.GEMM, 2, 0)
    Bench(TINY, path).run(ops, timeout=200)
    endless = [op("VECTOR_LOOP", level=i, count=65535) for i in range(6)]
    assert where(fails(path, *endless, op("VECTOR"))) == (ErrorCode.TIMEOUT, Engine.VECTOR, 6, 0)


def test_deadlock_names_everyone(path: str) -> None:
    error = fails(path, op("LOAD_SYNC", wait0=1), op("GEMM", wait0=2, wait1=3, acc=5), op("VECTOR_SYNC", signal0=3))
    assert where(error) == (ErrorCode.WATCHDOG, Engine.LOAD, 0, 0)
    assert str(error) == (
        "WATCHDOG: no engine can make progress: LOAD waits for semaphore 1 at instruction 0 `LOAD_SYNC wait0=1`; "
        "GEMM waits for semaphore 2 at instruction 1 `GEMM wait0=2 wait1=3 acc=5`"
    )


def test_deadlock_behind_a_full_queue(path: str) -> None:
    """The signal comes only after more instructions than the queue of GEMM holds."""
    depth = TINY.queue_depth
    waiting = [op("GEMM_SYNC", wait0=1)] + [op("GEMM_SYNC")] * depth
    error = fails(path, *waiting, op("LOAD_SYNC", signal0=1))
    assert where(error) == (ErrorCode.WATCHDOG, Engine.GEMM, 0, 0)
    assert "GEMM waits for semaphore 1 at instruction 0 `GEMM_SYNC wait0=1`" in str(error)
    assert f"FETCH waits for room in the queue of GEMM at instruction {depth} `GEMM_SYNC`" in str(error)
    Bench(TINY, path).run([*waiting[:depth], op("LOAD_SYNC", signal0=1), op("GEMM_SYNC")])


def test_deadlock_in_a_queue_of_two_engines(path: str) -> None:
    """VECTOR waits for a GEMM behind it: the end where both are in one queue."""
    ops = [op("VECTOR_SYNC", wait0=1), op("GEMM_SYNC", signal0=1)]
    Bench(TINY, path).run(ops)
    error = fails(path, *ops, config=ONE_QUEUE)
    assert where(error) == (ErrorCode.WATCHDOG, Engine.VECTOR, 0, 0)
    assert str(error) == (
        "WATCHDOG: no engine can make progress: VECTOR waits for semaphore 1 at instruction 0 `VECTOR_SYNC wait0=1`"
    )
    depth = ONE_QUEUE.queue_depth
    error = fails(path, *ops[:1], *[op("GEMM_SYNC")] * (depth - 1), op("VECTOR_SYNC"), config=ONE_QUEUE)
    assert f"FETCH waits for room in the queue of GEMM at instruction {depth} `VECTOR_SYNC`" in str(error)
    Bench(ONE_QUEUE, path).run([*reversed(ops), *[op("GEMM_SYNC"), op("VECTOR_SYNC")] * depth])


def test_registers_that_cannot_hold_the_values(path: str) -> None:
    b = Bench(TINY, path)
    for regions, offset in (
        ([Region(2, 64, read=True)], 0),
        ([Region(0, 1 << 32, read=True)], 0),
        ([Region(0, 64, read=True)], 8),
        ([Region()] * 9, 0),
    ):
        with pytest.raises(DeviceError) as info:
            b.device.run(regions, 0, offset, 1)
        assert info.value.code == ErrorCode.ILLEGAL_OPERAND
    with pytest.raises(ValueError, match="program_region must be below the 3 regions given, not 3"):
        b.device.run(b.regions, 3, 0, 1)


def test_a_run_after_an_error_starts_from_reset(path: str) -> None:
    b = Bench(TINY, path)
    b.fails([op("LOAD_SYNC", signal0=1), op("GEMM_LOOP", count=5), op("GEMM", act=5000)])
    assert b.run([op("GEMM")]).macs == 16
    assert b.fails([op("GEMM_SYNC", wait0=1)]).code == ErrorCode.WATCHDOG


HUGE = 1 << 60


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, HUGE), (0, 1 << 32), (1 << 32, 1), (HUGE, 1), (0, -1), (-16, 1), (0, 1 << 64), (1 << 64, 1 << 60)],
)
def test_a_program_beyond_the_registers(path: str, offset: int, length: int) -> None:
    b = Bench(TINY, path)
    for device in (b.device, CycleDevice(TINY)):
        with pytest.raises(DeviceError) as info:
            device.run(b.regions, 0, offset, length)
        assert info.value.code == ErrorCode.ILLEGAL_OPERAND


@pytest.mark.parametrize(("offset", "length"), [(0, (1 << 32) - 1), ((1 << 32) - 16, 1), ((1 << 32) - 16, 1 << 31)])
def test_a_program_beyond_its_region(path: str, offset: int, length: int) -> None:
    b = Bench(TINY, path)
    cycle = CycleDevice(TINY)
    cycle.allocate(4 * DATA_BYTES)
    for device, options in ((b.device, {}), (cycle, {}), (cycle, {"trace": True})):
        with pytest.raises(DeviceError) as info:
            device.run(b.regions, 0, offset, length, **options)
        assert info.value.code == ErrorCode.WINDOW


@pytest.mark.parametrize("base", [(1 << 64) - 64, (1 << 64) - (1 << 14), 1 << 63, (1 << 32) - 64])
def test_a_region_beyond_the_memory(path: str, base: int) -> None:
    config = TINY.with_(axi_address_bits=64)
    b = Bench(config, path)
    for device in (b.device, CycleDevice(config)):
        with pytest.raises(DeviceError) as info:
            device.run([Region(base, 64, read=True)], 0, 0, 4)
        assert info.value.code == ErrorCode.BUS_READ
        with pytest.raises(DeviceError) as info:
            device.run([Region(base, (1 << 32) - 1, read=True)], 0, 1 << 20, 4)
        assert info.value.code == (ErrorCode.BUS_READ if base <= 1 << 63 else ErrorCode.ILLEGAL_OPERAND)


@pytest.mark.parametrize("bits", [20, 23, 32])
def test_what_a_bus_of_few_address_bits_cannot_say(path: str, bits: int) -> None:
    config = TINY.with_(axi_address_bits=bits)
    for device in (Bench(config, path).device, CycleDevice(config)):
        for region, offset, message in (
            (Region(0, 1 << bits, read=True), 0, f"size below 2**{bits}"),
            (Region((1 << bits) - 64, 128, read=True), 0, f"must end below 2**{bits}"),
            (Region(0, 64, read=True), 1 << bits, f"a multiple of 16 below 2**{bits}, not {1 << bits}"),
        ):
            with pytest.raises(DeviceError, match=re.escape(message)) as info:
                device.run([region], 0, offset, 4)
            assert info.value.code == ErrorCode.ILLEGAL_OPERAND


def test_offsets_are_as_wide_as_addresses(path: str) -> None:
    """Addresses below 0, or above the last address, wrap to offsets in the region."""
    config = TINY.with_(axi_address_bits=20)
    rows, offsets = 3, (40 + (1 << 20), 40 - (1 << 24) & 0xFFFFFFFF, 40 + (7 << 20))
    for offset in offsets:
        b = Bench(config, path)
        b.data[:] = np.arange(b.data.size, dtype=np.uint8)
        ops = [
            op("LOAD_DIM", level=0, count=rows, row_stride=1, mem_stride=(3 << 20) + 8),
            op("LOAD", region=1, target=Memory.ACT, offset=offset, count=1, signal0=1),
            op("STORE", region=2, row=0, count=rows, offset=(1 << 31) + 4, wait0=1),
        ]
        b.run(ops)
        expected = np.concatenate([b.data[40 + 8 * n :][: config.block_in] for n in range(rows)])
        assert np.array_equal(b.out[4:][: expected.size], expected)


@pytest.mark.parametrize("name", ["watchdog", "timeout"])
def test_limits_of_time_beyond_64_bits(path: str, name: str) -> None:
    b = Bench(TINY, path)
    for device in (b.device, CycleDevice(TINY)):
        with pytest.raises(DeviceError, match=f"{name} must be below"):
            device.run(b.regions, 0, 0, 1, **{name: 1 << 64})


def test_the_native_code_refuses_what_its_caller_let_through() -> None:
    b = Bench(TINY, "fast")
    for program in ((0, 0, HUGE), (0, HUGE, 1), (0, (1 << 32), 1), (8, 0, 1)):
        with pytest.raises(DeviceError) as info:
            native.run(TINY, b.pads, b.device.memory.data, b.regions, program, 100)
        assert info.value.code == ErrorCode.ILLEGAL_OPERAND
        clock = simulate(TINY, MemoryTiming(), b.device.memory.data, b.regions, program)
        assert clock.error is not None and clock.error.code == ErrorCode.ILLEGAL_OPERAND
