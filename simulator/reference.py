"""The executable definition of the instruction set: one method per instruction, nothing clever.

Scheduling: every engine takes its instructions in order from a queue of `queue_depth`; FETCH dispatches in order and
waits when the queue it needs is full. Of all instructions that could start, the oldest runs to its end before another
is looked at, and FETCH dispatches the next one only when none can start. So a program whose waits are satisfied in
program order runs in program order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from isa import codes, numerics
from isa.config import SEMAPHORE_LIMIT, WIDE_TABLE, NpuConfig
from isa.device import Region
from isa.encoding import DecodeError, Op, decode
from isa.instructions import (
    BY_NAME,
    INSTRUCTION_BYTES,
    ROW_WRITES,
    Engine,
    ErrorCode,
    Memory,
    RowFunction,
    Source,
    queue_of,
)
from isa.row_bits import EPSILON_FRACTION
from isa.row_norm import RowNorm, normalise, row_norm
from simulator.state import (
    Blocked,
    Explainer,
    ExternalMemory,
    Fault,
    RunCounts,
    Scratchpads,
    bus_beats,
    check_operands,
    read_program_checked,
)

Trace = Callable[[int, Op], None]


@dataclass(frozen=True)
class Loop:
    """One level of a loop nest or box: iterations and strides by field name."""

    count: int
    strides: dict[str, int]

    def __getitem__(self, name: str) -> int:
        return self.strides.get(name, 0)


def walk(loops: Sequence[Loop]) -> Iterator[tuple[int, ...]]:
    """Index tuples of a loop nest, level 0 fastest."""
    if not loops:
        yield ()
        return
    for outer in walk(loops[1:]):
        for i in range(loops[0].count):
            yield (i, *outer)


def offset(loops: Sequence[Loop], index: Sequence[int], stride: str) -> int:
    """Sum of index times stride over the levels."""
    return sum(i * loop[stride] for i, loop in zip(index, loops))


def offsets(loops: Sequence[Loop], stride: str) -> np.ndarray:
    """int64: `offset` for every index of the nest, in the order of `walk`."""
    total = np.zeros(1, np.int64)
    for loop in loops:
        total = (np.arange(loop.count)[:, None] * loop[stride] + total).reshape(-1)
    return total


class ReferenceMachine:
    """One run of one program.

    Args:
        config: the NPU.
        scratchpads: read and written in place.
        memory: external memory through its regions.
        program_region, program_offset, program_length: the program; length in instructions, END included.
        timeout: steps any engine may make, 0 = no limit.
        trace: called with index and instruction after each instruction.
    """

    def __init__(
        self,
        config: NpuConfig,
        scratchpads: Scratchpads,
        memory: ExternalMemory,
        program_region: int,
        program_offset: int,
        program_length: int,
        timeout: int = 0,
        trace: Trace | None = None,
    ) -> None:
        self.config, self.pads, self.memory = config, scratchpads, memory
        self.program = (program_region, program_offset, program_length)
        self.timeout, self.trace = timeout, trace
        self.explain = Explainer(memory, program_region, program_offset, scratchpads)
        self.counts = RunCounts()
        self.semaphores = [0] * (config.semaphores + 1)
        self.queues: dict[Engine, deque[tuple[int, Op]]] = {e: deque() for e in Engine if e != Engine.FETCH}
        self.pc = 0
        self.ended = False
        # Configuration registers at reset.
        self.load_box = [Loop(1, {}), Loop(1, {})]
        self.store_box = [Loop(1, {}), Loop(1, {})]
        self.gemm_loops = [Loop(1, {})] * config.gemm_loops
        self.vector_loops = [Loop(1, {})] * config.vector_loops
        self.pad = Op(BY_NAME["LOAD_PAD"])
        self.add = Op(BY_NAME["VECTOR_ADD"])
        self.post = Op(BY_NAME["VECTOR_POST"])
        self.codes = codes.Decoder(config)

    # Scheduling.

    def run(self) -> RunCounts:
        """Runs to completion. Raises `isa.device.DeviceError`."""
        region, start, length = self.program
        try:
            read_program_checked(self.memory, region, start, length)
        except Fault as fault:
            raise self.explain.error(fault, Engine.FETCH, 0) from None
        while True:
            holder = self._oldest_ready()
            if holder is not None:
                pc, operation = self.queues[holder].popleft()
                self._guarded(operation.instruction.engine, pc, partial(self._start, operation))
                if self.trace:
                    self.trace(pc, operation)
            elif not self.ended and self._guarded(Engine.FETCH, self.pc, self._dispatch):
                continue
            elif self.ended and not any(self.queues.values()):
                break
            else:
                raise self.explain.deadlock(self._blocked(), self.semaphores)
        self.counts.instructions = self.pc
        self.counts.bytes_read += bus_beats(start, INSTRUCTION_BYTES * self.pc, self.config) * self.config.bus_bytes
        return self.counts

    def _guarded(self, engine: Engine, pc: int, action: Callable[[], bool]) -> bool:
        try:
            return action()
        except Fault as fault:
            raise self.explain.error(fault, engine, pc) from None

    def _oldest_ready(self) -> Engine | None:
        heads = {
            queue[0][0]: holder
            for holder, queue in self.queues.items()
            if queue and all(self.semaphores[s] for s in queue[0][1].waits)
        }
        return heads[min(heads)] if heads else None

    def _dispatch(self) -> bool:
        """FETCH: decodes and checks one instruction and hands it to its engine; False if that queue is full."""
        if self.pc == self.program[2]:
            raise Fault(ErrorCode.NO_END)
        try:
            operation = decode(self.explain.word(self.pc))
        except DecodeError as error:
            raise Fault(error.code) from None
        check_operands(operation, self.config)
        if operation.name == "END":
            self.ended = True
        else:
            queue = self.queues[queue_of(operation.instruction.engine, self.config)]
            if len(queue) == self.config.queue_depth:
                return False
            queue.append((self.pc, operation))
        self.pc += 1
        return True

    def _blocked(self) -> Blocked:
        blocked = Blocked({q[0][1].instruction.engine: q[0][0] for q in self.queues.values() if q})
        if not self.ended:
            engine = decode(self.explain.word(self.pc)).instruction.engine
            blocked.fetch = (queue_of(engine, self.config), self.pc)
        return blocked

    def _start(self, operation: Op) -> bool:
        """Takes the semaphores, does the work, gives the semaphores."""
        for s in operation.waits:
            self.semaphores[s] -= 1
        getattr(self, operation.name.lower())(operation)
        for s in operation.signals:
            if self.semaphores[s] == SEMAPHORE_LIMIT:
                raise Fault(ErrorCode.SEMAPHORE_OVERFLOW, s)
            self.semaphores[s] += 1
        return True

    def _spend(self, engine: Engine, steps: int) -> None:
        """Counts steps (a lower bound of cycles) before they are made."""
        self.counts.engine_steps[engine] += steps
        if self.timeout and self.counts.engine_steps[engine] > self.timeout:
            raise Fault(ErrorCode.TIMEOUT)

    # Addresses.

    def _row(self, memory: str, address: int, rows: int) -> int:
        """A row address, wrapped around, and checked against the rows of the memory (as this engine sees it)."""
        row = address % (1 << self.config.address_bits)
        if row >= rows:
            raise Fault(ErrorCode.SCRATCHPAD_RANGE, row, memory)
        return row

    def _act_row(self, address: int) -> int:
        return self._row("ACT", address, self.config.act_rows)

    # LOAD.

    def load_dim(self, op: Op) -> None:
        self.load_box[op["level"]] = _loop(op)

    def load_pad(self, op: Op) -> None:
        self.pad = op

    def load(self, op: Op) -> None:
        y_loop, z_loop = self.load_box
        left, right, top, bottom = (self.pad[name] for name in ("left", "right", "top", "bottom"))
        run_rows = left + op["count"] + right
        y_rows = top + y_loop.count + bottom
        if not run_rows * y_rows * z_loop.count:
            raise Fault(ErrorCode.ILLEGAL_OPERAND)
        memory = Memory(op["target"])
        target = self.pads.arrays()[memory.name]
        row_bytes = math.prod(target.shape[1:]) * target.itemsize
        target_bytes = target.view(np.uint8).reshape(len(target), row_bytes)
        data_bytes = op["count"] * row_bytes
        data_rows = y_loop.count * z_loop.count * op["count"]
        fill_rows = run_rows * y_rows * z_loop.count - data_rows
        self._spend(Engine.LOAD, fill_rows + data_rows * row_bytes // self.config.bus_bytes)
        for z in range(z_loop.count):
            for y in range(y_rows):
                lines = np.full((run_rows, row_bytes), self.pad["fill"], np.uint8)
                if top <= y < top + y_loop.count and data_bytes:
                    start = op["offset"] + z * z_loop["mem_stride"] + (y - top) * y_loop["mem_stride"]
                    data = self._read(op["region"], start % (1 << 32), data_bytes)
                    lines[left : left + op["count"]] = data.reshape(-1, row_bytes)
                first = op["row"] + z * z_loop["row_stride"] + y * y_loop["row_stride"]
                for x in range(run_rows):
                    target_bytes[self._row(memory.name, first + x, len(target))] = lines[x]

    def load_coded(self, op: Op) -> None:
        config, lanes = self.config, self.config.weight_codes
        groups = config.tile_bytes // lanes
        start = op["offset"] - op["offset"] % config.bus_bytes
        before = self.codes.cycles

        def read() -> bytes:
            return self._read(op["region"], start, op["beats"] * config.bus_bytes).tobytes()

        tiles = self.pads.wgt.view(np.uint8).reshape(len(self.pads.wgt), groups, lanes)
        try:
            for n, weights in enumerate(self.codes.load(op["mode"], groups * op["count"], op["beats"], read)):
                tile = self._row("WGT", op["row"] + n // groups, config.wgt_tiles)
                tiles[tile, n % groups] = np.frombuffer(weights, np.uint8)
        except codes.CodeError:
            raise Fault(ErrorCode.CODE) from None
        self._spend(Engine.LOAD, self.codes.cycles - before)

    def _read(self, region: int, start: int, nbytes: int) -> np.ndarray:
        data = self.memory.span(region, start, nbytes, False)
        self.counts.bytes_read += bus_beats(start, nbytes, self.config) * self.config.bus_bytes
        return data

    # GEMM.

    def gemm_loop(self, op: Op) -> None:
        self.gemm_loops[op["level"]] = _loop(op)

    def gemm(self, op: Op) -> None:
        config, loops = self.config, self.gemm_loops
        self._spend_macs(loops)
        inner, outer = loops[: op["reduce"]], loops[op["reduce"] :]
        act_inner, wgt_inner = offsets(inner, "act_stride"), offsets(inner, "wgt_stride")
        acc = self.pads.acc.reshape(config.acc_rows, config.block_out)
        for index in walk(outer):
            act_base = op["act"] + offset(outer, index, "act_stride")
            wgt_base = op["wgt"] + offset(outer, index, "wgt_stride")
            acc_base = op["acc"] + offset(outer, index, "acc_stride")
            act_rows, wgt_rows = [], []
            for a, w in zip(act_inner.tolist(), wgt_inner.tolist()):
                act_rows.append(self._act_row(act_base + a))
                wgt_rows.append(self._row("WGT", wgt_base + w, config.wgt_tiles))
                row = self._row("ACC", acc_base, config.acc_rows)
            vectors = self.pads.act[act_rows].astype(np.int64)  # [n, block_in]
            tiles = self.pads.wgt[wgt_rows].astype(np.int64)  # [n, block_out, block_in]
            total = (tiles @ vectors[:, :, None]).sum(axis=(0, 2))
            acc[row] = numerics.wrap32(total + (acc[row] if op["accumulate"] else 0))

    def depthwise(self, op: Op) -> None:
        config, loops = self.config, self.gemm_loops
        lanes = config.dw_lanes
        self._spend_macs(loops)
        acc = self.pads.acc.reshape(config.acc_dw_rows, lanes)
        first_lane = op["slice"] * lanes
        slots = np.arange(config.block_in)
        age = slots + op["delay"] * (slots // config.window_segment)  # in pushes
        window = np.zeros((age[-1] + 1, lanes), np.int64)  # row 0 is the newest
        for index in walk(loops):
            row = self._act_row(op["act"] + offset(loops, index, "act_stride"))
            window = np.roll(window, 1, axis=0)
            window[0] = self.pads.act[row, first_lane : first_lane + lanes]
            past0, past1 = index[0] - op["start0"], index[1] - op["start1"]
            if past0 < 0 or past0 % op["step0"] or past1 < 0 or past1 % op["step1"]:
                continue
            emission = (past0 // op["step0"], past1 // op["step1"], *index[2:])
            tile = self._row("WGT", op["wgt"] + offset(loops, index, "wgt_stride"), config.wgt_tiles)
            out = self._row("ACC", op["acc"] + offset(loops, emission, "acc_stride"), config.acc_dw_rows)
            products = self.pads.wgt[tile, :lanes, :].astype(np.int64) * window[age].T  # [lanes, slots]
            acc[out] = numerics.wrap32(products.sum(axis=1) + (acc[out] if op["accumulate"] else 0))

    def _spend_macs(self, loops: Sequence[Loop]) -> None:
        steps = math.prod(loop.count for loop in loops)
        self._spend(Engine.GEMM, steps)
        self.counts.macs += steps * self.config.macs_per_cycle

    # VECTOR.

    def vector_loop(self, op: Op) -> None:
        self.vector_loops[op["level"]] = _loop(op)

    def vector_add(self, op: Op) -> None:
        self.add = op

    def vector_post(self, op: Op) -> None:
        self.post = op

    def vector(self, op: Op) -> None:
        loops = self.vector_loops
        source = Source(op["source"])
        levels = op["reduce"] if source in (Source.SUM, Source.MAX) else 0
        inner, outer = loops[:levels], loops[levels:]
        self._spend(Engine.VECTOR, math.prod(loop.count for loop in loops))
        a_inner = offsets(inner, "a_stride").tolist()
        for index in walk(outer):
            a = op["a"] + offset(outer, index, "a_stride")
            b = op["b"] + offset(outer, index, "b_stride")
            prm = op["prm"] + offset(outer, index, "prm_stride")
            dst = op["dst"] + offset(outer, index, "dst_stride")
            value = self._source(source, a, a_inner)  # int64 [block_in]
            if source == Source.MUL or op["add"]:
                operand_b = self.pads.act[self._act_row(b)].astype(np.int64)
            if source == Source.MUL:
                value = (value - self.post["za"]) * (operand_b - self.post["zb"])
            if source in (Source.ACC, Source.MUL, Source.SUM):
                value = self._requantize(value, prm, op["rounding"])
            if op["add"]:
                k = self.add
                limits = (self.post["add_lo"], self.post["add_hi"])
                value = numerics.add_integer(value, operand_b, k["ma"], k["mb"], k["c"], k["shift"], *limits)
            if op["lut"]:
                value = self.pads.lut[self.post["table"], value.astype(np.int64) & 255].view(np.int8)
            self.pads.act[self._act_row(dst)] = value

    def vector_wide(self, op: Op) -> None:
        loops, levels = self.vector_loops, op["reduce"]
        self._spend(Engine.VECTOR, math.prod(loop.count for loop in loops))
        a_inner = offsets(loops[:levels], "a_stride").tolist()
        acc = self.pads.acc.reshape(-1, self.config.block_in)
        for index in walk(loops[levels:]):
            a, prm, dst = (op[name] + offset(loops[levels:], index, f"{name}_stride") for name in ("a", "prm", "dst"))
            value = np.zeros(self.config.block_in, np.int64)
            for more in a_inner:
                row = acc[self._row("ACC", a + more, self.config.acc_vectors)]
                value = numerics.wrap48((value << 8) + row.astype(np.int64))
            parameters = self.pads.prm[self._row("PRM", prm, self.config.prm_rows)]
            value = numerics.wrap48(value + parameters[:, 0].view(np.int32).astype(np.int64))
            result = numerics.requantize_wide_bits(value, parameters[:, 1], op["low"], op["high"])
            self.pads.act[self._act_row(dst)] = numerics.wide_byte(result, op["byte"])

    def _source(self, source: Source, a: int, inner: list[int]) -> np.ndarray:
        if source == Source.ACC:
            row = self._row("ACC", a, self.config.acc_vectors)
            sums: np.ndarray = self.pads.acc.reshape(-1, self.config.block_in)[row]
            return sums.astype(np.int64)
        vectors = self.pads.act[[self._act_row(a + i) for i in inner]].astype(np.int64)
        reduced: np.ndarray = vectors.max(axis=0) if source == Source.MAX else vectors.sum(axis=0)
        return reduced

    def _requantize(self, value: np.ndarray, prm: int, rounding: int) -> np.ndarray:
        row = self.pads.prm[self._row("PRM", prm, self.config.prm_rows)]
        bias, scale = row[:, 0].view(np.int32).astype(np.int64), row[:, 1]
        zp, lo, hi = (self.post[name] for name in ("zp", "lo", "hi"))
        return numerics.requantize(numerics.wrap32(value + bias), scale, zp, lo, hi, rounding)

    def row(self, op: Op) -> None:
        loops, function = self.vector_loops, RowFunction(op["function"])
        levels = 0 if function in ROW_WRITES else op["reduce"]
        inner, outer = loops[:levels], loops[levels:]
        self._spend(Engine.VECTOR, math.prod(loop.count for loop in loops))
        for index in walk(outer):
            a = op["a"] + offset(outer, index, "a_stride")
            vectors = self.pads.act[[self._act_row(a + i) for i in offsets(inner, "a_stride").tolist()]]
            if function == RowFunction.NORM:
                place = op["number"] + offset(outer, index, "b_stride")
                norm = RowNorm(*self.pads.norms[self._row("STAT", place, self.config.prm_rows)].tolist())
            prm = self._row("PRM", op["prm"] + offset(outer, index, "prm_stride"), self.config.prm_rows)
            if function in ROW_WRITES:
                bias, scale = self.pads.prm[prm, :, 0].view(np.int32), self.pads.prm[prm, :, 1]
                limits = tuple(self.post[name] for name in ("zp", "lo", "hi"))
                if function == RowFunction.EXP:
                    value = numerics.requantize(self._words(vectors[0], int(self.pads.maxima[prm])), scale, *limits)
                else:
                    value = normalise(vectors[0], norm, bias, scale, *limits)
                self.pads.act[self._act_row(op["dst"] + offset(outer, index, "dst_stride"))] = value
                continue
            counts = np.ones(vectors.shape, bool)
            counts[-1, op["tail"] or self.config.block_in :] = False
            if function == RowFunction.MAXIMUM:
                self.pads.maxima[prm] = vectors[counts].max()
            elif function == RowFunction.EXP_SUM:
                total = int(self._words(vectors[counts], int(self.pads.maxima[prm])).sum())
                self.pads.prm[prm, :, 1] = numerics.row_scale(total, op["number"], op["exponent"])
            else:
                sums = (self._words(vectors, self.post["za"]) * counts).sum(axis=1)
                bits = self.config.row_square_bits
                squares, total = int((sums & ((1 << bits) - 1)).sum()), int((sums >> bits).sum())
                centred = function == RowFunction.MOMENTS
                epsilon = self.add["c"] << EPSILON_FRACTION | self.add["ma"] % (1 << EPSILON_FRACTION)
                self.pads.norms[prm] = row_norm(squares, total, op["number"], epsilon, centred)

    def _words(self, values: np.ndarray, zero: int) -> np.ndarray:
        """What the wide table has for int8 values less `zero`: int64."""
        first = self.post["table"] // WIDE_TABLE * WIDE_TABLE
        words = self.pads.lut[first : first + WIDE_TABLE].reshape(-1).view("<u4")
        found: np.ndarray = words[(values.astype(np.int64) - zero) & 0xFF].astype(np.int64)
        return found & ((1 << self.config.row_word_bits) - 1)

    # STORE.

    def store_dim(self, op: Op) -> None:
        self.store_box[op["level"]] = _loop(op)

    def store(self, op: Op) -> None:
        y_loop, z_loop = self.store_box
        nbytes = op["count"] * self.config.block_in
        self._spend(Engine.STORE, z_loop.count * y_loop.count * nbytes // self.config.bus_bytes)
        for z in range(z_loop.count):
            for y in range(y_loop.count):
                start = op["offset"] + z * z_loop["mem_stride"] + y * y_loop["mem_stride"]
                first = op["row"] + z * z_loop["row_stride"] + y * y_loop["row_stride"]
                data = self._write(op["region"], start % (1 << 32), nbytes).reshape(-1, self.config.block_in)
                for x in range(op["count"]):
                    data[x] = self.pads.act[self._act_row(first + x)].view(np.uint8)

    def _write(self, region: int, start: int, nbytes: int) -> np.ndarray:
        data = self.memory.span(region, start, nbytes, True)
        self.counts.bytes_written += bus_beats(start, nbytes, self.config) * self.config.bus_bytes
        return data

    # SYNC: one null step each.

    def load_sync(self, op: Op) -> None:
        self._spend(Engine.LOAD, 1)

    def gemm_sync(self, op: Op) -> None:
        self._spend(Engine.GEMM, 1)

    def vector_sync(self, op: Op) -> None:
        self._spend(Engine.VECTOR, 1)

    def store_sync(self, op: Op) -> None:
        self._spend(Engine.STORE, 1)


def _loop(op: Op) -> Loop:
    return Loop(op["count"], {name: value for name, value in op.values.items() if name.endswith("_stride")})


def run_reference(
    config: NpuConfig,
    scratchpads: Scratchpads,
    data: np.ndarray,
    regions: Sequence[Region],
    program: tuple[int, int, int],
    timeout: int = 0,
    trace: Trace | None = None,
) -> RunCounts:
    """Runs the program (region, offset, length) on `scratchpads` and memory `data`. Raises `DeviceError`."""
    machine = ReferenceMachine(config, scratchpads, ExternalMemory(data, regions), *program, timeout, trace)
    return machine.run()
