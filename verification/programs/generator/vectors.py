"""Random instructions of VECTOR: of single vectors, of rows, of wide results."""

from __future__ import annotations

import numpy as np

from tilewright.isa.config import WIDE_TABLE
from tilewright.isa.encoding import op
from tilewright.isa.instructions import ROW_WRITES, Engine, Rounding, RowFunction, Source
from verification.programs.generator.pieces import Pieces, reach_of
from verification.programs.order import Record


class Vectors(Pieces):
    """Instructions of VECTOR."""

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
            reach = {k: reach_of(counts[levels:], strides[k][levels:]) for k in ("b", "dst", "prm")}
            reach["a"] = reach_of(counts, strides["a"])
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
            reach = {k: reach_of(counts[levels:], strides[k][levels:]) for k in zones if k != "a"}
            reach["a"] = reach_of(counts, strides["a"])
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
        reach = {k: reach_of(counts[reduce:], strides[k][reduce:]) for k in ("dst", "prm")}
        reach["a"] = reach_of(counts, strides["a"])
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

    def _reads_own(self, source: Source, rows: dict[str, np.ndarray], add: int) -> bool:
        """Returns whether a step reads an ACT row that an earlier step of the instruction writes."""
        groups = len(rows["dst"])
        written = np.full(self.config.act_rows, groups)
        np.minimum.at(written, rows["dst"], np.arange(groups))
        late = False
        if source != Source.ACC:
            late = bool((written[rows["a"].reshape(groups, -1)] < np.arange(groups)[:, None]).any())
        if source == Source.MUL or add:
            late = late or bool((written[rows["b"]] < np.arange(groups)).any())
        return late
