"""What the two halves of LOAD give each other: descriptors, segments, and how the second one writes to scratchpads."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Shape, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.interfaces import SEMAPHORE_BITS, bits_for, pc_bits
from tilewright.hw.memory.weight_codes import BEATS_BITS, MODE_BITS
from tilewright.isa.config import ROW_BITS, NpuConfig
from tilewright.isa.instructions import Memory

TARGET_BITS = (max(Memory)).bit_length()
#: Lines of a plane: 2**16 - 1 of data, 255 of padding on either side.
LINE_BITS = 17
#: Fill rows of these take a cycle each, those of the others a cycle a chunk.
FILLED_AT_ONCE = (Memory.ACT, Memory.WGT)


def low_bits(config: NpuConfig) -> int:
    """Bits of a byte position in a beat."""
    return (config.bus_bytes - 1).bit_length()


def stride_shape(config: NpuConfig) -> Shape:
    """Of a stride of row addresses; what is above their bits makes no difference."""
    return signed(min(ROW_BITS, config.address_bits))


def descriptor_layout(config: NpuConfig) -> data.StructLayout:
    """What the data half needs of an instruction; `low` is the byte position in a beat, `null` marks LOAD_SYNC, `one` a
    plane of one line, `only` an instruction of one segment."""
    low = low_bits(config)
    return data.StructLayout(
        {
            "null": 1,
            "one": 1,
            "only": 1,
            "target": TARGET_BITS,
            "row": config.address_bits,
            "count": 16,
            "low": low,
            "count0": 16,
            "count1": 16,
            "row_stride0": stride_shape(config),
            "row_stride1": stride_shape(config),
            "low_stride0": low,
            "low_stride1": low,
            "left": 8,
            "right": 8,
            "top": 8,
            "bottom": 8,
            "fill": 8,
            "signal0": SEMAPHORE_BITS,
            "signal1": SEMAPHORE_BITS,
            "pc": pc_bits(config),
        }
        | _coded_members(config)
    )


def _coded_members(config: NpuConfig) -> dict[str, int]:
    """What descriptors and segments have of LOAD_CODED, which is `null` to the walk of a box; `count` or `rows` are its
    tiles."""
    return {"coded": 1, "mode": MODE_BITS, "beats": BEATS_BITS} if config.weight_codes else {}


class LoadWrite(wiring.Signature):
    """LOAD, as it writes to scratchpads: chunk `chunk` of a row, or `rows` ACT rows, or with `full` the whole row of
    repeated data; kept until `grant`."""

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "grant": In(1),
                "target": Out(TARGET_BITS),
                "row": Out(config.address_bits),
                "rows": Out(range(rows_per_beat(config) + 1)),
                "chunk": Out(bits_for(max(chunks_of(config).values()))),
                "full": Out(1),
                "data": Out(config.axi_data_bits),
            }
        )


def rows_per_beat(config: NpuConfig) -> int:
    """ACT rows a beat holds, at least 1."""
    return max(1, config.bus_bytes // config.block_in)


def chunks_of(config: NpuConfig) -> dict[Memory, int]:
    """Chunks of the width of the bus a row of each scratchpad has."""
    return {t: max(1, t.row_bytes(config) // config.bus_bytes) for t in Memory}


def filled_at_once(target: Value) -> Value:
    """A fill row of this scratchpad takes one cycle."""
    return Cat(target == t for t in FILLED_AT_ONCE).any()


def per_target(target: Value, table: dict[Memory, int]) -> Value:
    """What the table has for a scratchpad."""
    return Array(table[t] for t in Memory)[target]


def segment_layout(config: NpuConfig) -> data.StructLayout:
    """Rows that follow each other, of fill or data: `jumps` says that they begin at `row`, not where the segment before
    ended; `last` that they end their instruction; `one_chunk` that every chunk ends a row, `few_rows` that a chunk can
    end all of them."""
    return data.StructLayout(
        {
            "null": 1,
            "last": 1,
            "target": TARGET_BITS,
            "data": 1,
            "jumps": 1,
            "row": config.address_bits,
            "rows": 16,
            "one_chunk": 1,
            "few_rows": 1,
            "low": low_bits(config),
            "fill": 8,
            "signal0": SEMAPHORE_BITS,
            "signal1": SEMAPHORE_BITS,
            "pc": pc_bits(config),
        }
        | _coded_members(config)
    )
