"""Benches of the steps of GEMM and DEPTHWISE: which rows a step reads, what it counts for, where its group goes.

`gemm_nest` is about the loops alone, beside counters that add; `gemm_steps` has these counters in their place, beside
indices times strides. What `data_benches` assumes of steps are properties here.
"""

from __future__ import annotations

import functools
from functools import reduce
from operator import add
from typing import Any

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value

from tilewright.hw.gemm.steps import ADDRESSES, GemmSteps
from tilewright.hw.issue.decoder import Decoder
from tilewright.hw.issue.loop_nest import LoopNest
from tilewright.hw.table import field, instructions_of, is_instruction
from tilewright.isa.config import NpuConfig
from tilewright.isa.fields import INSTRUCTION_BITS
from tilewright.isa.instructions import Engine
from verification.formal.bench import Bench, implies, opened
from verification.formal.engine import Cut
from verification.formal.gemm.data_benches import groups, instructions, no_error, windows
from verification.formal.issue.loop_benches import PlainNest

#: Of an index that is looked at: more than there are cycles.
_INDEX_BITS = 4


class Shrunk(NpuConfig):
    """A machine with three loops and rows of few bits, which no real one may have."""

    def __post_init__(self) -> None:
        pass


_COMMON = {"gemm_loops": 3, "act_rows": 4, "wgt_tiles": 3, "prm_rows": 2, "semaphores": 12, "axi_address_bits": 20}
SQUARE = Shrunk(name="formal_4x4", block_in=4, block_out=4, acc_rows=3, **_COMMON)
TALL = Shrunk(name="formal_4x8", block_in=4, block_out=8, acc_rows=2, **_COMMON)
FLAT = Shrunk(name="formal_8x4", block_in=8, block_out=4, acc_rows=4, window_delay=3, **_COMMON)
PAIRS = FLAT.with_(name="formal_pairs", window_pairs=1, act_rows=8)
#: As wide as it is high, with half the lanes in DEPTHWISE.
PACKED = Shrunk(name="formal_packed", block_in=8, block_out=8, acc_rows=3, packed_products=1, **_COMMON)


def gemm_nest(only: str | None, *, pairs: bool = False) -> Bench:
    """Loops as GEMM has them, which are started whenever it likes, also by what is no instruction."""
    b = Bench(only)
    nest = LoopNest(3, ("act", "acc"), ("acc",), 3, pairs=pairs)
    b.part("nest", nest)
    plain = PlainNest(b, nest)
    b.assume(implies(nest.configure, (nest.level < nest.levels) & (nest.count != 0)))
    b.assume(implies(nest.step, plain.active))
    b.state(
        "addresses",
        "`LoopNest`, started at any time: an address is its base plus the sum of index * stride",
        Cut("nest.here", 10),
    )
    b.state(
        "gates",
        "`LoopNest`: an outer address takes a level's stride with those steps of the level at which its gate is open",
        Cut("nest.outside", 10),
    )
    b.state(
        "order",
        "`LoopNest`: the step advances the level it should, and is the last one if it is",
        Cut("nest.carry", 10),
    )
    b.state(
        "groups",
        "`LoopNest`: the first and the last step of a group are marked",
        Cut("nest.group_last_stepped", 10),
    )
    for name, value in plain.values.items():
        of = {"act": "addresses", "acc": "gates"}.get(name, "order" if name in ("carry", "last", "twice") else "groups")
        b.check(of, implies(plain.active, getattr(nest, name) == value))
    return b


def _cut_nest(b: Bench, nest: Any) -> PlainNest:
    """Puts counters in the place of the loops; what they show without a step is free."""
    nest.elaborate = lambda platform: Module()
    plain = PlainNest(b, nest)
    for name, value in plain.values.items():
        port = getattr(nest, name)
        b.m.d.comb += port.eq(Mux(plain.active, value, b.free(port.shape(), f"nest_{name}")))
    b.check(
        "loops",
        implies(nest.step, plain.active),
        "`GemmSteps`: loops are stepped and configured only as `gemm_nest` assumes",
        Cut("steps.step"),
    )
    b.check("loops", implies(nest.configure, (nest.level < nest.levels) & (nest.count != 0)))
    return plain


def _front_end(b: Bench, c: NpuConfig, control: Any) -> None:
    """Assumes what front end and decoder guarantee: see `front_end`."""
    b.m.submodules.decoder = decoder = Decoder(c)
    b.m.d.comb += decoder.word.eq(control.word)
    (name,) = (i.name for i in instructions_of(Engine.GEMM, configures=True))
    configures = control.configure.any()
    b.assume(implies(configures | control.start, decoder.legal & decoder.operands_ok & (decoder.engine == Engine.GEMM)))
    b.assume(implies(configures, is_instruction(control.word, name) & ~control.start))
    b.assume(implies(configures, field(control.word, name, "count") <= 7))
    b.assume(implies(control.start, ~is_instruction(control.word, name) & control.ready & ~control.halt))


