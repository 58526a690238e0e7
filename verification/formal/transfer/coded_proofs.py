"""Proofs about what the decoder of LOAD_CODED makes of words; `coded_benches` says how they chain."""

from __future__ import annotations

from verification.formal.engine import Cut
from verification.formal.proof import Proof, Property, on
from verification.formal.transfer import coded_benches
from verification.formal.transfer.move_benches import MOVES_WIDE

_TABLE = Proof(
    "coded_table",
    coded_benches.table,
    True,
    1,
    (
        Property(
            "slots",
            "LOAD_CODED: the builder of tables makes of a word the slots that `tilewright.isa.codes.TableBuilder` "
            "appends, one in a cycle, in order from slot 0 on",
            Cut("builder.symbol"),
        ),
        Property(
            "words",
            "a word is used up with the last slot it makes, or at once if it makes none",
            Cut("builder.repeated"),
        ),
        Property("ends", "a table ends with its last slot", Cut("builder.slot")),
        Property("legal", "the number of a slot is below how many its symbol has", Cut("builder.number")),
    ),
)
_LANE = Proof(
    "coded_lane",
    coded_benches.lane,
    True,
    1,
    (Property("fits", "LOAD_CODED: with slots that are legal a state stays below 2**`STATE_BITS`", Cut("lane.high")),),
)
_DECODER = Proof(
    "coded_decoder",
    coded_benches.decoder,
    True,
    1,
    quick=False,
    properties=(
        Property(
            "beats",
            "LOAD_CODED: a beat is wanted exactly when `tilewright.isa.codes.Decoder` takes one",
            Cut("codes.queue.level"),
        ),
        Property(
            "words",
            "the builder of tables sees the oldest word that waits; every lane is given a word in the cycles in which "
            "the rule gives it one, and the same word",
            Cut("codes.queue.first"),
        ),
        Property(
            "rounds",
            "the lanes make a round exactly in the cycles in which the rule makes one",
            Cut("codes.lane3.held_up", 12),
        ),
        Property(
            "slots",
            "all lanes get every slot; what a lane has read is the slot of its state, as it was written last",
            Cut("codes.lane0.word", 12),
        ),
        Property(
            "states",
            "a state becomes what the rule makes of state, slot and the oldest word in reserve",
            Cut("codes.lane1.high", 11),
        ),
        Property(
            "weights", "the weights of a round, and no others, are written in the next cycle", Cut("codes.weights", 14)
        ),
        Property(
            "faults",
            "a stream that ends too early, weights without a table, beats left over at the end: an error exactly in "
            "the cycle of the rule; a round for a tile beyond WGT is the end as well",
            Cut("codes.complete"),
        ),
        Property(
            "ends", "the instruction ends with its last round, or the last slot of its table", Cut("codes.queue.level")
        ),
    ),
)
PROOFS: tuple[Proof, ...] = (
    _TABLE,
    _LANE,
    _DECODER,
    on(_DECODER, MOVES_WIDE.with_(name="formal_coded_64", weight_codes=16), "64"),
)
