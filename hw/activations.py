"""The activation scratchpad: banks, read and write arbitration."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.scratchpads import bits_for, memory
from isa.config import NpuConfig
from isa.instructions import ADDRESS_BITS
from isa.timing import ACT_READ_CYCLES

#: Readers in priority order.
READERS = ("gemm", "vector_a", "vector_b", "store")


class ActivationScratchpad(wiring.Component):
    """ACT: rows of block_in int8; row r lives in bank r mod act_banks; each bank has one read and one write port.

    A read is refused if a reader before it in `READERS` asks for the same bank in the same cycle (whether or not that
    reader can use it). VECTOR never asks for a and b in one bank. STORE asks for as many rows as a beat holds and gets
    those before the first one refused. A write of LOAD is refused if VECTOR writes one of its banks. Refused requests
    are repeated by the requester.

    Latency: read ACT_READ_CYCLES; a row written in cycle t is seen by reads of cycle t+1.

    Ports, for r of READERS:
        {r}_read, {r}_row, {r}_grant: request.  {r}_data: ACT_READ_CYCLES after a granted request.
        store_more: rows wanted besides store_row, those that follow it (bus wider than a row). store_grant is the
            number of rows granted, store_data has the first of them in its lowest bits, anything above the last.
        vector_write, vector_write_row, vector_write_data: whole rows, never refused.
        load_write, load_row, load_rows, load_chunk, load_full, load_data, load_grant: a chunk of a row, `load_rows`
            rows from load_row on (bus wider than a row), or with load_full one whole row of repeated data.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.chunks = max(1, config.block_in // config.bus_bytes)
        self.rows_per_beat = max(1, config.bus_bytes // config.block_in)
        row = 8 * config.block_in
        members: dict[str, object] = {
            "vector_write": In(1),
            "vector_write_row": In(ADDRESS_BITS),
            "vector_write_data": In(row),
            "load_write": In(1),
            "load_row": In(ADDRESS_BITS),
            "load_rows": In(range(self.rows_per_beat + 1)),
            "load_chunk": In(bits_for(self.chunks)),
            "load_full": In(1),
            "load_data": In(config.axi_data_bits),
            "load_grant": Out(1),
        }
        for r in READERS:
            members |= {f"{r}_read": In(1), f"{r}_row": In(ADDRESS_BITS), f"{r}_grant": Out(1), f"{r}_data": Out(row)}
        members |= {
            "store_more": In(range(max(2, self.rows_per_beat))),
            "store_grant": Out(range(self.rows_per_beat + 1)),
            "store_data": Out(self.rows_per_beat * row),
        }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        bank_bits = (c.act_banks - 1).bit_length()

        def bank(row: Value) -> Value:
            return row[:bank_bits]

        reads = [getattr(self, f"{r}_read") for r in READERS]
        rows = [getattr(self, f"{r}_row") for r in READERS]

        def free(before: tuple[str, ...], its_bank: Value) -> Value:
            """None of these readers asks for this bank."""
            refused = [getattr(self, f"{r}_read") & (bank(getattr(self, f"{r}_row")) == its_bank) for r in before]
            return ~Cat(refused, C(0, 1)).any()

        m.d.comb += self.gemm_grant.eq(1)
        for r in ("vector_a", "vector_b"):  # never in one bank
            m.d.comb += getattr(self, f"{r}_grant").eq(free(("gemm",), bank(getattr(self, f"{r}_row"))))
        last = len(READERS) - 1
        so_far = free(READERS[:last], bank(self.store_row))
        m.d.comb += self.store_grant.eq(so_far)
        for k in range(1, self.rows_per_beat):
            following, reached = Signal(bank_bits, name=f"store_bank{k}"), Signal(name=f"store_reached{k}")
            m.d.comb += [
                following.eq(self.store_row + k),
                reached.eq(so_far & (self.store_more >= k) & free(READERS[:last], following)),
            ]
            with m.If(reached):
                m.d.comb += self.store_grant.eq(k + 1)
            so_far = reached

        # Writes of LOAD: which banks, which row in each.
        first = bank(self.load_row)
        touched = Signal(c.act_banks)
        for b in range(c.act_banks):
            ahead = Signal(bank_bits, name=f"ahead{b}")  # how many rows after load_row bank b's row is
            reached = ahead < Mux(self.load_full, 1, self.load_rows) if self.rows_per_beat > 1 else first == b
            m.d.comb += [ahead.eq(b - first), touched[b].eq(reached)]
        writes = Cat(self.vector_write & (bank(self.vector_write_row) == b) for b in range(c.act_banks))
        conflict = (touched & writes).any()
        m.d.comb += self.load_grant.eq(~conflict)

        width = 8 * min(c.bus_bytes, c.block_in)
        outputs: list[Signal] = []
        for b in range(c.act_banks):
            address = Signal(ADDRESS_BITS - bank_bits, name=f"address{b}")
            for n in reversed(range(len(READERS))):
                asked, row = bank(rows[n]) == b, rows[n][bank_bits:]
                if n == last and self.rows_per_beat > 1:
                    ahead = Signal(bank_bits, name=f"store_ahead{b}")
                    m.d.comb += ahead.eq(b - bank(self.store_row))
                    passed = bank(self.store_row) > b if b + 1 < c.act_banks else 0
                    asked, row = ahead <= self.store_more, row + passed
                with m.If(reads[n] & asked):
                    m.d.comb += address.eq(row)
            vector = Signal(name=f"vector{b}")
            load = Signal(name=f"load{b}")
            write_address = Signal(ADDRESS_BITS - bank_bits, name=f"write_address{b}")
            passed = first > b if b + 1 < c.act_banks else 0  # its row is in the next row of banks
            m.d.comb += [
                vector.eq(self.vector_write & (bank(self.vector_write_row) == b)),
                load.eq(self.load_write & touched[b] & ~conflict),
                write_address.eq(Mux(vector, self.vector_write_row[bank_bits:], self.load_row[bank_bits:] + passed)),
            ]
            data = []
            for column in range(self.chunks):
                store = memory(m, f"act{b}_{column}", width, c.act_rows // c.act_banks)
                write_port, read_port = store.write_port(), store.read_port()
                if self.rows_per_beat > 1:
                    ahead = Signal(bits_for(self.rows_per_beat), name=f"slice{b}")
                    m.d.comb += ahead.eq(b - first)
                    load_data = self.load_data.word_select(ahead, width)
                else:
                    load_data = self.load_data
                m.d.comb += [
                    write_port.en.eq(vector | (load & (self.load_full | (self.load_chunk == column)))),
                    write_port.addr.eq(write_address),
                    write_port.data.eq(Mux(vector, self.vector_write_data.word_select(column, width), load_data)),
                    read_port.addr.eq(address),
                ]
                data.append(read_port.data)
            output = Signal(8 * c.block_in, name=f"output{b}", reset_less=True)
            m.d.sync += output.eq(Cat(data))
            outputs.append(output)

        for n, r in enumerate(READERS):
            source = bank(rows[n])
            for t in range(ACT_READ_CYCLES):
                later = Signal(bank_bits, name=f"{r}_bank{t}", reset_less=True)
                m.d.sync += later.eq(source)
                source = later
            count = self.rows_per_beat if n == last else 1
            data = [Cat(outputs).word_select((source + k)[:bank_bits], 8 * c.block_in) for k in range(count)]
            m.d.comb += getattr(self, f"{r}_data").eq(Cat(data))
        return m
