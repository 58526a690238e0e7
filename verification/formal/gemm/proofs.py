"""Proofs about GEMM and DEPTHWISE: `data_benches` says how they chain."""

from __future__ import annotations

import functools

from tilewright.isa.config import NpuConfig
from verification.formal.engine import Cut
from verification.formal.gemm import data_benches, step_benches
from verification.formal.proof import Proof, Property

_WINDOW = (
    Property(
        "products",
        "`Gemm`: the array is given a product for every step that counts and has no row beyond its memory, no other",
        Cut("gemm.made_1"),
    ),
    Property(
        "activations",
        "GEMM: operand i of every output is activation i of the ACT row that came for the step",
        Cut("gemm.window.slot0"),
    ),
    Property(
        "window",
        "DEPTHWISE: slot i has, of the slice, the vector pushed i + delay * floor(i / S) pushes before, zero where the "
        "instruction has made fewer",
        Cut("gemm.window.slot1"),
    ),
    Property(
        "weights",
        "`Gemm`: the weights are those of the tile that came for the step",
        Cut("gemm.tile1"),
    ),
    Property(
        "reads",
        "`Gemm`: ACT and WGT are asked for the rows that the step names, in its cycle",
        None,
    ),
)
_ARRAY = (
    Property(
        "sums",
        "`MacArray`: a product given in cycle t is there in t + `array_stages`: for every output the sum of weight "
        "times operand, signed",
        Cut("array.valid1"),
    ),
)
_SUMS = (
    Property(
        "writes",
        "`Gemm`: the columns that a group covers in its row of ACC are written when it is complete, once, in the order "
        "of the groups; nothing else is written",
        Cut("gemm.accumulate*.mask2"),
    ),
    Property(
        "sums",
        "`Gemm`: what is written is (accumulate ? what was written there before : 0) + the sum of the group's "
        "products, in wrapping int32",
        Cut("gemm.accumulate*.forward"),
    ),
)
_STEPS = (
    Property(
        "loops",
        "`GemmSteps`: loops are stepped and configured only as `gemm_nest` assumes",
        Cut("steps.step"),
    ),
    Property(
        "control",
        "`GemmSteps`: one step in every cycle from the one behind the start of an instruction, as many as its loops "
        "have, one for GEMM_SYNC; ready with the last; none once it is halted or has an error",
        Cut("steps.null"),
    ),
    Property(
        "reads",
        "GEMM, DEPTHWISE: a step reads ACT row `act` + sum of index * stride and, if it counts, WGT tile `wgt` + sum "
        "of index * stride",
        Cut("steps.wgt_row"),
    ),
    Property(
        "emits",
        "DEPTHWISE: a step counts if for levels 0 and 1 i >= start and (i - start) mod step = 0; GEMM: every step",
        Cut("steps.hit0"),
    ),
    Property(
        "place",
        "the row and the column of ACC of a group are those of `acc` + sum of index * stride over the levels that are "
        "not summed, for DEPTHWISE of (i - start) / step * stride on levels 0 and 1",
        Cut("steps.acc_gate"),
    ),
    Property(
        "groups",
        "GEMM: a group is the steps of the innermost `reduce` levels, one behind the other, with one row and one "
        "`accumulate`; DEPTHWISE: every step is one",
        Cut("steps.inner"),
    ),
    Property(
        "windows",
        "DEPTHWISE: `clear` is with the first step of an instruction and no other; slice and delay are its own",
        Cut("steps.clear"),
    ),
    Property(
        "faults",
        "a row beyond its memory is reported in the cycle behind its step, with the instruction; of several in one "
        "step ACT before WGT before ACC; WGT and ACC of DEPTHWISE only where a step counts",
        Cut("steps.beyond"),
    ),
)


def _on(
    name: str, config: NpuConfig, cycles: int, properties: tuple[Property, ...], *, induction: bool, quick: bool = False
) -> Proof:
    """A bench on a machine, which the name of the proof tells."""
    bench = functools.partial(getattr(step_benches if name == "gemm_steps" else data_benches, name), c=config)
    size = config.name.removeprefix("formal_")
    return Proof(f"{name}_{size}", bench, induction, cycles, properties, quick=quick)


PROOFS: tuple[Proof, ...] = (
    Proof(
        "gemm_nest",
        step_benches.gemm_nest,
        False,
        10,
        (
            Property(
                "addresses",
                "`LoopNest`, started at any time: an address is its base plus the sum of index * stride",
                Cut("nest.here", 10),
            ),
            Property(
                "gates",
                "`LoopNest`: an outer address takes a level's stride with those steps of the level at which its gate "
                "is open",
                Cut("nest.outside", 10),
            ),
            Property(
                "order",
                "`LoopNest`: the step advances the level it should, and is the last one if it is",
                Cut("nest.carry", 10),
            ),
            Property(
                "groups",
                "`LoopNest`: the first and the last step of a group are marked",
                Cut("nest.group_last_stepped", 10),
            ),
        ),
        quick=False,
    ),
    _on("gemm_steps", step_benches.SQUARE, 12, _STEPS, induction=False),
    _on("gemm_steps", step_benches.TALL, 12, _STEPS, induction=False),
    _on("gemm_steps", step_benches.FLAT, 12, _STEPS, induction=False),
    _on("gemm_window", data_benches.SQUARE, 4, _WINDOW, induction=True, quick=True),
    _on("gemm_window", data_benches.FLAT, 14, _WINDOW, induction=False),
    *(
        _on("gemm_array", size, 7, _ARRAY, induction=False)
        for size in (data_benches.SQUARE, data_benches.TALL, data_benches.FLAT)
    ),
    _on("gemm_sums", data_benches.SQUARE, 8, _SUMS, induction=True, quick=True),
    _on("gemm_sums", data_benches.TALL, 8, _SUMS, induction=True),
    _on("gemm_sums", data_benches.FLAT, 9, _SUMS, induction=True),
    Proof(
        "gemm_retire",
        data_benches.gemm_retire,
        True,
        1,
        (
            Property(
                "once",
                "`Gemm`: an instruction is reported complete `gemm_signal` cycles after its last step, once",
                Cut("gemm.end_1"),
            ),
            Property(
                "order",
                "`Gemm`: instructions are reported in the order of their starts, each with its index and the "
                "semaphores it signals",
                Cut("gemm.signals"),
            ),
            Property(
                "running",
                "`Gemm`: `running` exactly from the cycle after a start until the last one is reported",
                Cut("gemm.ends.held"),
            ),
        ),
        quick=False,
    ),
    Proof(
        "gemm_settled",
        data_benches.gemm_settled,
        True,
        8,
        (
            Property(
                "settled",
                "`Gemm`: the writes of an instruction come before the first step that its signals allow",
                Cut("gemm.end_1", 10),
            ),
        ),
    ),
)
