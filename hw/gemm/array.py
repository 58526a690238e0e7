"""The multiplier array with its adder trees."""

from __future__ import annotations

from functools import reduce
from operator import add, xor

from amaranth.hdl import C, Cat, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.parts.pipeline import delayed
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import ARRAY_TREE_RADIX, array_stages

#: Bits by which one of two weights stands above the other where they share a product: the factor then has 25.
PACKED_SHIFT = 17
#: What is added to the lower weight, so that it is not negative and takes nothing from the upper one.
PACKED_OFFSET = 128


class MacArray(wiring.Component):
    """block_out dot products of block_in int8 pairs per cycle.

    Element (o, i) multiplies weight i of rows[o] by lane o mod D of slot i of the window (see there), with
    D = `dw_lanes`; in DEPTHWISE outputs o >= D are meaningless. Without `depthwise` a slot has one lane.

    With `packed_products` outputs o and o + block_out / 2 share their products, for which see `packed`, `unpacked`.

    Latency: `array_stages(config)` cycles: one for the products, one for every two levels of the adder tree.

    Ports:
        valid, rows, slots: operands.
        sums: dot products, `array_stages` cycles later.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.sum_bits = 16 + (config.block_in - 1).bit_length()
        super().__init__(
            {
                "valid": In(1),
                "rows": In(8 * config.block_in).array(config.block_out),
                "slots": In(8 * (config.dw_lanes if config.depthwise else 1)).array(config.block_in),
                "sums": Out(signed(self.sum_bits)).array(config.block_out),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        half = c.block_out // 2
        valid = self.valid
        levels: list[list[Value]] = []
        for o in range(half if c.packed_products else c.block_out):
            levels.append([self.product(m, o, i) for i in range(c.block_in)])

        stages = 1
        offsets: list[Value] = []
        while len(levels[0]) > 1:
            later = Signal(name=f"valid{stages}")
            m.d.sync += later.eq(valid)
            valid = later
            for o, terms in enumerate(levels):
                sums: list[Value] = []
                for n in range(0, len(terms), ARRAY_TREE_RADIX):
                    group = terms[n : n + ARRAY_TREE_RADIX]
                    width = len(group[0]) + (len(group) - 1).bit_length()
                    total = Signal(signed(width), name=f"sum{stages}_{o}_{n}", reset_less=True)
                    if offsets and o >= half:
                        group = [*group, -offsets[n // ARRAY_TREE_RADIX]]
                    with m.If(valid):
                        m.d.sync += total.eq(reduce(add, group))
                    sums.append(total)
                levels[o] = sums
            offsets = []
            if c.packed_products and stages == 1:
                levels, offsets = self._unpack(m, levels)
            stages += 1
        assert stages == array_stages(c), (stages, array_stages(c))
        for o, terms in enumerate(levels):
            m.d.comb += self.sums[o].eq(terms[0] - offsets[0] if offsets and o >= half else terms[0])
        return m

    def product(self, m: Module, o: int, i: int) -> Value:
        """Makes the register of a product: operand i of output o, times its weight, or that of two outputs."""
        weight = byte(self.rows[o], i)
        if self.config.packed_products:
            weight = packed(weight, byte(self.rows[o + self.config.block_out // 2], i))
        product = Signal(signed(8 + len(weight)), name=f"product{o}_{i}", reset_less=True)
        m.d.sync += product.eq(self.operand(o, i) * weight)
        return product

    def operand(self, o: int, i: int) -> Value:
        """Operand i of output o."""
        return byte(self.slots[i], o % self.config.dw_lanes if self.config.depthwise else 0)

    def _unpack(self, m: Module, levels: list[list[Value]]) -> tuple[list[list[Value]], list[Value]]:
        """Takes the first sums apart. Returns those of all outputs, and what is to be subtracted from each sum of
        `ARRAY_TREE_RADIX` of them with lower weights: these count in GEMM only, where all lanes of a slot are the same.
        """
        c, radix = self.config, ARRAY_TREE_RADIX
        upper, lower = [], []
        for o, totals in enumerate(levels):
            parts = []
            for n, total in enumerate(totals):
                odd = reduce(
                    xor, (self.operand(o, i)[0] & byte(self.rows[o], i)[0] for i in range(n * radix, (n + 1) * radix))
                )
                parts.append(unpacked(total, delayed(m, odd, 2, f"odd{o}_{n}")))
            upper.append([high for high, _ in parts])
            lower.append([low for _, low in parts])
        ones = [self.operand(0, i) for i in range(c.block_in)]
        fours = [delayed(m, reduce(add, ones[n : n + radix]), 1, f"four{n}") for n in range(0, len(ones), radix)]
        groups = [fours[n : n + radix] for n in range(0, len(fours), radix)]
        offsets = [delayed(m, reduce(add, group), 1, f"group{n}") for n, group in enumerate(groups)]
        return upper + lower, [offset * PACKED_OFFSET for offset in offsets]


def byte(vector: Value, index: int) -> Value:
    """An int8 of a row."""
    return vector[8 * index : 8 * index + 8].as_signed()


def packed(upper: Value, lower: Value) -> Value:
    """Two int8 weights as one of 25 bits, upper * 2 ** PACKED_SHIFT + lower + PACKED_OFFSET: only a bit is inverted."""
    return Cat(lower[:7], ~lower[7], C(0, PACKED_SHIFT - 8), upper).as_signed()


def unpacked(total: Value, odd: Value) -> tuple[Value, Value]:
    """Takes the sum of four products of int8 with `packed` weights apart.

    The lower sum has 18 bits, one more than there are below the upper one. Its sign is what the last bit of the upper
    field differs by from that of the upper sum, which it has been subtracted from where negative.

    Args:
        odd: the last bit of the upper sum.

    Returns:
        The sum with the upper weights, and that with the lower ones, which has PACKED_OFFSET times the activations in
        it.
    """
    negative = total[PACKED_SHIFT] ^ odd
    upper = (total[PACKED_SHIFT:].as_signed() + negative)[: len(total) - PACKED_SHIFT].as_signed()
    return upper, Cat(total[:PACKED_SHIFT], negative).as_signed()
