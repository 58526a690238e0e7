"""The scratchpads WGT, ACC, PRM and LUT; ACT is in `tilewright.hw.memory.activations`.

All reads are synchronous: a row asked for in cycle t is at the output in cycle t+1, of WGT in t+2: there is a register
behind its memory, which costs nothing where block RAM has one. A read of a row that is written in the same cycle
returns anything, and is not used anywhere.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.hw import sizes
from tilewright.hw.connections import unread
from tilewright.hw.memory.scratchpad_ports import (
    ColumnsWrite,
    ParameterRead,
    ScaleWrite,
    ScratchpadRead,
    ScratchpadWrite,
    TableRead,
)
from tilewright.hw.memory.weight_codes import CodedWrite
from tilewright.isa.config import WIDE_TABLE, NpuConfig
from tilewright.isa.timing import table_chunk_cycles


def memory(m: Module, name: str, width: int, depth: int) -> Memory:
    """Makes a memory of `depth` words as a submodule of `m`."""
    store = Memory(shape=Shape(width), depth=depth, init=[])
    m.submodules[name] = store
    return store


class WeightScratchpad(wiring.Component):
    """Weight tiles: one read of a whole tile, one write of a bus-wide chunk (or of a whole fill tile) per cycle.

    Latency: read WGT_READ_CYCLES; a tile written in cycle t is seen by reads of cycle t+1.

    Ports:
        read: a tile; `data` has the weights of every output, block_in int8, WGT_READ_CYCLES later.
        write: a chunk of a tile; with `packed` one of 4-bit weights, which become two neighbouring chunks.
        codes: several chunks of one, where there is a decoder; never in the cycle of a `write`.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.chunks = config.tile_bytes // config.bus_bytes
        super().__init__(
            {
                **({"codes": In(CodedWrite(config))} if config.weight_codes else {}),
                "read": In(ScratchpadRead(Out(8 * config.block_in).array(config.block_out))),
                "write": In(ScratchpadWrite(config, self.chunks, packed=bool(config.packed_weights))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        shape = sizes.weights(c)
        width = shape.width // 8  # bytes of a column of memory
        per_row = c.block_in // width
        per_chunk = c.bus_bytes // width
        enable = Signal(self.chunks)
        with m.If(self.write.valid):
            m.d.comb += enable.eq(Mux(self.write.full, (1 << self.chunks) - 1, 1 << self.write.chunk))
        address, chunks = self.write.row, self.write.data  # that are written; chunks repeat
        if c.packed_weights:
            with m.If(self.write.valid & self.write.packed):
                m.d.comb += enable.eq(Cat(self.write.chunk == n // 2 for n in range(self.chunks)))
            nibbles = (chunks.word_select(n, 4) for n in range(2 * c.bus_bytes))
            chunks = Mux(self.write.packed, Cat(Cat(n, n[3].replicate(4)) for n in nibbles), chunks.replicate(2))
        if c.weight_codes:
            together = c.weight_codes // c.bus_bytes
            with m.If(self.codes.valid):
                m.d.comb += enable.eq(Cat((self.codes.part == n // together) for n in range(self.chunks)))
            address = Mux(self.codes.valid, self.codes.row, address)
            repeats = max(1, len(self.codes.data) // len(chunks)), max(1, len(chunks) // len(self.codes.data))
            chunks = Mux(self.codes.valid, self.codes.data.replicate(repeats[1]), chunks.replicate(repeats[0]))
        for o in range(c.block_out):
            row = Signal(8 * c.block_in, name=f"out{o}", reset_less=True)
            for i in range(per_row):
                column = o * per_row + i
                store = memory(m, f"wgt{column}", shape.width, shape.depth)
                write, read = store.write_port(), store.read_port()
                m.d.comb += [
                    write.en.eq(enable[column // per_chunk]),
                    write.addr.eq(address),
                    write.data.eq(chunks.word_select(column % (len(chunks) // (8 * width)), 8 * width)),
                    read.en.eq(self.read.valid),
                    read.addr.eq(self.read.row),
                ]
                m.d.sync += row.word_select(i, 8 * width).eq(read.data)
            m.d.comb += self.read.data[o].eq(row)
        return m


class AccumulatorScratchpad(wiring.Component):
    """int32 accumulators: physical rows of max(block_in, block_out) lanes in columns of those of DEPTHWISE.

    Latency: read 1 cycle. The read port serves GEMM before VECTOR.

    Ports:
        gemm, vector: reads, `data` has the columns of the physical row; VECTOR is refused while GEMM reads.
        write: writes of GEMM.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.shape = sizes.accumulators(config)
        self.lanes, self.columns, self.rows = config.dw_lanes, self.shape.number, self.shape.depth
        columns = Out(32 * self.lanes).array(self.columns)
        super().__init__(
            {
                "gemm": In(ScratchpadRead(columns)),
                "vector": In(ScratchpadRead(columns, refusable=True)),
                "write": In(ColumnsWrite(self.columns, 32 * self.lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.vector.grant.eq(~self.gemm.valid)
        for c in range(self.columns):
            store = memory(m, f"acc{c}", self.shape.width, self.shape.depth)
            write, read = store.write_port(), store.read_port()
            m.d.comb += [
                write.en.eq(self.write.mask[c]),
                write.addr.eq(self.write.row),
                write.data.eq(self.write.data[c]),
                read.en.eq(self.gemm.valid | self.vector.valid),
                read.addr.eq(Mux(self.gemm.valid, self.gemm.row, self.vector.row)),
                self.gemm.data[c].eq(read.data),
                self.vector.data[c].eq(read.data),
            ]
        return m


class ParameterScratchpad(wiring.Component):
    """Bias and scale per channel. Both are read by VECTOR, each before its pipeline needs it: the values of a pass are
    words of their own, so that nothing chooses among them behind the memory.

    Latency: read 1 cycle.

    Ports:
        bias, scale: reads of values of 32 bits.
        write: a chunk of a row; refused while there is a write of `scale_write`.
        scale_write: writes of the row unit, where there is one.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.chunks = config.prm_row_bytes // config.bus_bytes
        super().__init__(
            {
                "bias": In(ParameterRead(config)),
                "scale": In(ParameterRead(config)),
                "write": In(ScratchpadWrite(config, self.chunks, fills=False, refusable=bool(config.row_unit))),
                **({"scale_write": In(ScaleWrite(config))} if config.row_unit else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        words_per_chunk = c.bus_bytes // 4
        shape = sizes.parameters(c)
        width = shape.width // 32  # words of one kind in a chunk: a group
        columns = shape.number // 2  # memories; a pass reads a group of each, or a part of one
        groups = shape.depth // c.prm_rows  # of a row in each memory
        passes = c.vector_passes // groups  # in a group
        kinds = min(2, words_per_chunk)  # in a chunk
        group = self.write.chunk[1:] if kinds == 1 else self.write.chunk  # that is written, of all memories
        column_bits, group_bits = ((n - 1).bit_length() for n in (columns, groups))
        if c.vector_passes == 1:
            unread(m, self.bias.number, self.scale.number)
        if c.row_unit:
            m.d.comb += self.write.grant.eq(~self.scale_write.valid)
        for kind, reader, offset in (("bias", self.bias, 0), ("scale", self.scale, 1)):
            values = []
            mine = self.write.chunk[0] == offset if kinds == 1 else 1
            words = [self.write.data.word_select((kinds * i + offset) % words_per_chunk, 32) for i in range(width)]
            for column in range(columns):
                store = memory(m, f"{kind}{column}", shape.width, shape.depth)
                write, read = store.write_port(), store.read_port()
                here = group[:column_bits] == column if column_bits else 1
                m.d.comb += [
                    write.en.eq(self.write.valid & mine & here),
                    write.addr.eq(Cat(group[column_bits:][:group_bits], self.write.row)),
                    write.data.eq(Cat(words)),
                ]
                if c.row_unit and kind == "scale":  # all lanes of a group at once
                    with m.If(self.scale_write.valid):
                        m.d.comb += [
                            write.en.eq(1),
                            write.addr.eq(
                                Cat(self.scale_write.word, self.scale_write.row) if groups > 1 else self.scale_write.row
                            ),
                            write.data.eq(self.scale_write.scale.replicate(width)),
                        ]
                m.d.comb += [
                    read.en.eq(reader.valid),
                    read.addr.eq(Cat(reader.number[(passes - 1).bit_length() :][:group_bits], reader.row)),
                ]
                values.append(read.data)
            row = Cat(values)
            if passes > 1:
                part = Signal(range(passes), name=f"{kind}_part", reset_less=True)
                m.d.sync += part.eq(reader.number)
                row = row.word_select(part, len(reader.data))
            m.d.comb += reader.data.eq(row)
        return m


class TableScratchpad(wiring.Component):
    """Look-up tables, one copy per lane, in words of at most TABLE_WORD_BYTES: a block RAM each.

    Latency: read 2 cycles, the second for the register of the block RAM; write `table_chunk_cycles`.

    Ports:
        read: table number and byte of each lane; with a row unit, of words as well, of WIDE_TABLE bytes.
        write: bus-wide chunk of a table, unchanged until the cycle of `grant`, in which the last word of it is written.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.chunks = 256 // config.bus_bytes
        super().__init__(
            {
                "read": In(TableRead(config.vector_lanes, wide=config.row_unit * config.row_word_bits)),
                "write": In(ScratchpadWrite(config, self.chunks, fills=False, refusable=True)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        words = table_chunk_cycles(c)  # of a chunk
        assert not c.row_unit or c.axi_data_bits // words == 8 * WIDE_TABLE
        shape = sizes.tables(c)
        word_bits, word_index = shape.width, (words - 1).bit_length()
        word = Signal(word_index)  # that is written
        with m.If(self.write.valid):
            m.d.sync += word.eq(word + 1)
        m.d.comb += self.write.grant.eq(word.all() if word_index else 1)
        # A fill writes one chunk per cycle here, it needs as many cycles as the table has chunks: see
        # `tilewright.hw.transfer.load`.
        byte_bits = (word_bits // 8 - 1).bit_length()
        chunk_bits = 8 - byte_bits - word_index
        for l in range(c.vector_lanes):
            store = memory(m, f"lut{l}", shape.width, shape.depth)
            write, read = store.write_port(), store.read_port()
            index = self.read.index[l]
            byte, byte_now = (Signal(byte_bits, name=f"{n}{l}", reset_less=True) for n in ("byte", "byte_now"))
            found = Signal(word_bits, name=f"found{l}", reset_less=True)
            with m.If(self.read.valid):
                m.d.sync += byte.eq(index[:byte_bits])
            m.d.sync += [found.eq(read.data), byte_now.eq(byte)]
            m.d.comb += [
                write.en.eq(self.write.valid),
                write.addr.eq(Cat(word, self.write.chunk[:chunk_bits], self.write.row)),
                write.data.eq(self.write.data.word_select(word, word_bits)),
                read.en.eq(self.read.valid),
                read.addr.eq(Cat(index[byte_bits:], self.read.table)),
                self.read.value[l].eq(found.word_select(byte_now, 8)),
            ]
            if c.row_unit:
                with m.If(self.read.wide):
                    m.d.comb += read.en.eq(1)
                    m.d.comb += read.addr.eq(Cat(self.read.word_index[l], self.read.word_table[byte_bits:]))
                m.d.comb += self.read.word[l].eq(found)
        return m
