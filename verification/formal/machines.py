"""The machines that are proved: as small as they can be and still have everything."""

from __future__ import annotations

from tilewright.isa.config import preset

#: A small machine: bursts of 4 beats of 4 bytes, two of each kind in flight.
SMALL = preset("tiny").with_(
    name="formal", act_rows=64, wgt_tiles=4, prm_rows=2, lut_tables=1, burst_beats=4, read_outstanding=2,
    write_outstanding=2, queue_depth=2, semaphores=12,
)  # fmt: skip
#: The same behind buses of 64 and 256 bits.
WIDE = SMALL.with_(name="formal_64", axi_data_bits=64)
WIDEST = SMALL.with_(name="formal_256", block_in=8, axi_data_bits=256, act_banks=16)
