"""Ports of the scratchpads: reads and writes of rows of ACT, WGT, PRM, LUT and ACC."""

from __future__ import annotations

from typing import Any

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.interfaces import bits_for
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.timing import row_scale_cycles


class ScratchpadRead(wiring.Signature):
    """A reader of a scratchpad: asks for `row` where `valid`, gets `data` some cycles later. With `refusable` only
    where `grant`; what is refused is asked for again.

    Parameters:
        data: the member: bits, as seen by the scratchpad; an array where it has columns.
    """

    def __init__(self, data: Any, *, refusable: bool = False) -> None:
        members = {"valid": Out(1), "row": Out(ADDRESS_BITS), "data": data.flip()}
        super().__init__(members | ({"grant": In(1)} if refusable else {}))


class ParameterRead(wiring.Signature):
    """A reader of biases or scales: asks where `valid` for the values of pass `number` of a row, one for each lane of
    VECTOR, gets `data` a cycle later."""

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "row": Out(ADDRESS_BITS),
                "number": Out(bits_for(config.vector_passes)),
                "data": In(32 * config.vector_lanes),
            }
        )


class RowsRead(wiring.Signature):
    """A reader of several rows that follow each other: `more` besides `row`; `grant` is the number of rows granted, the
    first of which is in the lowest bits of `data`, anything above the last."""

    def __init__(self, row_bits: int, most: int) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "row": Out(ADDRESS_BITS),
                "more": Out(range(max(2, most))),  # at least a bit: Verilog has no signals without
                "grant": In(range(most + 1)),
                "data": In(row_bits * most),
            }
        )


class ScratchpadWrite(wiring.Signature):
    """A writer of a scratchpad: chunk `chunk` of a row, or with `full` every chunk of it.

    Parameters:
        chunks: bus-wide chunks of a row.
        fills: there is `full`.
        rows: rows a chunk can hold, where it can be several: then there is `rows`.
        refusable: there is `grant`.
        packed: there is `packed`: the chunk has weights of 4 bits.
    """

    def __init__(
        self,
        config: NpuConfig,
        chunks: int,
        *,
        fills: bool = True,
        rows: int = 0,
        refusable: bool = False,
        packed: bool = False,
    ) -> None:
        members: dict[str, object] = {
            "valid": Out(1),
            "row": Out(ADDRESS_BITS),
            "chunk": Out(bits_for(chunks)),
            "data": Out(config.axi_data_bits),
        }
        if fills:
            members["full"] = Out(1)
        if rows:
            members["rows"] = Out(range(rows + 1))
        if refusable:
            members["grant"] = In(1)
        if packed:
            members["packed"] = Out(1)
        super().__init__(members)


class RowWrite(wiring.Signature):
    """A writer of whole rows, never refused: `valid` and `row` come in the cycle before `data`."""

    def __init__(self, row_bits: int) -> None:
        super().__init__({"valid": Out(1), "row": Out(ADDRESS_BITS), "data": Out(row_bits)})


class ColumnsWrite(wiring.Signature):
    """A writer of the columns in `mask` of a row."""

    def __init__(self, columns: int, column_bits: int) -> None:
        super().__init__({"mask": Out(columns), "row": Out(ADDRESS_BITS), "data": Out(column_bits).array(columns)})


class ScaleWrite(wiring.Signature):
    """A writer of one scale to all lanes of a row of PRM, never refused. Where a row lies in several words of each
    memory there is `word`, the one that is written."""

    def __init__(self, config: NpuConfig) -> None:
        words = row_scale_cycles(config)
        members = {"valid": Out(1), "row": Out(ADDRESS_BITS), "scale": Out(32)}
        super().__init__(members | ({"word": Out(range(words))} if words > 1 else {}))


class TableRead(wiring.Signature):
    """A reader of look-up tables: byte `index` of a table for every lane, `value` two cycles later.

    Parameters:
        wide: bits of the words of a second reader, never in the same cycle, 0 for none: with `wide` it reads, for every
            lane, word `word_index` of the tables that are read as one with `word_table`; `word` two cycles later.
    """

    def __init__(self, lanes: int, *, wide: int = 0) -> None:
        members = {"valid": Out(1), "table": Out(4), "index": Out(8).array(lanes), "value": In(8).array(lanes)}
        if wide:
            members |= {"wide": Out(1), "word_table": Out(4), "word_index": Out(8).array(lanes)}
            members |= {"word": In(wide).array(lanes)}
        super().__init__(members)
