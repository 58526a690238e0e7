"""Random legal programs whose result does not depend on timing.

Every engine runs at its own pace on hardware, so a program has one result only if each conflict between engines (a row
or byte that one writes and another touches) is ordered by a semaphore. The generator records what every instruction
reads and writes and inserts exactly the waits and signals that are missing. A program is made again from its seed.

    program = generate(seed, config)
    image = program.run(device)  # the bytes of all its memory after the run
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa import numerics
from isa.config import WIDE_TABLE, NpuConfig
from isa.device import Device, Region
from isa.encoding import Op, check, op, to_bytes
from isa.instructions import ROW_WRITES, Engine, Memory, Rounding, RowFunction, Source
from tests.common.program_order import Order, Record

PROGRAM_BYTES = 1 << 15
DATA_BYTES = 1 << 15
ARENA_BYTES = 1 << 15
#: The read-only data starts with PRM rows of ordinary scales, so that not every result saturates.
PRM_BYTES = 1 << 13
#: Scales of the four passes that make ACC visible at the end.
DUMP_SCALES = (1.0, 2.0**-8, 2.0**-16, 2.0**-24)


@dataclass
class GeneratedProgram:
    """A program and the memory it runs on.

    Attributes:
        seed: what it was made from.
        config: the NPU it is legal for.
        ops: the instructions, END included.
        memory: uint8, program, data and arena as they are before the run.
        windows: regions with bases relative to the start of `memory`.
    """

    seed: int
    config: NpuConfig
    ops: list[Op]
    memory: np.ndarray
    windows: tuple[Region, ...]

    def install(self, device: Device) -> tuple[int, list[Region]]:
        """Copies the memory to a device; returns its address and the regions."""
        base = device.allocate(self.memory.size)
        device.write(base, self.memory)
        return base, [Region(base + w.base, w.size, w.read, w.write) for w in self.windows]

    def run(self, device: Device, **options: Any) -> np.ndarray:
        """Runs on a device and returns the memory afterwards (uint8)."""
        base, regions = self.install(device)
        device.run(regions, 0, 0, len(self.ops), **options)
        return device.read(base, self.memory.size)


class _Generator(Order):
    def __init__(self, seed: int, config: NpuConfig, max_steps: int) -> None:
        super().__init__(random.Random(f"{seed}/{config.fingerprint}"), config.semaphores)
        self.config, self.max_steps = config, max_steps
        c = config
        self.sizes = {
            "ACT": c.act_rows, "WGT": c.wgt_tiles, "PRM": c.prm_rows, "LUT": c.lut_tables,
            "ACC": c.acc_rows * c.block_out, "MEM": PROGRAM_BYTES + DATA_BYTES + ARENA_BYTES,
        }  # fmt: skip
        # Most rows lie in a small zone, so that instructions meet; it may touch the end of the memory.
        self.zones = {name: self._zone(rows) for name, rows in self.sizes.items() if name not in ("ACC", "MEM")}
        self.acc_zone = self._zone(c.acc_rows, 24)
        arena = PROGRAM_BYTES + DATA_BYTES
        self.dump_bytes = ARENA_BYTES // 2
        half = arena + 4096
        self.windows = (
            Region(0, PROGRAM_BYTES, read=True),
            Region(PROGRAM_BYTES, DATA_BYTES, read=True),
            Region(arena, ARENA_BYTES - self.dump_bytes - 17, read=True, write=True),
            Region(half, 5001, read=True, write=True),  # overlaps region 2
            Region(half, 3000, write=True),
            Region(arena + ARENA_BYTES - self.dump_bytes, self.dump_bytes, write=True),
        )
        self.loops: dict[str, list[dict[str, int]]] = {
            "GEMM_LOOP": [{} for _ in range(c.gemm_loops)],
            "VECTOR_LOOP": [{} for _ in range(c.vector_loops)],
            "LOAD_DIM": [{}, {}],
            "STORE_DIM": [{}, {}],
        }
        self.pad: dict[str, int] = {}
        self.post: dict[str, int] = {}

    def _zone(self, rows: int, most: int = 160) -> tuple[int, int]:
        size = min(rows, most)
        first = self.rng.choice([0, rows - size, self.rng.randint(0, rows - size)])
        return first, first + size

    # Random pieces.

    def _mask(self, resource: str, rows: Any, width: int = 1) -> np.ndarray:
        mask = np.zeros(self.sizes[resource], bool)
        rows = np.asarray(rows, np.int64).reshape(-1)
        mask[(rows[:, None] * width + np.arange(width)).reshape(-1)] = True
        return mask

    def _counts(self, levels: int, most: int) -> list[int]:
        """Loop counts whose product is at most `most`; many levels stay at 1."""
        counts = [1] * levels
        for level in self.rng.sample(range(levels), levels):
            room = most // int(np.prod(counts))
            if room > 1 and self.rng.random() < 0.7:
                counts[level] = self.rng.randint(1, min(room, self.rng.choice([2, 3, 5, 9, 40])))
        return counts

    def _strides(self, counts: Sequence[int], room: int) -> list[int]:
        """Strides, negative and zero ones too, with which a nest spans at most `room` rows."""
        strides = []
        for count in counts:
            most = (room - 1) // max(1, count - 1)
            stride = self.rng.choice([0, 1, 1, -1, count, self.rng.randint(-most, most), self.rng.randint(-3, 3)])
            if abs(stride) * (count - 1) >= room:
                stride = 0
            room -= abs(stride) * (count - 1)
            strides.append(stride)
        return strides

    def _base(self, reach: np.ndarray, zone: tuple[int, int]) -> int:
        return self.rng.randint(zone[0] - int(reach.min()), zone[1] - 1 - int(reach.max()))

    def _set_loops(self, kind: str, levels: list[dict[str, int]]) -> None:
        for level in self.rng.sample(range(len(levels)), len(levels)):
            if self.loops[kind][level] != levels[level] or self.rng.random() < 0.05:
                self.loops[kind][level] = levels[level]
                self.stream.append(op(kind, level=level, **levels[level]))

    # Instructions.

    def load(self) -> None:
        rng, c = self.rng, self.config
        target = rng.choice([Memory.ACT] * 4 + [Memory.WGT] * 3 + [Memory.PRM] * 2 + [Memory.LUT] * c.table_lookup)
        names = ("left", "right", "top", "bottom")
        pad = (
            {n: rng.choice([0, 0, 1, rng.randint(0, 4)]) for n in names}
            if rng.random() < 0.5
            else dict.fromkeys(names, 0)
        )
        zone = self.zones[target.name]
        size = zone[1] - zone[0]
        most = min(12, DATA_BYTES // target.row_bytes(self.config))
        while True:
            count, y_count, z_count = rng.randint(0, most), rng.randint(0, 4), rng.randint(1, 3)
            if rng.random() < 0.3 or size < 16:
                y_count = z_count = 1
                pad["top"] = pad["bottom"] = 0
            if size < 16:
                pad["left"] = pad["right"] = 0
                count = rng.randint(1, min(size, most, 3))
            run, y_rows = pad["left"] + count + pad["right"], pad["top"] + y_count + pad["bottom"]
            if 0 < run <= size and y_rows and run * y_rows * z_count <= self.max_steps:
                break
        row_strides = self._strides([y_rows, z_count], size - run + 1)
        z, y, x = np.meshgrid(range(z_count), range(y_rows), range(run), indexing="ij")
        rows = z * row_strides[1] + y * row_strides[0] + x
        row = self._base(rows, zone)
        self._load(target, row, rows + row, count, (y_count, z_count), row_strides, pad)

    def _load(
        self, target: Memory, row: int, rows: np.ndarray, count: int, counts: tuple[int, int], row_strides: list[int],
        pad: dict[str, int],
    ) -> None:  # fmt: skip
        rng = self.rng
        width = target.row_bytes(self.config)
        region = 1 if target == Memory.PRM or rng.random() < 0.4 else rng.choice([2, 3])
        window = self.windows[region]
        if count * width > window.size:
            region, window = 1, self.windows[1]
        steps = (max(counts[0], 1), counts[1])
        mem_strides = self._strides(steps, window.size - count * width + 1)
        reach = np.add.outer(np.arange(steps[1]) * mem_strides[1], np.arange(steps[0]) * mem_strides[0]).reshape(-1)
        offset = rng.randint(-int(reach.min()), window.size - count * width - int(reach.max()))
        if target == Memory.PRM and rng.random() < 0.8:
            mem_strides, reach = [0, 0], reach * 0
            offset = rng.randrange(0, PRM_BYTES - count * width + 1, 8)
        fill = rng.randint(0, 255)
        if pad | {"fill": fill} != self.pad and (any(pad.values()) or any(self.pad.values())):
            self.pad = pad | {"fill": fill}
            self.stream.append(op("LOAD_PAD", **self.pad))
        levels = [{"count": counts[i], "row_stride": row_strides[i], "mem_stride": mem_strides[i]} for i in range(2)]
        self._set_loops("LOAD_DIM", levels)
        values = {"region": region, "offset": offset, "target": int(target), "row": row, "count": count}
        record = Record(Engine.LOAD, values, "LOAD", writes={target.name: self._mask(target.name, rows)})
        if count and counts[0]:
            record.reads["MEM"] = self._mask("MEM", self._bytes(window.base + offset + reach, count * width))
        self.add(record)

    @staticmethod
    def _bytes(starts: np.ndarray, nbytes: int) -> np.ndarray:
        return (starts[:, None] + np.arange(nbytes)).reshape(-1)

    def _gemm_loops(self, counts: list[int], strides: dict[str, list[int]]) -> None:
        levels = [{"count": n} | {k: v[i] for k, v in strides.items()} for i, n in enumerate(counts)]
        self._set_loops("GEMM_LOOP", levels)

    def gemm(self) -> None:
        c = self.config
        counts = self._counts(c.gemm_loops, self.max_steps)
        reduce = self.rng.randint(0, c.gemm_loops)
        act = self._strides(counts, self.zones["ACT"][1] - self.zones["ACT"][0])
        wgt = self._strides(counts, self.zones["WGT"][1] - self.zones["WGT"][0])
        acc = self._strides(counts, self.acc_zone[1] - self.acc_zone[0])
        self._gemm_loops(counts, {"act_stride": act, "wgt_stride": wgt, "acc_stride": acc})
        act_rows, wgt_rows = _reach(counts, act), _reach(counts, wgt)
        acc_rows = _reach(counts[reduce:], acc[reduce:])
        bases = self._base(act_rows, self.zones["ACT"]), self._base(wgt_rows, self.zones["WGT"])
        acc_base = self._base(acc_rows, self.acc_zone)
        accumulate = self.rng.randint(0, 1)
        values = {"act": bases[0], "wgt": bases[1], "acc": acc_base, "reduce": reduce, "accumulate": accumulate}
        self._gemm_record("GEMM", values, act_rows, wgt_rows, acc_rows, c.block_out)

    def _gemm_record(
        self, name: str, values: dict[str, int], act: np.ndarray, wgt: np.ndarray, acc: np.ndarray, lanes: int
    ) -> None:
        out = self._mask("ACC", acc + values["acc"], lanes)
        reads = {"ACT": self._mask("ACT", act + values["act"]), "WGT": self._mask("WGT", wgt + values["wgt"])}
        reads["ACC"] = out
        self.add(Record(Engine.GEMM, values, name, reads=reads, writes={"ACC": out}))

    def depthwise(self) -> None:
        rng, c = self.rng, self.config
        counts = self._counts(c.gemm_loops, self.max_steps)
        counts[0], counts[1] = rng.randint(1, 7), rng.randint(1, 7)
        while np.prod(counts) > self.max_steps:
            counts[2:] = [max(1, n // 2) for n in counts[2:]]
            counts[0] = max(1, counts[0] - 1)
        marks = {"start0": rng.randint(0, counts[0]), "step0": rng.randint(1, 4)}
        marks |= {"start1": rng.randint(0, counts[1]), "step1": rng.choice([1, 1, 2, 15])}
        per_row = c.block_out // c.dw_lanes
        zone = (self.acc_zone[0] * per_row, self.acc_zone[1] * per_row)
        act = self._strides(counts, self.zones["ACT"][1] - self.zones["ACT"][0])
        wgt = self._strides(counts, self.zones["WGT"][1] - self.zones["WGT"][0])
        acc = self._strides(counts, zone[1] - zone[0])
        self._gemm_loops(counts, {"act_stride": act, "wgt_stride": wgt, "acc_stride": acc})
        index = np.stack(np.unravel_index(np.arange(np.prod(counts)), counts[::-1]))[::-1]
        past0, past1 = index[0] - marks["start0"], index[1] - marks["start1"]
        emits = (past0 >= 0) & (past0 % marks["step0"] == 0) & (past1 >= 0) & (past1 % marks["step1"] == 0)
        emission = np.stack([past0 // marks["step0"], past1 // marks["step1"], *index[2:]])[:, emits]
        act_rows, wgt_rows = act @ index, (wgt @ index)[emits]
        acc_rows = acc @ emission
        values = {"act": self._base(act_rows, self.zones["ACT"]), "accumulate": rng.randint(0, 1)} | marks
        values["wgt"] = self._base(np.append(wgt_rows, 0), self.zones["WGT"])  # the field is unsigned
        values["acc"] = self._base(acc_rows if acc_rows.size else np.zeros(1), zone)
        values["slice"] = rng.randrange(c.dw_slices)
        values["delay"] = rng.randint(0, c.window_delay)
        self._gemm_record("DEPTHWISE", values, act_rows, wgt_rows, acc_rows, c.dw_lanes)

    def _constants(self) -> None:
        rng = self.rng
        byte = lambda: rng.choice([0, -128, 127, rng.randint(-128, 127)])
        if not self.post or rng.random() < 0.4:
            low, high = sorted((rng.randint(-128, 0), rng.randint(-20, 127)))
            if rng.random() < 0.4:
                low, high = -128, 127
            if rng.random() < 0.05:
                low, high = high, low
            self.post = {"zp": byte(), "lo": low, "hi": high, "add_lo": rng.randint(-128, -20)}
            self.post |= {"add_hi": rng.randint(0, 127), "za": byte(), "zb": byte()}
            self.post["table"] = rng.randint(0, self.config.last_table)
            self.stream.append(op("VECTOR_POST", **self.post))
        if rng.random() < 0.4:
            bits = rng.choice([10, 17, 23])
            ma, mb = (rng.randint(-(1 << bits), (1 << bits) - 1) for _ in range(2))
            shift = rng.choice([0, bits - 1, bits, rng.randint(0, 31)])
            c = rng.randint(-(1 << 31), (1 << 31) - 1) >> rng.randint(0, 24)
            self.stream.append(op("VECTOR_ADD", ma=ma, mb=mb, c=c, shift=shift))

    def vector(self) -> None:
        rng, c = self.rng, self.config
        self._constants()
        source = rng.choice([*Source, Source.ACC])
        flags = {"add": int(rng.random() < 0.3), "lut": c.table_lookup and int(rng.random() < 0.3)}
        flags["rounding"] = rng.choice(list(Rounding))
        reduce = rng.randint(0, c.vector_loops)
        levels = reduce if source in (Source.SUM, Source.MAX) else 0
        first = self.acc_zone[0] * c.block_out // c.block_in
        acc_zone = (first, max(first + 1, self.acc_zone[1] * c.block_out // c.block_in))
        a_zone = acc_zone if source == Source.ACC else self.zones["ACT"]
        zones = {"a": a_zone, "b": self.zones["ACT"], "dst": self.zones["ACT"], "prm": self.zones["PRM"]}
        for attempt in range(1000):
            # A reader behind its own writer is not ordered; after many tries make single steps.
            counts = self._counts(c.vector_loops, self.max_steps if attempt < 200 else 1)
            strides = {k: self._strides(counts, z[1] - z[0]) for k, z in zones.items()}
            reach = {k: _reach(counts[levels:], strides[k][levels:]) for k in ("b", "dst", "prm")}
            reach["a"] = _reach(counts, strides["a"])
            base = {k: self._base(reach[k], zones[k]) for k in zones}
            rows = {k: reach[k] + base[k] for k in zones}
            if not self._reads_own(source, rows, flags["add"]):
                break
        names = [{"count": n} | {f"{k}_stride": strides[k][i] for k in zones} for i, n in enumerate(counts)]
        self._set_loops("VECTOR_LOOP", names)
        record = Record(Engine.VECTOR, {"source": int(source), "reduce": reduce} | base | flags, "VECTOR")
        record.writes["ACT"] = self._mask("ACT", rows["dst"])
        act = [] if source == Source.ACC else [rows["a"]]
        if source == Source.MUL or flags["add"]:
            act.append(rows["b"])
        if act:
            record.reads["ACT"] = self._mask("ACT", np.concatenate(act))
        if source == Source.ACC:
            record.reads["ACC"] = self._mask("ACC", rows["a"], c.block_in)
        if source in (Source.ACC, Source.MUL, Source.SUM):
            record.reads["PRM"] = self._mask("PRM", rows["prm"])
        if flags["lut"]:
            record.reads["LUT"] = self._mask("LUT", [self.post["table"]])
        self.add(record)

    def row(self) -> None:
        """ROW, of rows of a few vectors; what it reads in tables, and of what it keeps, is whatever is there."""
        rng, c = self.rng, self.config
        self._constants()
        function = rng.choice(list(RowFunction))
        writes, norm = function in ROW_WRITES, function == RowFunction.NORM
        reduce = rng.randint(0, c.vector_loops)
        levels = 0 if writes else reduce
        act, prm = self.zones["ACT"], self.zones["PRM"]
        zones = {"a": act, "dst": act, "prm": prm} | ({"b": prm} if norm else {})
        for attempt in range(1000):
            counts = self._counts(c.vector_loops, self.max_steps if attempt < 200 else 1)
            strides = {k: self._strides(counts, z[1] - z[0]) for k, z in zones.items()}
            reach = {k: _reach(counts[levels:], strides[k][levels:]) for k in zones if k != "a"}
            reach["a"] = _reach(counts, strides["a"])
            base = {k: self._base(reach[k], zones[k]) for k in zones}
            rows = {k: reach[k] + base[k] for k in zones}
            if not writes or not self._reads_own(Source.ACT, rows, 0):
                break
        names = [
            {"count": n, "b_stride": 0} | {f"{k}_stride": strides[k][i] for k in zones} for i, n in enumerate(counts)
        ]
        self._set_loops("VECTOR_LOOP", names)
        some = {
            RowFunction.EXP_SUM: [254 << 10, rng.randrange(1 << 17, 1 << 18), rng.randrange(1 << 18)],
            RowFunction.NORM: [base.pop("b", 0)],
        }.get(function, [rng.randint(1, 200), rng.randint(1, 4096), rng.randrange(1 << 18)])
        values = {"function": int(function), "reduce": reduce, "number": rng.choice(some)} | base
        values |= {
            "tail": rng.choice([0, rng.randrange(c.block_in)]),
            "exponent": rng.choice([110, rng.randrange(256)]),
        }
        record = Record(Engine.VECTOR, values, "ROW", reads={"ACT": self._mask("ACT", rows["a"])})
        if function not in (RowFunction.MAXIMUM, RowFunction.NORM):
            record.reads["LUT"] = self._mask(
                "LUT", self.post["table"] // WIDE_TABLE * WIDE_TABLE + np.arange(WIDE_TABLE)
            )
        if function == RowFunction.EXP_SUM:
            record.writes["PRM"] = self._mask("PRM", rows["prm"])
        if writes:
            record.reads["PRM"] = self._mask("PRM", rows["prm"])
            record.writes["ACT"] = self._mask("ACT", rows["dst"])
        self.add(record)

    def wide(self) -> None:
        """VECTOR_WIDE, of rows of ACC as GEMM left them or any others."""
        rng, c = self.rng, self.config
        reduce = rng.choice([0, 1, 1, rng.randint(0, c.vector_loops)])
        first = self.acc_zone[0] * c.block_out // c.block_in
        acc = (first, max(first + 1, self.acc_zone[1] * c.block_out // c.block_in))
        zones = {"a": acc, "dst": self.zones["ACT"], "prm": self.zones["PRM"]}
        counts = self._counts(c.vector_loops, self.max_steps)
        strides = {k: self._strides(counts, z[1] - z[0]) for k, z in zones.items()}
        reach = {k: _reach(counts[reduce:], strides[k][reduce:]) for k in ("dst", "prm")}
        reach["a"] = _reach(counts, strides["a"])
        base = {k: self._base(reach[k], zones[k]) for k in zones}
        levels = [{"count": n, "b_stride": rng.randint(-3, 3)} for n in counts]
        self._set_loops(
            "VECTOR_LOOP", [v | {f"{k}_stride": strides[k][i] for k in zones} for i, v in enumerate(levels)]
        )
        most = (1 << 15) - 1
        limits = rng.choice([(-most - 1, most), (0, most), (rng.randint(-most, most), rng.randint(-99999, 99999))])
        values = {"byte": rng.randint(0, 1), "reduce": reduce, "low": limits[0], "high": limits[1]} | base
        record = Record(Engine.VECTOR, values, "VECTOR_WIDE")
        record.reads["ACC"] = self._mask("ACC", reach["a"] + base["a"], c.block_in)
        record.reads["PRM"] = self._mask("PRM", reach["prm"] + base["prm"])
        record.writes["ACT"] = self._mask("ACT", reach["dst"] + base["dst"])
        self.add(record)

    def _reads_own(self, source: Source, rows: dict[str, np.ndarray], add: int) -> bool:
        """Whether a step reads an ACT row that an earlier step of the instruction writes."""
        groups = len(rows["dst"])
        written = np.full(self.config.act_rows, groups)
        np.minimum.at(written, rows["dst"], np.arange(groups))
        late = False
        if source != Source.ACC:
            late = bool((written[rows["a"].reshape(groups, -1)] < np.arange(groups)[:, None]).any())
        if source == Source.MUL or add:
            late = late or bool((written[rows["b"]] < np.arange(groups)).any())
        return late

    def store(self) -> None:
        rng, c = self.rng, self.config
        zone = self.zones["ACT"]
        size = zone[1] - zone[0]
        window_index = rng.choice([2, 3, 4])
        window = self.windows[window_index]
        count = rng.randint(1, min(12, size, window.size // c.block_in))
        counts = [rng.randint(1, 4), rng.randint(1, 3)]
        while count * counts[0] * counts[1] > self.max_steps:
            counts = [1, 1]
            count = min(count, self.max_steps)
        row_strides = self._strides(counts, size - count + 1)
        mem_strides = self._strides(counts, window.size - count * c.block_in + 1)
        starts, offsets = _reach(counts, row_strides), _reach(counts, mem_strides)
        row = self._base(starts, (zone[0], zone[1] - count + 1))
        offset = rng.randint(-int(offsets.min()), window.size - count * c.block_in - int(offsets.max()))
        self._store(window_index, offset, row, count, counts, row_strides, mem_strides)

    def _store(
        self, region: int, offset: int, row: int, count: int, counts: list[int], row_strides: list[int],
        mem_strides: list[int],
    ) -> None:  # fmt: skip
        levels = [{"count": counts[i], "row_stride": row_strides[i], "mem_stride": mem_strides[i]} for i in range(2)]
        self._set_loops("STORE_DIM", levels)
        starts, offsets = _reach(counts, row_strides), _reach(counts, mem_strides)
        record = Record(Engine.STORE, {"region": region, "offset": offset, "row": row, "count": count}, "STORE")
        record.reads["ACT"] = self._mask("ACT", self._bytes(starts + row, count))
        base = self.windows[region].base + offset
        record.writes["MEM"] = self._mask("MEM", self._bytes(base + offsets, count * self.config.block_in))
        self.add(record)

    def sync(self) -> None:
        """A SYNC without semaphores, or a hand-over that nothing needs."""
        engines = list(Engine)[1:]
        engine = self.rng.choice(engines)
        record = Record(engine, {}, f"{engine.name}_SYNC")
        known = [pair for pair in self.ids if pair[1] == engine]
        if known and self.records:
            record.waits = [self.signal(self.rng.choice(known), len(self.records) - 1)]
        self.append(record)

    # Whole programs.

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
            prm[wide, 1] = numerics.wide_parameters(random_bytes.integers(-1, 2, pairs) << 32, *factors)[1][wide]
        image[PROGRAM_BYTES : PROGRAM_BYTES + PRM_BYTES] = prm.reshape(-1).view(np.uint8)
        for i, scale in enumerate(DUMP_SCALES):
            row = np.zeros((c.block_in, 2), np.uint32)
            row[:, 1] = np.float32(scale).view(np.uint32)
            end = PROGRAM_BYTES + DATA_BYTES - i * c.prm_row_bytes
            image[end - c.prm_row_bytes : end] = row.reshape(-1).view(np.uint8)
        return image


def _reach(counts: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """int64: offsets of a nest from its base, level 0 fastest."""
    total = np.zeros(1, np.int64)
    for count, stride in zip(counts, strides):
        total = (np.arange(count)[:, None] * stride + total).reshape(-1)
    return total


def generate(
    seed: int, config: NpuConfig, *, instructions: int = 40, max_steps: int = 120, dump: bool = True
) -> GeneratedProgram:
    """A random program.

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
