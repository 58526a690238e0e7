"""The memory regions, as the host set them and the engines look them up."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from tilewright.hw.connections import unread
from tilewright.hw.interfaces import RegionLookup, RegisterWrite
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import REGIONS
from tilewright.isa.registers import REGISTER

#: Registers of a region, in order.
KINDS = ("BASE_LO", "BASE_HI", "SIZE", "FLAGS")
_FIRST = REGISTER["REGION0_BASE_LO"].offset >> 2
for _number in range(REGIONS):
    for _place, _kind in enumerate(KINDS):
        assert REGISTER[f"REGION{_number}_{_kind}"].offset >> 2 == _FIRST + len(KINDS) * _number + _place


class Regions(wiring.Component):
    """Holds the registers of regions, a RAM for each kind. A region begins at a whole beat: the lowest bits of its base
    are 0.

    Latency: 0 cycles from `number` to base, size and permissions; a write of cycle t is seen from t+1 on.

    Ports:
        write: every register that is written; those of no region are ignored.
        load, store: two readers.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        lookup = RegionLookup(config)
        super().__init__({"write": In(RegisterWrite()), "load": In(lookup), "store": In(lookup)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        low = (c.bus_bytes - 1).bit_length()  # bits of a base that are 0
        place = Signal(len(self.write.word))
        m.d.comb += place.eq(self.write.word - _FIRST)
        mine = self.write.valid & (self.write.word >= _FIRST) & (place < len(KINDS) * REGIONS)
        kind_bits = (len(KINDS) - 1).bit_length()
        number = place[kind_bits:][: (REGIONS - 1).bit_length()]
        readers = (self.load, self.store)

        def kept(kind: str, first: int, bits: int) -> list[Value]:
            """Makes the RAM of one kind: `bits` of its register from bit `first` on. Returns the word of each
            reader."""
            m.submodules[kind.lower()] = store = Memory(shape=Shape(bits), depth=REGIONS, init=[])
            write = store.write_port()
            m.d.comb += [
                write.en.eq(mine & (place[:kind_bits] == KINDS.index(kind))),
                write.addr.eq(number),
                write.data.eq(self.write.data[first:]),
            ]
            found: list[Value] = []
            for reader in readers:
                read = store.read_port(domain="comb")
                m.d.comb += read.addr.eq(reader.number)
                found.append(read.data)
            return found

        bases = [Cat(C(0, low), value) for value in kept("BASE_LO", low, min(32, c.axi_address_bits) - low)]
        if c.axi_address_bits > 32:
            bases = [Cat(b, high) for b, high in zip(bases, kept("BASE_HI", 0, c.axi_address_bits - 32), strict=True)]
        sizes = kept("SIZE", 0, c.offset_bits)
        flags = {b.name: b.low for b in REGISTER["REGION0_FLAGS"].bits}
        allowed = kept("FLAGS", 0, max(flags.values()) + 1)
        for reader, base, size, flag in zip(readers, bases, sizes, allowed, strict=True):
            m.d.comb += [
                reader.base.eq(base),
                reader.size.eq(size),
                reader.read.eq(flag[flags["READ"]]),
                reader.write.eq(flag[flags["WRITE"]]),
            ]
        unread(m, self.write.data)  # not all bits of flags and bases
        return m
