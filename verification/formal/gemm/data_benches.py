"""Benches of the data of GEMM and DEPTHWISE: from the rows that come for a step to the row of ACC that is written.

How the proofs chain: `gemm_nest` and `gemm_steps` say which rows of ACT and WGT a step reads, whether it counts, and
which row of ACC its group has. `gemm_window` says that the array is given what came for these reads, `gemm_array` what
it makes of that, `gemm_sums` what becomes of the products: so ACC[acc] = (accumulate ? ACC[acc] : 0) + sum of
WGT[wgt] times ACT[act], or times the window. `gemm_retire` says when an instruction is reported complete.

Here the steps are cut out of `Gemm`: they are free but for what `gemm_steps` proves of them (groups, `clear`). The data
of ACT and WGT are free in every cycle; of ACC one column of one row is tracked, which the solver chooses, all others
are free, as is what a read returns of a row that is written in its cycle. What comes after an error does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, Value, signed

from tilewright.hw.gemm.array import PACKED_OFFSET, PACKED_SHIFT, MacArray, byte, packed
from tilewright.hw.gemm.gemm import Gemm
from tilewright.hw.interfaces import SEMAPHORE_BITS
from tilewright.hw.table import header
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.timing import (
    ACT_READ_CYCLES,
    GIVE_CYCLES,
    TAKE_CYCLES,
    array_stages,
    gemm_depth,
    gemm_signal,
)
from verification.formal.bench import Bench, contents, implies, opened, registers
from verification.formal.engine import Cut
from verification.formal.machines import SMALL

#: As many outputs as inputs; more, so that DEPTHWISE writes a column of a row; fewer, so that GEMM does as well.
SQUARE = SMALL.with_(name="formal_4x4")
TALL = SMALL.with_(name="formal_4x8", block_out=8)
FLAT = SMALL.with_(name="formal_8x4", block_in=8, window_delay=3)
#: With two outputs to a product: DEPTHWISE has half of them, or all that it has lanes for.
PACKED = SMALL.with_(name="formal_packed", block_in=8, block_out=8, packed_products=1)
TALL_PACKED = TALL.with_(name="formal_tall_packed", packed_products=1)
#: With two pushes in a step, without and with delay lines.
PAIRS = SQUARE.with_(name="formal_pairs", window_pairs=1)
FLAT_PAIRS = FLAT.with_(name="formal_flat_pairs", window_pairs=1)


def _gemm(b: Bench, c: NpuConfig, **inputs: Any) -> tuple[Gemm, Any, Value]:
    """GEMM whose steps and products are cut out, the steps, and whether there was no error until this cycle."""
    gemm = Gemm(c)
    steps = opened(gemm).submodules.steps
    b.cut(steps, "steps", row=2)
    b.cut(gemm.array, "array")
    b.part("gemm", gemm, **inputs)
    b.assume(implies(steps.mac | steps.end, steps.step) & implies(steps.step, ~steps.fault.error))
    return gemm, steps, no_error(b, steps)


def no_error(b: Bench, steps: Any) -> Value:
    """Returns whether there was no error until this cycle. The engine is halted only some cycles behind one."""
    stopped = Signal(name="stopped")
    with b.m.If(steps.fault.error):
        b.m.d.sync += stopped.eq(1)
    return ~(stopped | steps.fault.error)


def groups(b: Bench, steps: Any, good: Value, require: Callable[[Value], None]) -> dict[str, Value]:
    """Requires that a group begins with `first` and ends with `last`, and that what belongs to it stays. Returns what
    is known of the group that has begun before this cycle."""
    begun, mac = Signal(name="begun"), steps.mac & good
    group: dict[str, Value] = {"begun": begun}
    for name in ("depthwise", "accumulate", "row", "column"):
        value = getattr(steps, name)
        group[name] = kept = Signal.like(value, name=f"group_{name}")
        with b.m.If(mac):
            b.m.d.sync += kept.eq(value)
        require(implies(mac & begun, value == kept))
    with b.m.If(mac):
        b.m.d.sync += begun.eq(~steps.last)
    require(implies(mac, steps.first == ~begun))
    require(implies(mac & steps.depthwise, steps.first & steps.last))
    require(implies(mac & ~steps.depthwise, steps.emits))
    b.invariant(implies(begun, ~group["depthwise"]))
    return group


def windows(b: Bench, c: NpuConfig, steps: Any, good: Value, require: Callable[[Value], None]) -> Value:
    """Requires that DEPTHWISE begins with `clear`, has one slice and one delay until the next, and that GEMM makes a
    product in every step. Returns whether the last step was one of DEPTHWISE."""
    mac, depthwise, shifts = steps.mac & good, steps.depthwise, Signal(name="shifts")
    with b.m.If(mac):
        b.m.d.sync += shifts.eq(depthwise)
    require(implies(mac & depthwise & ~shifts, steps.clear))
    for name in ("slice", *(["delay"] if c.delay_lines else [])):
        value = getattr(steps, name)
        kept = Signal.like(value, name=f"kept_{name}")
        with b.m.If(mac):
            b.m.d.sync += kept.eq(value)
        require(implies(mac & depthwise & ~steps.clear, value == kept))
    require(implies(mac & depthwise, steps.slice < c.dw_slices))
    require(implies(mac & ~depthwise, steps.emits))
    if c.window_pairs:
        apart = steps.delay != 1 if c.delay_lines else C(1, 1)
        require(implies(mac & steps.twice, depthwise & ~steps.clear & apart))
    return shifts


def instructions(
    b: Bench, control: Any, steps: Any, good: Value, require: Callable[[Value], None]
) -> tuple[Signal, Signal]:
    """Requires that there are steps of one instruction at a time, which ends once, and of which the number is known.
    Returns how many have started and ended."""
    started, ended = Signal(8, name="starts"), Signal(8, name="ended")
    b.m.d.sync += [started.eq(started + control.start), ended.eq(ended + steps.end)]
    active = started != ended
    require(implies(good & (steps.step | steps.end), active) & implies(steps.end, steps.step))
    require(implies(good & control.start, ~active | steps.end))
    number = b.past(control.pc, "pc")
    require(implies(b.past(control.start, "begins"), steps.current_pc == number))
    b.invariant(implies(good, (started - ended)[:8] <= 1))
    return started, ended


def _counts(b: Bench, steps: Any, cycles: int) -> Value:
    """Returns whether there was a step so many cycles ago whose product counts, and which has no row beyond its
    memory."""
    return b.past(steps.mac & steps.emits, "product", cycles) & ~b.past(steps.fault.error, "wrong", cycles - 1)


def gemm_window(only: str | None, c: NpuConfig = SQUARE) -> Bench:
    """States which window vectors the array is given for a step. The solver marks one vector at a time: its place
    follows from the pushes since then."""
    b = Bench(only)
    gemm, steps, good = _gemm(b, c)
    lanes = c.dw_lanes
    shifts = windows(b, c, steps, good, b.assume)

    def at(name: str, stage: int) -> Value:
        return b.past(getattr(steps, name), name, stage)

    # The vector comes ACT_READ_CYCLES after the step, and is in the window a cycle later.
    read, operand = ACT_READ_CYCLES, ACT_READ_CYCLES + 1
    vector, delay = gemm.act.data, Signal(range(c.window_delay + 1), name="delay")
    part, delays = at("slice", read), at("delay", read) if c.delay_lines else 0
    newest = vector.word_select(part, 8 * lanes)
    second = gemm.second.data.word_select(part, 8 * lanes) if c.window_pairs else newest
    pushed, clears = at("mac", read) & at("depthwise", read), at("clear", read)
    oldest = c.block_in - 1 + c.window_delay * c.delay_lines
    # Pushes of the instruction, and those behind the marked one; both stay at a number that no slot waits for.
    pushes, behind = (Signal(range(oldest + 3), name=name) for name in ("pushes", "behind"))
    there, marked, mark = Signal(name="there"), Signal(8 * lanes, name="marked"), b.free(1, "mark")
    most = oldest + 2
    twice = at("twice", read) if c.window_pairs else C(0, 1)
    more = Mux(twice, 2, 1)
    with b.m.If(pushed):
        b.m.d.sync += pushes.eq(Mux(clears, 1, Mux(pushes + more > most, most, pushes + more)))
        b.m.d.sync += behind.eq(Mux(behind + more > most, most, behind + more))
        with b.m.If(clears):
            b.m.d.sync += [there.eq(0), delay.eq(delays)]
        with b.m.If(mark):
            b.m.d.sync += [there.eq(1), behind.eq(twice), marked.eq(newest)]
        if c.window_pairs:
            with b.m.If(twice & b.free(1, "mark_second")):
                b.m.d.sync += [there.eq(1), behind.eq(0), marked.eq(second)]
    shifting = Signal(name="shifting")  # the last step was one of DEPTHWISE
    with b.m.If(at("mac", read)):
        b.m.d.sync += shifting.eq(pushed)
    array, fine = gemm.array, b.past(good, "good", operand)
    counts = fine & _counts(b, steps, operand)
    b.check(
        "products",
        implies(fine, array.valid == counts),
        "`Gemm`: the array is given a product for every step that counts and has no row beyond its memory, no other",
        Cut("gemm.made_1"),
    )
    given, depthwise = b.past(vector, "vector"), at("depthwise", operand)
    for i, slot in enumerate(array.slots):
        every = Cat(given.word_select(i, 8) for _ in range(len(slot) // 8))
        b.check(
            "activations",
            implies(counts & ~depthwise, slot == every),
            "GEMM: operand i of every output is activation i of the ACT row that came for the step",
            Cut("gemm.window.slot0"),
        )
        age = Signal(range(oldest + 1), name=f"age{i}")
        b.m.d.comb += age.eq(i + delay * (i // c.window_segment))
        holds = implies(pushes <= age, slot == 0) & implies(there & (behind == age), slot == marked)
        b.check(
            "window",
            implies(counts & depthwise, holds),
            "DEPTHWISE: slot i has, of the slice, the vector pushed i + delay * floor(i / S) pushes before, "
            "zero where the instruction has made fewer",
            Cut("gemm.window.slot1"),
        )
        b.invariant(implies(fine & shifting, holds))
    b.invariant(implies(fine & shifting, pushes != 0) & (pushes <= most) & (behind <= most))
    b.invariant(implies(fine & b.past(shifts, "shifts", read), shifting))
    b.invariant(implies(fine & shifting & there, (behind < pushes) | (behind == most)))
    for o, row in enumerate(array.rows):
        b.check(
            "weights",
            implies(counts, row == b.past(gemm.wgt.data[o], f"weights{o}")),
            "`Gemm`: the weights are those of the tile that came for the step",
            Cut("gemm.tile1"),
        )
    b.check(
        "reads",
        (gemm.act.valid == steps.act_read) & (gemm.act.row == steps.act_row),
        "`Gemm`: ACT and WGT are asked for the rows that the step names, in its cycle",
    )
    if c.window_pairs:
        asks = gemm.second.valid == (steps.act_read & steps.twice)
        b.check("reads", asks & (gemm.second.row == steps.act_second))
    b.check("reads", (gemm.wgt.valid == steps.wgt_read) & (gemm.wgt.row == steps.wgt_row))
    return b


def _sum_in_fours(terms: list[Value]) -> Value:
    """The sum of terms. The order makes no difference to the value, but to the solver."""
    sums = [reduce(add, terms[n : n + 4]) for n in range(0, len(terms), 4)]
    return reduce(add, sums)


def gemm_array(only: str | None, c: NpuConfig = SQUARE) -> Bench:
    """Products that come whenever they like."""
    b = Bench(only)
    array = b.part("array", MacArray(c))
    stages = array_stages(c)
    given = b.past(array.valid, "valid", stages)
    for o, (row, total) in enumerate(zip(array.rows, array.sums)):
        terms: list[Value] = []
        for i, slot in enumerate(array.slots):
            weight = row.word_select(i, 8).as_signed()
            terms.append(weight * slot.word_select(o % c.dw_lanes if c.depthwise else 0, 8).as_signed())
        b.check(
            "sums",
            implies(given, total == b.past(_sum_in_fours(terms), f"sum{o}", stages)),
            "`MacArray`: a product given in cycle t is there in t + `array_stages`: for every output the sum "
            "of weight times operand, signed",
            Cut("array.valid1"),
        )
    return b


def gemm_packed(only: str | None) -> Bench:
    """Weights of two outputs as one. That products of sums are sums of products needs no proof."""
    b = Bench(only)
    upper, lower = (b.free(signed(8), name) for name in ("upper", "lower"))
    factor = Signal(signed(PACKED_SHIFT + 8), name="factor")
    b.m.d.comb += factor.eq(packed(upper, lower))
    b.check(
        "factor",
        factor == (upper << PACKED_SHIFT) + lower + PACKED_OFFSET,
        "`packed`: two weights are one factor of 25 bits, the upper one times 2 ** 17, plus the lower one, plus 128",
        Cut("factor"),
    )
    return b


def gemm_unpacked(only: str | None, c: NpuConfig) -> Bench:
    """Products of two outputs each, free but for what `gemm_packed` proves of them. Lower outputs count in GEMM only,
    whose slots hold one activation each."""
    b = Bench(only)
    uppers: dict[tuple[int, int], Value] = {}
    lowers: dict[tuple[int, int], Value] = {}

    class Free(MacArray):
        def product(self, m: Module, o: int, i: int) -> Value:
            upper, lower = (b.free(signed(16), f"{name}{o}_{i}") for name in ("upper", "lower"))
            odd = self.operand(o, i)[0] & byte(self.rows[o], i)[0]
            b.assume((upper >= -128 * 127) & (upper <= 128 * 128) & (upper[0] == b.past(odd, f"odd{o}_{i}")))
            b.assume((lower >= -128 * 255) & (lower <= 127 * 255))
            uppers[o, i], lowers[o, i] = upper, lower
            return (upper << PACKED_SHIFT) + lower

    array = b.part("array", Free(c))
    opened(array)
    stages = array_stages(c)
    given = b.past(array.valid, "valid", stages)
    activations = _sum_in_fours([slot[:8].as_signed() for slot in array.slots])
    offset = b.past(activations, "activations", stages) * PACKED_OFFSET
    for o in range(c.block_out // 2):
        for name, products, place in (("upper", uppers, o), ("lower", lowers, o + c.block_out // 2)):
            terms = [products[o, i] for i in range(c.block_in)]
            total = b.past(_sum_in_fours(terms), f"{name}{o}", stages - 1)
            if name == "lower":
                total = (total - offset)[: array.sum_bits].as_signed()
            b.check(
                "sums",
                implies(given, array.sums[place] == total),
                "`MacArray`, of products of two outputs each: the sums are those of the products with the upper "
                "weights, and with the lower ones less 128 times the activations, `array_stages` cycles later",
                Cut("array.valid1"),
            )
    return b


def gemm_sums(only: str | None, c: NpuConfig = SQUARE) -> Bench:
    """One column of one row of ACC, beside a sum that is complete in the cycle in which the array has the products of a
    step, which are free."""
    b = Bench(only)
    lanes, columns = c.dw_lanes, max(c.block_in, c.block_out) // c.dw_lanes
    row, column = b.constant(ADDRESS_BITS, "row"), b.constant(range(columns), "column")
    b.assume(column < columns)
    initial, width = b.constant(32 * lanes, "initial"), 32 * lanes
    data = [Signal(width, name=f"acc_data{n}") for n in range(columns)]
    gemm, steps, good = _gemm(b, c, **{f"acc__data__{n}": value for n, value in enumerate(data)})
    sums = registers(opened(gemm.accumulate))
    group = groups(b, steps, good, b.assume)
    depth = gemm_depth(c)

    # What ACC holds in the place, which a read shows a cycle later.
    write, held, touched = gemm.acc_write, Signal(width, name="held"), Signal(name="touched")
    writes, written = write.mask.bit_select(column, 1) & (write.row == row), Array(write.data)[column]
    content = Mux(touched, held, initial)
    with b.m.If(writes):
        b.m.d.sync += [held.eq(written), touched.eq(1)]
    shows = b.past(gemm.acc.valid & (gemm.acc.row == row) & ~writes, "shows")
    shown = b.past(content, "shown")
    for n, value in enumerate(data):
        b.m.d.comb += value.eq(Mux(shows & (column == n), shown, b.free(width, f"other{n}")))

    def at(name: str) -> Value:
        return b.past(getattr(steps, name), name, depth)

    # A step, all at once, on what was written until then.
    fine = b.past(good, "good", depth)
    counts = fine & _counts(b, steps, depth)
    whole = (c.block_out > c.dw_lanes) & ~at("depthwise")  # the group has every column of its row
    mine = counts & (at("row") == row) & (whole | (at("column") == column))
    products = Cat(Cat(s, s[-1].replicate(32 - len(s))) for s in gemm.array.sums)
    products = products.word_select(Mux(whole, column, 0), width)
    total, result = Signal(width, name="total"), Signal(width, name="result")
    begins = Mux(at("accumulate"), Mux(writes, written, content), 0)
    for n in range(lanes):
        terms = [x.word_select(n, 32) for x in (Mux(at("first"), begins, total), products)]
        b.m.d.comb += result.word_select(n, 32).eq(terms[0] + terms[1])
    with b.m.If(mine):
        b.m.d.sync += total.eq(result)
    was_fine = b.past(good, "good", depth + 1)
    b.check(
        "writes",
        implies(was_fine, writes == b.past(mine & at("last"), "complete")),
        "`Gemm`: the columns that a group covers in its row of ACC are written when it is complete, once,"
        " in the order of the groups; nothing else is written",
        Cut("gemm.accumulate*.mask2"),
    )
    b.check(
        "sums",
        implies(was_fine & writes, written == total),
        "`Gemm`: what is written is (accumulate ? what was written there before : 0) + the sum of the "
        "group's products, in wrapping int32",
        Cut("gemm.accumulate*.forward"),
    )
    # The register with the sum is equal after every step of the place.
    part = Signal.like(column, name="part")  # of the sums of the array
    ours = Signal(name="ours")  # it was the last step
    with b.m.If(counts):
        b.m.d.sync += [part.eq(Mux(whole, column, 0)), ours.eq(mine)]
    running = Cat(sums[f"group{g}"] for g in range(gemm.accumulate.groups)).word_select(part, width)
    b.invariant(implies(was_fine & ours, running == total))
    begun = {name: b.past(value, f"group_{name}", depth) for name, value in group.items()}
    wholly = (c.block_out > c.dw_lanes) & ~begun["depthwise"]
    of_place = (begun["row"] == row) & (wholly | (begun["column"] == column))
    b.invariant(implies(begun["begun"] & fine, (ours == of_place) & implies(ours, part == Mux(wholly, column, 0))))
    return b


def gemm_retire(only: str | None, c: NpuConfig = SQUARE) -> Bench:
    """Instructions by number, of which the solver chooses one. The queue has room for more than the pipeline holds."""
    b = Bench(only)
    gemm, steps, good = _gemm(b, c)
    shell = opened(gemm)
    ends = shell.submodules.ends
    opened(ends)
    control, retire = gemm.control, gemm.retire
    started, ended = instructions(b, control, steps, good, b.assume)
    given, number = Signal(8, name="given"), b.constant(8, "number")
    b.m.d.sync += given.eq(given + retire.give)
    begun = b.past(control.start, "begun")
    said = Signal(2 * SEMAPHORE_BITS + len(control.pc), name="said")
    signals = Cat(header(control.word, "signal0"), header(control.word, "signal1"))
    with b.m.If(control.start & (started == number)):
        b.m.d.sync += said.eq(Cat(signals, control.pc))
    says = Cat(retire.signal0, retire.signal1, retire.pc)
    at_work = [b.past(steps.end, "end", n) for n in range(1, gemm_signal(c) + 1)]
    b.check(
        "once",
        implies(good, retire.give == at_work[-1]),
        "`Gemm`: an instruction is reported complete `gemm_signal` cycles after its last step, once",
        Cut("gemm.end_1"),
    )
    b.check(
        "order",
        implies(good & retire.give & (given == number), says == said),
        "`Gemm`: instructions are reported in the order of their starts, each with its index and the "
        "semaphores it signals",
        Cut("gemm.signals"),
    )
    b.check(
        "running",
        implies(good, gemm.activity.running == (started != given)),
        "`Gemm`: `running` exactly from the cycle after a start until the last one is reported",
        Cut("gemm.ends.held"),
    )
    b.invariant(implies(begun & ((started - 1)[:8] == number), said == ends.i_payload))
    b.invariant((ends.i_valid == begun) & implies(good & begun, started != ended))
    b.invariant(implies(good, (ended - given)[:8] == reduce(add, at_work)))
    b.invariant(implies(good, ends.level == (started - given - begun)[:8]))
    for n, (there, entry) in enumerate(contents(b, ends, "ends")):
        b.invariant(implies(good & there & ((given + n)[:8] == number), entry == said))
    held = registers(shell)  # when the queue has the ports that its contents are seen by
    for n, end in enumerate(at_work, 1):
        b.invariant(held[f"end_{n}"] == end)
    return b


def gemm_settled(only: str | None, c: NpuConfig = SQUARE) -> Bench:
    """Writes, each with the number of its instruction."""
    b = Bench(only)
    gemm, steps, good = _gemm(b, c)
    started, ended = instructions(b, gemm.control, steps, good, b.assume)
    given = Signal(8, name="given")
    b.m.d.sync += given.eq(given + gemm.retire.give)
    at_work = [b.past(steps.end, "end", n) for n in range(1, gemm_signal(c) + 1)]
    b.invariant(implies(good, (ended - given)[:8] == reduce(add, at_work)))
    # What the first step that the signals allow would miss: a write in its cycle or later.
    allowed = b.past(given, "given", GIVE_CYCLES + TAKE_CYCLES)
    ahead = b.past(started, "started", gemm_depth(c) + 1) - 1 - allowed  # numbers go round
    b.check(
        "settled",
        implies(good & gemm.acc_write.mask.any(), ~ahead[7]),
        "`Gemm`: the writes of an instruction come before the first step that its signals allow",
        Cut("gemm.end_1", 10),
    )
    return b
