"""The activation scratchpad: banks, read and write arbitration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw import sizes
from tilewright.hw.connections import unread
from tilewright.hw.interfaces import bits_for
from tilewright.hw.memory.scratchpad_ports import RowsRead, RowWrite, ScratchpadRead, ScratchpadWrite
from tilewright.hw.memory.scratchpads import memory
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.timing import ACT_READ_CYCLES


def readers_of(config: NpuConfig) -> tuple[str, ...]:
    """The readers in priority order."""
    return ("gemm", *(["gemm_second"] if config.window_pairs else []), "vector_a", "vector_b", "store")


class ActivationScratchpad(wiring.Component):
    """ACT: rows of block_in int8; row r lives in bank r mod act_banks; each bank has one read and one write port.

    A read is refused if a reader before it in `readers_of` asks for the same bank in the same cycle (whether or not
    that reader can use it). GEMM never asks for two rows in one bank, nor does VECTOR. STORE asks for as many rows as a
    beat holds and gets those before the first one refused. A write of LOAD is refused if VECTOR writes one of its
    banks. Refused requests are repeated by the requester.

    Latency: read ACT_READ_CYCLES; a row written in cycle t is seen by reads of cycle t+1.

    Ports:
        gemm, gemm_second, vector_a, vector_b: reads of a row.  store: reads of as many rows as a beat holds.
        vector_write: whole rows, never refused.
        load: a chunk of a row, `rows` rows (bus wider than a row), or with `full` one whole row of repeated data.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.chunks = max(1, config.block_in // config.bus_bytes)
        self.rows_per_beat = max(1, config.bus_bytes // config.block_in)
        row = 8 * config.block_in
        super().__init__(
            {
                "gemm": In(ScratchpadRead(Out(row))),
                **({"gemm_second": In(ScratchpadRead(Out(row)))} if config.window_pairs else {}),
                "vector_a": In(ScratchpadRead(Out(row), refusable=True)),
                "vector_b": In(ScratchpadRead(Out(row), refusable=True)),
                "store": In(RowsRead(row, self.rows_per_beat)),
                "vector_write": In(RowWrite(row)),
                "load": In(ScratchpadWrite(config, self.chunks, rows=self.rows_per_beat, refusable=True)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        bank_bits = (c.act_banks - 1).bit_length()

        def bank(row: Value) -> Value:
            return row[:bank_bits]

        names = readers_of(c)
        readers = [getattr(self, name) for name in names]
        last = len(readers) - 1

        def free(before: Sequence[Any], its_bank: Value) -> Value:
            """Returns a bit: none of these readers asks for this bank."""
            return ~Cat((r.valid & (bank(r.row) == its_bank) for r in before), C(0, 1)).any()

        store = self.store
        for reader in (self.vector_a, self.vector_b):  # never in one bank
            m.d.comb += reader.grant.eq(free(readers[: last - 2], bank(reader.row)))
        so_far = free(readers[:last], bank(store.row))
        m.d.comb += store.grant.eq(so_far)
        for k in range(1, self.rows_per_beat):
            following, reached = Signal(bank_bits, name=f"store_bank{k}"), Signal(name=f"store_reached{k}")
            m.d.comb += [
                following.eq(store.row + k),
                reached.eq(so_far & (store.more >= k) & free(readers[:last], following)),
            ]
            with m.If(reached):
                m.d.comb += store.grant.eq(k + 1)
            so_far = reached

        # Writes of LOAD: which banks, which row in each.
        first = bank(self.load.row)
        touched = Signal(c.act_banks)
        for b in range(c.act_banks):
            ahead = Signal(bank_bits, name=f"ahead{b}")  # how many rows after load_row bank b's row is
            reached = ahead < Mux(self.load.full, 1, self.load.rows) if self.rows_per_beat > 1 else first == b
            m.d.comb += [ahead.eq(b - first), touched[b].eq(reached)]
        # VECTOR's write: which bank is known before the data, so that one register chooses it in the whole bank.
        writes, vector_row = Signal(c.act_banks), Signal(ADDRESS_BITS - bank_bits, reset_less=True)
        m.d.sync += [
            writes.eq(Cat(self.vector_write.valid & (bank(self.vector_write.row) == b) for b in range(c.act_banks))),
            vector_row.eq(self.vector_write.row[bank_bits:]),
        ]
        conflict = (touched & writes).any()
        m.d.comb += self.load.grant.eq(~conflict)

        shape = sizes.activations(c)
        width = shape.width
        outputs: list[Signal] = []
        for b in range(c.act_banks):
            address = Signal(ADDRESS_BITS - bank_bits, name=f"address{b}")
            # STORE's row is read where no other is, also without a request: whether there is one is known late.
            row = store.row[bank_bits:]
            if self.rows_per_beat > 1:
                row = row + (bank(store.row) > b if b + 1 < c.act_banks else 0)
            m.d.comb += address.eq(row)
            for reader in reversed(readers[:last]):
                with m.If(reader.valid & (bank(reader.row) == b)):
                    m.d.comb += address.eq(reader.row[bank_bits:])
            vector = writes[b]
            load = Signal(name=f"load{b}")
            write_address = Signal(ADDRESS_BITS - bank_bits, name=f"write_address{b}")
            passed = first > b if b + 1 < c.act_banks else 0  # its row is in the next row of banks
            m.d.comb += [
                load.eq(self.load.valid & touched[b] & ~conflict),
                write_address.eq(Mux(vector, vector_row, self.load.row[bank_bits:] + passed)),
            ]
            data = []
            for column in range(self.chunks):
                words = memory(m, f"act{b}_{column}", shape.width, shape.depth)
                write_port, read_port = words.write_port(), words.read_port()
                if self.rows_per_beat > 1:
                    ahead = Signal(bits_for(self.rows_per_beat), name=f"slice{b}")
                    m.d.comb += ahead.eq(b - first)
                    load_data = self.load.data.word_select(ahead, width)
                else:
                    load_data = self.load.data
                m.d.comb += [
                    write_port.en.eq(vector | (load & (self.load.full | (self.load.chunk == column)))),
                    write_port.addr.eq(write_address),
                    write_port.data.eq(Mux(vector, self.vector_write.data.word_select(column, width), load_data)),
                    read_port.addr.eq(address),
                ]
                data.append(read_port.data)
            output = Signal(8 * c.block_in, name=f"output{b}", reset_less=True)
            m.d.sync += output.eq(Cat(data))
            outputs.append(output)

        for n, (r, reader) in enumerate(zip(names, readers)):
            source = bank(reader.row)
            for t in range(ACT_READ_CYCLES):
                later = Signal(bank_bits, name=f"{r}_bank{t}", reset_less=True)
                m.d.sync += later.eq(source)
                source = later
            count = self.rows_per_beat if n == last else 1
            data = [Cat(outputs).word_select((source + k)[:bank_bits], 8 * c.block_in) for k in range(count)]
            m.d.comb += reader.data.eq(Cat(data))
        unread(m, store.valid)  # what nobody asked for is read, too, and not used
        if self.rows_per_beat == 1:
            unread(m, self.load.rows, store.more)
        return m
