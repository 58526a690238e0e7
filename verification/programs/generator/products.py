"""Random products: GEMM and DEPTHWISE."""

from __future__ import annotations

import numpy as np

from tilewright.isa.instructions import Engine
from verification.programs.generator.pieces import Pieces, reach_of
from verification.programs.order import Record


class Products(Pieces):
    """Instructions of GEMM."""

    def gemm(self) -> None:
        c = self.config
        counts = self._counts(c.gemm_loops, self.max_steps)
        reduce = self.rng.randint(0, c.gemm_loops)
        act = self._strides(counts, self.zones["ACT"][1] - self.zones["ACT"][0])
        wgt = self._strides(counts, self.zones["WGT"][1] - self.zones["WGT"][0])
        acc = self._strides(counts, self.acc_zone[1] - self.acc_zone[0])
        self._gemm_loops(counts, {"act_stride": act, "wgt_stride": wgt, "acc_stride": acc})
        act_rows, wgt_rows = reach_of(counts, act), reach_of(counts, wgt)
        acc_rows = reach_of(counts[reduce:], acc[reduce:])
        bases = self._base(act_rows, self.zones["ACT"]), self._base(wgt_rows, self.zones["WGT"])
        acc_base = self._base(acc_rows, self.acc_zone)
        accumulate = self.rng.randint(0, 1)
        values = {"act": bases[0], "wgt": bases[1], "acc": acc_base, "reduce": reduce, "accumulate": accumulate}
        self._gemm_record("GEMM", values, act_rows, wgt_rows, acc_rows, c.block_out)

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
        if c.window_pairs and rng.random() < 0.8:
            wgt[0] = 0  # pushes go in pairs only where all of a line have the same weights
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

    def _gemm_loops(self, counts: list[int], strides: dict[str, list[int]]) -> None:
        levels = [{"count": n} | {k: v[i] for k, v in strides.items()} for i, n in enumerate(counts)]
        self._set_loops("GEMM_LOOP", levels)

    def _gemm_record(
        self, name: str, values: dict[str, int], act: np.ndarray, wgt: np.ndarray, acc: np.ndarray, lanes: int
    ) -> None:
        out = self._mask("ACC", acc + values["acc"], lanes)
        reads = {"ACT": self._mask("ACT", act + values["act"]), "WGT": self._mask("WGT", wgt + values["wgt"])}
        reads["ACC"] = out
        self.add(Record(Engine.GEMM, values, name, reads=reads, writes={"ACC": out}))
