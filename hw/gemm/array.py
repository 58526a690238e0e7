"""The multiplier array with its adder trees."""

from __future__ import annotations

from functools import reduce
from operator import add

from amaranth.hdl import Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import ARRAY_TREE_RADIX, array_stages


class MacArray(wiring.Component):
    """block_out dot products of block_in int8 pairs per cycle.

    Element (o, i) multiplies weight i of rows[o] by lane o mod D of slot i of the window (see there), with
    D = min(block_in, block_out); in DEPTHWISE outputs o >= D are meaningless. Without `depthwise` a slot has one lane.

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

        def byte(vector: Value, index: int) -> Value:
            return vector[8 * index : 8 * index + 8].as_signed()

        valid = self.valid
        levels: list[list[Signal]] = []
        for o in range(c.block_out):
            weights = self.rows[o]
            products = []
            for i in range(c.block_in):
                operand = byte(self.slots[i], o % c.dw_lanes if c.depthwise else 0)
                product = Signal(signed(16), name=f"product{o}_{i}", reset_less=True)
                m.d.sync += product.eq(operand * byte(weights, i))
                products.append(product)
            levels.append(products)

        stages = 1
        while len(levels[0]) > 1:
            later = Signal(name=f"valid{stages}")
            m.d.sync += later.eq(valid)
            valid = later
            for o, terms in enumerate(levels):
                sums = []
                for n in range(0, len(terms), ARRAY_TREE_RADIX):
                    group = terms[n : n + ARRAY_TREE_RADIX]
                    width = len(group[0]) + (len(group) - 1).bit_length()
                    total = Signal(signed(width), name=f"sum{stages}_{o}_{n}", reset_less=True)
                    with m.If(valid):
                        m.d.sync += total.eq(reduce(add, group))
                    sums.append(total)
                levels[o] = sums
            stages += 1
        assert stages == array_stages(c), (stages, array_stages(c))
        m.d.comb += [self.sums[o].eq(terms[0]) for o, terms in enumerate(levels)]
        return m
