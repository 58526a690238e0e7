"""The interfaces between the two halves of LOAD and the scratchpads: descriptors, segments, writes."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Shape, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.interfaces import SEMAPHORE_BITS, bits_for
from tilewright.hw.memory.weight_codes import BEATS_BITS, MODE_BITS
from tilewright.hw.sizes import pc_bits
from tilewright.isa.config import ROW_BITS, NpuConfig
from tilewright.isa.instructions import Memory

TARGET_BITS = (max(Memory)).bit_length()
#: Lines of a plane: 2**16 - 1 of data, 255 of padding on either side.
LINE_BITS = 17
#: Fill rows of these take a cycle each, those of the others a cycle a chunk.
FILLED_AT_ONCE = (Memory.ACT, Memory.WGT)


def low_bits(config: NpuConfig) -> int:
    """Returns the bits of a byte position in a beat."""
    return (config.bus_bytes - 1).bit_length()


def stride_shape(config: NpuConfig) -> Shape:
    """Returns the shape of a stride in rows: only as many bits as a row address has make a difference."""
    return signed(min(ROW_BITS, config.address_bits))


def descriptor_layout(config: NpuConfig) -> data.StructLayout:
    """Returns the layout of a descriptor, an instruction as the data half needs it; `low` is the byte position in a
    beat, `null` marks LOAD_SYNC, `one` a plane of one line, `only` an instruction of one segment."""
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
        | _packed_members(config)
    )


def _packed_members(config: NpuConfig) -> dict[str, int]:
    """Returns the member of descriptors and segments that marks LOAD_PACKED: its data are weights of 4 bits."""
    return {"packed": 1} if config.packed_weights else {}


def _coded_members(config: NpuConfig) -> dict[str, int]:
    """Returns the members of descriptors and segments for LOAD_CODED, which is `null` to the walk of a box; its tiles
    are `count` or `rows`."""
    return {"coded": 1, "mode": MODE_BITS, "beats": BEATS_BITS} if config.weight_codes else {}


class LoadWrite(wiring.Signature):
    """LOAD, as it writes to scratchpads: chunk `chunk` of a row, or `rows` ACT rows, or with `full` the whole row of
    repeated data; kept until `grant`. With `packed` the chunk has weights of 4 bits, and is two chunks of WGT."""

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
                **({"packed": Out(1)} if config.packed_weights else {}),
            }
        )


def rows_per_beat(config: NpuConfig) -> int:
    """Returns the number of ACT rows in a beat, at least 1."""
    return max(1, config.bus_bytes // config.block_in)


def chunks_of(config: NpuConfig) -> dict[Memory, int]:
    """Returns the number of bus-wide chunks of a row, by scratchpad."""
    return {t: max(1, t.row_bytes(config) // config.bus_bytes) for t in Memory}


def packed_chunks(config: NpuConfig) -> int:
    """Returns the number of bus-wide chunks of a tile of 4-bit weights."""
    return config.packed_tile_bytes // config.bus_bytes


def filled_at_once(target: Value) -> Value:
    """Returns a bit: a fill row of this scratchpad takes one cycle."""
    return Cat(target == t for t in FILLED_AT_ONCE).any()


def per_target(target: Value, table: dict[Memory, int]) -> Value:
    """Looks up the number of a scratchpad in a table."""
    return Array(table[t] for t in Memory)[target]


def segment_layout(config: NpuConfig) -> data.StructLayout:
    """Returns the layout of a segment, rows that follow each other, of fill or data. `jumps`: it begins at `row`, not
    where the segment before ended; `last`: it ends its instruction; `one_chunk`: every chunk ends a row; `few_rows`:
    one chunk can end all of its rows."""
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
        | _packed_members(config)
    )