class _Loops:
    """Counts and strides of GEMM_LOOP, by field and level, as they are for the instruction at work."""

    def __init__(self, b: Bench, control: Any, levels: int) -> None:
        self.values: dict[str, list[Signal]] = {}
        for name in ("count", *(f"{a}_stride" for a in ADDRESSES)):
            operand, init = field(control.word, "GEMM_LOOP", name), int(name == "count")
            following, now = (
                [Signal(operand.shape(), name=f"{when}_{name}{k}", init=init) for k in range(levels)]
                for when in ("set", "used")
            )
            for k in range(levels):
                with b.m.If(control.configure.any() & (field(control.word, "GEMM_LOOP", "level") == k)):
                    b.m.d.sync += following[k].eq(operand)
            with b.m.If(control.start):
                b.m.d.sync += [n.eq(f) for n, f in zip(now, following)]
            self.values[name] = now


def gemm_steps(only: str | None, c: NpuConfig = SQUARE) -> Bench:
    """Instructions one behind the other beside what the table says of them: indices times strides, quotients and
    remainders. The machine may halt whenever it likes, for good: what is at work then is lost."""
    b = Bench(only)
    steps = GemmSteps(c, max(c.block_in, c.block_out) // c.dw_lanes)
    plain = _cut_nest(b, opened(steps).submodules.nest)
    b.part("steps", steps)
    control, levels, bits = steps.control, range(c.gemm_loops), c.address_bits
    good = no_error(b, steps)
    _front_end(b, c, control)

    # The instruction at work, its loops, and where it is in them.
    now, busy = Signal(INSTRUCTION_BITS, name="now"), Signal(name="busy")
    pc = Signal.like(control.pc, name="pc")
    loops, index = _Loops(b, control, c.gemm_loops), [Signal(_INDEX_BITS, name=f"index{k}") for k in levels]
    sync, depthwise = is_instruction(now, "GEMM_SYNC"), is_instruction(now, "DEPTHWISE")
    twice = Signal(name="pushes_twice")  # the step makes the next push of the line, too
    at = [index[0] + twice, *index[1:]]  # where its product, if any, belongs
    at_end = [i == count - 1 for i, count in zip(at, loops.values["count"])]
    final = sync | Cat(at_end).all()
    with b.m.If(steps.step):
        for k in levels:
            with b.m.If(Cat(at_end[:k]).all()):
                b.m.d.sync += index[k].eq(Mux(at_end[k], 0, at[k] + 1))
        with b.m.If(final):
            b.m.d.sync += busy.eq(0)
    with b.m.If(control.start):
        b.m.d.sync += [busy.eq(1), now.eq(control.word), pc.eq(control.pc), *(i.eq(0) for i in index)]

    b.assume(implies(b.past(control.halt, "halted") & busy, control.halt))

    def parameter(name: str) -> Value:
        return Mux(depthwise, field(now, "DEPTHWISE", name), field(now, "GEMM", name))

    # What the table says of the step.
    outer = [depthwise | (field(now, "GEMM", "reduce") <= k) for k in levels]
    emission: list[Value] = list(at)
    counts_of: list[Value] = []

    def past_start(k: int, place: Value) -> tuple[Value, Value]:
        """Whether an index of level k is one with an output, and indices behind the first such one."""
        past = place - field(now, "DEPTHWISE", f"start{k}")
        behind = past.as_unsigned()[:_INDEX_BITS]
        return (past >= 0) & (behind % field(now, "DEPTHWISE", f"step{k}") == 0), behind

    for k in range(2):
        counts, behind = past_start(k, at[k])
        counts_of.append(counts)
        emission[k] = Mux(depthwise, behind // field(now, "DEPTHWISE", f"step{k}"), at[k])
    emits = ~depthwise | Cat(counts_of).all()
    if c.window_pairs:
        strides = [loops.values[f"{a}_stride"][0] for a in ("act", "wgt")]
        apart = (strides[0].as_unsigned() % c.act_banks != 0) & (strides[1] == 0)
        apart &= field(now, "DEPTHWISE", "delay") != 1
        silent = ~(past_start(0, index[0])[0] & past_start(1, index[1])[0])
        more = (index[0] + 1 < loops.values["count"][0]) & Cat(index).any()
        b.m.d.comb += twice.eq(depthwise & apart & silent & more)
    rows: dict[str, Value] = {}
    for a in ADDRESSES:
        places = {"act": index, "wgt": at, "acc": emission}[a]
        walked = [
            place[:bits] * stride[:bits].as_unsigned() for place, stride in zip(places, loops.values[f"{a}_stride"])
        ]
        if a == "acc":
            walked = [Mux(o, x, 0) for o, x in zip(outer, walked)]
        rows[a] = reduce(add, walked, parameter(a))[:bits]
    if c.window_pairs:
        rows["second"] = (rows["act"] + loops.values["act_stride"][0].as_unsigned())[:bits]
    # Elements of ACC before the row.
    first_element = rows["acc"] * Mux(depthwise, c.dw_lanes, c.block_out)
    place, lane = first_element // max(c.block_in, c.block_out), first_element % max(c.block_in, c.block_out)
    wrong = [
        ("act", rows["act"] >= c.act_rows),
        *([("second", twice & (rows["second"] >= c.act_rows))] if c.window_pairs else []),
        ("wgt", emits & (rows["wgt"] >= c.wgt_tiles)),
        ("acc", emits & (first_element >= c.acc_rows * c.block_out)),
    ]

    runs = good & ~control.halt
    here = runs & busy
    product = here & ~sync
    b.check(
        "control",
        implies(runs, control.ready == (~busy | final)),
        "`GemmSteps`: one step in every cycle from the one behind the start of an instruction, as many as"
        " its loops have, one for GEMM_SYNC; ready with the last; none once it is halted or has an error",
        Cut("steps.null"),
    )
    b.check("control", implies(good, steps.step == here) & implies(steps.fault.error, ~steps.step))
    b.check("control", implies(good, steps.end == (steps.step & final)))
    b.check("control", implies(good, steps.mac == (steps.step & ~sync)) & implies(here, steps.current_pc == pc))
    instructions(b, control, steps, good, functools.partial(b.check, "control"))
    for k in levels:
        b.invariant(implies(here, plain.index[k] == index[k]))
    b.check(
        "reads",
        implies(runs, (steps.act_read == product) & (steps.wgt_read == (product & emits))),
        "GEMM, DEPTHWISE: a step reads ACT row `act` + sum of index * stride and, if it counts, WGT tile "
        "`wgt` + sum of index * stride",
        Cut("steps.wgt_row"),
    )
    b.check("reads", implies(product, (steps.act_row == rows["act"]) & implies(emits, steps.wgt_row == rows["wgt"])))
    if c.window_pairs:
        b.state(
            "pairs",
            "DEPTHWISE: a push without output is made with the next one of its line by the rule of `window_pairs`",
            Cut("steps.next_allowed"),
        )
        b.check("pairs", implies(product, (steps.twice == twice) & implies(twice, steps.act_second == rows["second"])))
    b.check(
        "emits",
        implies(product, steps.emits == emits),
        "DEPTHWISE: a step counts if for levels 0 and 1 i >= start and (i - start) mod step = 0; GEMM: every step",
        Cut("steps.hit0"),
    )
    b.check(
        "place",
        implies(product & emits, steps.row == place),
        "the row and the column of ACC of a group are those of `acc` + sum of index * stride over the "
        "levels that are not summed, for DEPTHWISE of (i - start) / step * stride on levels 0 and 1",
        Cut("steps.acc_gate"),
    )
    if max(c.block_in, c.block_out) > c.dw_lanes:
        whole = (c.block_out > c.dw_lanes) & ~depthwise
        b.check("place", implies(product & emits & ~whole, steps.column == lane // c.dw_lanes))
    b.check(
        "groups",
        implies(product, steps.depthwise == depthwise),
        "GEMM: a group is the steps of the innermost `reduce` levels, one behind the other, with one row "
        "and one `accumulate`; DEPTHWISE: every step is one",
        Cut("steps.inner"),
    )
    b.check("groups", implies(product, steps.accumulate == parameter("accumulate")))
    for port, ends in (("first", [i == 0 for i in at]), ("last", at_end)):
        b.check("groups", implies(product, getattr(steps, port) == Cat(o | e for o, e in zip(outer, ends)).all()))
    groups(b, steps, good, functools.partial(b.check, "groups"))
    b.state(
        "windows",
        "DEPTHWISE: `clear` is with the first step of an instruction and no other; slice and delay are its own",
        Cut("steps.clear"),
    )
    windows(b, c, steps, good, functools.partial(b.check, "windows"))
    b.check("windows", implies(product & depthwise, steps.clear == ~Cat(index).any()))
    if c.dw_slices > 1:
        b.check("windows", implies(product & depthwise, steps.slice == field(now, "DEPTHWISE", "slice")))
    if c.delay_lines:
        b.check("windows", implies(product & depthwise, steps.delay == field(now, "DEPTHWISE", "delay")))
    # The first of ACT, WGT, ACC is reported a cycle later, with the instruction.
    before = ~b.past(~good, "had_error")
    bad = b.past(good & steps.mac & Cat(w for _, w in wrong).any(), "was_bad")
    row = reduce(lambda rest, case: Mux(case[1], rows[case[0]], rest), reversed(wrong), C(0, bits))
    b.check(
        "faults",
        implies(before, steps.fault.error == bad),
        "a row beyond its memory is reported in the cycle behind its step, with the instruction; of "
        "several in one step ACT before WGT before ACC; WGT and ACC of DEPTHWISE only where a step counts",
        Cut("steps.beyond"),
    )
    said = (steps.fault.pc == b.past(pc, "bad_pc")) & (steps.fault.address == b.past(row, "bad_row"))
    b.check("faults", implies(before & steps.fault.error, said))
    return b
