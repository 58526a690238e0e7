"""Coded weights: tables and rounds worked out by hand."""

import pytest

from tilewright.isa.codes import FIRST_WEIGHT, LOW, SLOTS, CodeError, CodeMode, Decoder, Slot, TableBuilder, table_word
from tilewright.isa.config import ConfigError, NpuConfig, preset

CONFIG = NpuConfig(block_in=4, block_out=4, axi_data_bits=32, weight_codes=8)  # two words a beat


def built(*words: int) -> list[Slot]:
    builder, left = TableBuilder(), list(words)
    while len(builder.slots) < SLOTS:
        if builder.step(left[0]):
            left.pop(0)
    return builder.slots


def test_words_of_a_table() -> None:
    # 100 symbols without slots, two symbols of 3 slots, four that share a slot, two pairs, the rest for one.
    slots = built(
        table_word(0, 25, 2), table_word(3, 2, 0), table_word(0, 2, 0), table_word(1, 1, 2), table_word(1, 2, 1),
        table_word(503, 1, 0),
    )  # fmt: skip
    first = 100 ^ FIRST_WEIGHT
    assert slots[:4] == [Slot(first, 12, 0, 0), Slot(first, 12, 1, 0), Slot(first, 12, 2, 0), Slot(first + 1, 12, 0, 0)]
    assert slots[6] == Slot(104 ^ FIRST_WEIGHT, 1, 0, 3)
    assert slots[7:9] == [Slot(108 ^ FIRST_WEIGHT, 2, 0, 1), Slot(110 ^ FIRST_WEIGHT, 2, 0, 1)]
    assert slots[9] == Slot(112 ^ FIRST_WEIGHT, 2012, 0, 0) and slots[511].offset == 502


def stream(*words: int) -> bytes:
    return b"".join(w.to_bytes(2, "little") for w in words)


def test_rounds_by_hand() -> None:
    """Two weights, 1 of 256 slots and 2 of 256: every weight costs a bit."""
    decoder = Decoder(CONFIG)
    table = stream(table_word(0, 32, 2), table_word(0, 1, 0), table_word(256, 2, 0))
    # 2**14 + 3 is in slot 3, of weight 1; then come 256 * 32 + 3, 4096 + 3, 2048 + 3, and a word is needed.
    states = [(1 << 14) + 3] * 8
    data = table + stream(*states, states[0])  # one more than there are lanes, so that lane 0 has one in reserve
    assert list(decoder.load(CodeMode.TABLE, 0, 2, lambda: data[:8])) == []
    assert len(decoder.table) == SLOTS and len(decoder.queue) == 1
    # The start: the words become states, whose round gives no weights.
    rounds = decoder.load(CodeMode.WEIGHTS, 3, 4, lambda: data[8:24])
    assert [next(rounds), next(rounds)] == [bytes([1] * 8), bytes([1] * 8)]
    assert decoder.states == [2048 + 3] * 8 and LOW <= 2048 + 3
    with pytest.raises(CodeError, match="too early"):  # the next state is 1024 + 3, and there is no word
        next(rounds)


def test_errors() -> None:
    with pytest.raises(CodeError, match="no table"):
        list(Decoder(CONFIG).load(CodeMode.WEIGHTS, 1, 0, bytes))
    with pytest.raises(CodeError, match="too early"):
        list(Decoder(CONFIG).load(CodeMode.TABLE, 0, 1, lambda: stream(table_word(511, 1, 0), table_word(0, 1, 0))))
    whole = stream(table_word(511, 1, 0), table_word(1, 1, 0), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    with pytest.raises(CodeError, match="left over"):
        list(Decoder(CONFIG).load(CodeMode.TABLE, 0, 6, lambda: whole))


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (12, "weight_codes must be a power of two in 8..64, not 12"),
        (128, "weight_codes must be a power of two in 8..64, not 128"),
        (32, r"weight_codes must be 0 or 4..16 \(from a bus beat to a weight tile\), not 32"),
    ],
)
def test_lanes(codes: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        preset("tiny").with_(weight_codes=codes)
