"""Whole programs: what their memory holds, instructions one after the other, and stores that show every difference."""

from __future__ import annotations

import numpy as np

from tilewright.isa import wide_numerics
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import check, op, to_bytes
from tilewright.isa.instructions import Engine, Memory
from verification.programs.generator.products import Products
from verification.programs.generator.program import (
    ARENA_BYTES,
    DATA_BYTES,
    DUMP_SCALES,
    PRM_BYTES,
    PROGRAM_BYTES,
    GeneratedProgram,
)
from verification.programs.generator.transfers import Transfers
from verification.programs.generator.vectors import Vectors
from verification.programs.order import Record


def generate(
    seed: int, config: NpuConfig, *, instructions: int = 40, max_steps: int = 120, dump: bool = True
) -> GeneratedProgram:
    """Returns a random program.

    Args:
        seed: the same seed and arguments give the same program.
        config: the NPU; every instruction is legal for it.
        instructions: run instructions besides the SYNCs that order them.
        max_steps: steps (rows, products, vectors) of one instruction at most.
        dump: end by storing what ACT and ACC hold, so that memory shows every difference.
    """
    generator = _Generator(seed, config, max_steps)
    makers = [generator.load] * 6 + [generator.gemm] * 5 + [generator.depthwise] * (3 * config.depthwise)
    makers += (
        [generator.vector] * 6 + [generator.row] * (4 * config.row_unit) + [generator.store] * 3 + [generator.sync]
    )
    makers += [generator.wide] * (4 * config.wide_results)
    image = generator.memory()
    for _ in range(4):
        generator.load()
    for _ in range(instructions - 4):
        # Room for the dump, and no semaphore ever near its limit, whatever runs ahead.
        if len(generator.stream) > PROGRAM_BYTES // 16 - 100 or max(generator.uses.values(), default=0) > 200:
            break
        generator.rng.choice(makers)()
    if dump:
        generator.dump()
    ops = [item.op() if isinstance(item, Record) else item for item in generator.stream] + [op("END")]
    for operation in ops:
        check(operation, config)
    program = to_bytes(ops)
    image[: len(program)] = np.frombuffer(program, np.uint8)
    return GeneratedProgram(seed, config, ops, image, generator.windows)


class _Generator(Transfers, Products, Vectors):
    """Generates one program."""

    def sync(self) -> None:
        """A SYNC without semaphores, or a hand-over that nothing needs."""
        engines = list(Engine)[1:]
        engine = self.rng.choice(engines)
        record = Record(engine, {}, f"{engine.name}_SYNC")
        known = [pair for pair in self.ids if pair[1] == engine]
        if known and self.records:
            record.waits = [self.signal(self.rng.choice(known), len(self.records) - 1)]
        self.append(record)

    def dump(self) -> None:
        """Stores the ACT zone, then what ACC holds, requantised at four scales."""
        c = self.config
        first, last = self.zones["ACT"]
        rows = min(last - first, self.dump_bytes // 2 // c.block_in)
        self._store(5, 0, first, rows, [1, 1], [0, 0], [0, 0])
        vectors = min((self.acc_zone[1] - self.acc_zone[0]) * c.block_out // c.block_in, rows)
        acc_first = self.acc_zone[0] * c.block_out // c.block_in
        if not vectors:
            return
        self.post = {"zp": 0, "lo": -128, "hi": 127, "add_lo": 0, "add_hi": 0, "za": 0, "zb": 0, "table": 0}
        self.stream.append(op("VECTOR_POST", **self.post))
        prm = self.zones["PRM"][0]
        for i in range(len(DUMP_SCALES)):
            self.pad = dict.fromkeys(("left", "right", "top", "bottom", "fill"), 0)
            self.stream.append(op("LOAD_PAD", **self.pad))
            one = {"count": 1, "row_stride": 0, "mem_stride": 0}
            self._set_loops("LOAD_DIM", [one, one])
            offset = DATA_BYTES - (i + 1) * c.prm_row_bytes
            values = {"region": 1, "offset": offset, "target": int(Memory.PRM), "row": prm, "count": 1}
            self.add(Record(Engine.LOAD, values, "LOAD", writes={"PRM": self._mask("PRM", [prm])}))
            single = {"count": 1, "a_stride": 0, "b_stride": 0, "dst_stride": 0, "prm_stride": 0}
            levels = [single | {"count": vectors, "a_stride": 1, "dst_stride": 1}]
            self._set_loops("VECTOR_LOOP", levels + [single] * (c.vector_loops - 1))
            record = Record(Engine.VECTOR, {"a": acc_first, "dst": first, "prm": prm}, "VECTOR")
            record.reads = {"PRM": self._mask("PRM", [prm])}
            record.reads["ACC"] = self._mask("ACC", np.arange(acc_first, acc_first + vectors), c.block_in)
            record.writes = {"ACT": self._mask("ACT", np.arange(first, first + vectors))}
            self.add(record)
            offset = self.dump_bytes // 2 + i * self.dump_bytes // 8
            fits = min(vectors, self.dump_bytes // 8 // c.block_in)
            self._store(5, offset, first, fits, [1, 1], [0, 0], [0, 0])

    def memory(self) -> np.ndarray:
        c, random_bytes = self.config, np.random.default_rng(self.rng.getrandbits(64))
        image = random_bytes.integers(0, 256, PROGRAM_BYTES + DATA_BYTES + ARENA_BYTES, dtype=np.uint8)
        pairs = PRM_BYTES // 8
        prm = np.zeros((pairs, 2), np.uint32)
        prm[:, 0] = random_bytes.integers(-3000, 3000, pairs).astype(np.int32).view(np.uint32)
        scales = random_bytes.uniform(0.5, 1, pairs) * 2.0 ** random_bytes.integers(-14, 1, pairs)
        scales *= random_bytes.choice([1, 1, 1, -1], pairs)
        prm[:, 1] = scales.astype(np.float32).view(np.uint32)
        ties = random_bytes.random(pairs) < 0.1
        prm[ties, 1] = (2.0 ** random_bytes.integers(-6, 0, int(ties.sum()))).astype(np.float32).view(np.uint32)
        if c.row_unit:  # some rows as NORM has them: its products are longer, its biases have a fraction
            norms = np.repeat(random_bytes.random(pairs // c.block_in + 1) < 0.3, c.block_in)[:pairs]
            prm[norms, 0] = (
                random_bytes.integers(-(1 << 31), 1 << 31, int(norms.sum())).astype(np.int32).view(np.uint32)
            )
            prm[norms, 1] -= np.uint32(20 << 23)
        if c.wide_results:  # some rows as VECTOR_WIDE has them
            wide = np.repeat(random_bytes.random(pairs // c.block_in + 1) < 0.5, c.block_in)[:pairs]
            factors = random_bytes.integers(1 << 14, 1 << 15, pairs), random_bytes.integers(8, 47, pairs)
            prm[wide, 1] = wide_numerics.wide_parameters(random_bytes.integers(-1, 2, pairs) << 32, *factors)[1][wide]
        image[PROGRAM_BYTES : PROGRAM_BYTES + PRM_BYTES] = prm.reshape(-1).view(np.uint8)
        for i, scale in enumerate(DUMP_SCALES):
            row = np.zeros((c.block_in, 2), np.uint32)
            row[:, 1] = np.float32(scale).view(np.uint32)
            end = PROGRAM_BYTES + DATA_BYTES - i * c.prm_row_bytes
            image[end - c.prm_row_bytes : end] = row.reshape(-1).view(np.uint8)
        return image
