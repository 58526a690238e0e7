"""Bench of WGT: what is read is what was written last, plain chunks, rows of fill and chunks of 4-bit weights."""

from __future__ import annotations

from amaranth.hdl import Cat, Mux, Signal

from tilewright.hw import sizes
from tilewright.hw.memory.scratchpads import WeightScratchpad
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import WGT_READ_CYCLES
from verification.formal.bench import Bench, implies, opened, stored
from verification.formal.engine import Cut
from verification.formal.transfer.move_benches import MOVES_PACKED


def weights(only: str | None, c: NpuConfig = MOVES_PACKED) -> Bench:
    """A byte of a tile is followed from the write that sets it to the reads of its tile."""
    b = Bench(only)
    wgt = WeightScratchpad(c)
    memories = opened(wgt).submodules
    b.part("wgt", wgt)
    write, read, bus = wgt.write, wgt.read, c.bus_bytes
    tile, at = b.constant(len(write.row), "tile"), b.constant(range(c.tile_bytes), "at")
    b.assume((at < c.tile_bytes) & (tile < c.wgt_tiles) & (write.row < c.wgt_tiles) & (read.row < c.wgt_tiles))
    b.assume(implies(write.valid & write.packed, ~write.full & (write.chunk < c.packed_tile_bytes // bus)))
    value, known = Signal(8, name="value"), Signal(name="known")
    # Of 4-bit weights a byte in memory is two of the tile, the lower half first, with its sign.
    half = Signal(4, name="half")
    place = Mux(write.packed, write.chunk * 2 * bus, write.chunk * bus)
    reach = Mux(write.packed, 2 * bus, bus)
    b.m.d.comb += half.eq(write.data.word_select((at - place)[: (2 * bus - 1).bit_length()], 4))
    plain = write.data.word_select(at[: (bus - 1).bit_length()], 8)
    hits = write.valid & (write.row == tile) & (write.full | ((at >= place) & (at < place + reach)))
    with b.m.If(hits):
        b.m.d.sync += [known.eq(1), value.eq(Mux(write.packed, half.as_signed(), plain))]
    reads = b.past(read.valid & (read.row == tile) & known, "reads", WGT_READ_CYCLES)
    found = Signal(8 * c.tile_bytes, name="found")
    b.m.d.comb += found.eq(Cat(read.data[o] for o in range(c.block_out)))
    b.check(
        "weights",
        implies(reads, found.word_select(at, 8) == b.past(value, "was_value", WGT_READ_CYCLES)),
        "LOAD_PACKED: half h of byte p of a tile is weight 2 * p + h, with its sign; other weights stay as they are",
        Cut("wgt.enable"),
    )
    shape = sizes.weights(c)
    columns = [
        stored(b, memories[f"wgt{n}"]).word_select(tile, shape.width) for n in range(8 * c.tile_bytes // shape.width)
    ]
    there = Signal(8 * c.tile_bytes, name="there")
    b.m.d.comb += there.eq(Cat(columns))
    b.invariant(implies(known, there.word_select(at, 8) == value))
    return b
