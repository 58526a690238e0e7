"""Instruction words worked out by hand from the layout, and round trips through every form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.isa.assembler import assemble, disassemble, disassemble_one
from tilewright.isa.config import PRESETS, preset
from tilewright.isa.encoding import (
    DecodeError,
    EncodingError,
    Op,
    check,
    decode,
    extract,
    from_bytes,
    op,
    to_bytes,
    words,
)
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import HEADER, HEADER_BITS, INSTRUCTION_BITS
from tilewright.isa.instructions import BY_NAME, BY_OPCODE, INSTRUCTIONS, Engine, Memory

# The positions here are written down, not computed: the table must not move by accident.
WORDS: list[tuple[str, dict[str, int], int]] = [
    ("END", {}, 0x01),
    (
        "LOAD_DIM",
        {"level": 1, "count": 0xABCD, "row_stride": -2, "mem_stride": -3},
        0x10 | 1 << 32 | 0xABCD << 33 | 0x3FFFE << 49 | 0xFFFFFFFD << 67,
    ),
    (
        "LOAD_PAD",
        {"left": 1, "right": 2, "top": 3, "bottom": 4, "fill": 0x85},
        0x11 | 1 << 32 | 2 << 40 | 3 << 48 | 4 << 56 | 0x85 << 64,
    ),
    (
        "LOAD",
        {"wait0": 1, "wait1": 2, "signal0": 3, "signal1": 63, "region": 5, "offset": 0x89ABCDEF, "target": 2,
         "row": 0x2AAAA, "count": 0x1234},
        0x12 | 1 << 8 | 2 << 14 | 3 << 20 | 63 << 26
        | 5 << 32 | 0x89ABCDEF << 35 | 2 << 67 | 0x2AAAA << 69 | 0x1234 << 87,
    ),
    (
        "LOAD_CODED",
        {"signal0": 4, "region": 6, "offset": 0x12345678, "mode": 1, "row": 0x15555, "count": 0x4321, "beats": 0xABCD},
        0x13 | 4 << 20 | 6 << 32 | 0x12345678 << 35 | 1 << 67 | 0x15555 << 69 | 0x4321 << 87 | 0xABCD << 103,
    ),
    (
        "LOAD_PACKED",
        {"wait0": 3, "region": 5, "offset": 0x12345678, "target": 1, "row": 0x15555, "count": 0x4321},
        0x14 | 3 << 8 | 5 << 32 | 0x12345678 << 35 | 1 << 67 | 0x15555 << 69 | 0x4321 << 87,
    ),
    ("LOAD_SYNC", {"wait0": 5}, 0x1F | 5 << 8),
    (
        "GEMM_LOOP",
        {"level": 7, "count": 0x8001, "act_stride": 1, "wgt_stride": -1, "acc_stride": -131072},
        0x20 | 7 << 32 | 0x8001 << 35 | 1 << 51 | 0x3FFFF << 69 | 0x20000 << 87,
    ),
    (
        "GEMM",
        {"act": 0x3FFFF, "wgt": 1, "acc": 0x20001, "reduce": 9, "accumulate": 1},
        0x21 | 0x3FFFF << 32 | 1 << 50 | 0x20001 << 68 | 9 << 86 | 1 << 90,
    ),
    (
        "DEPTHWISE",
        {"act": 2, "wgt": 3, "acc": 4, "accumulate": 1, "start0": 33, "step0": 9, "start1": 34, "step1": 10,
         "slice": 15},
        0x22 | 2 << 32 | 3 << 50 | 4 << 68 | 1 << 86 | 33 << 87 | 9 << 93 | 34 << 97 | 10 << 103 | 15 << 107,
    ),
    ("GEMM_SYNC", {"wait1": 6}, 0x2F | 6 << 14),
    (
        "VECTOR_LOOP",
        {"level": 1, "count": 2, "a_stride": 3, "b_stride": -4, "dst_stride": 5, "prm_stride": -6},
        0x30 | 1 << 32 | 2 << 35 | 3 << 51 | 0x3FFFC << 69 | 5 << 87 | 0x3FFFA << 105,
    ),
    (
        "VECTOR_ADD",
        {"ma": -8388608, "mb": 8388607, "c": -1, "shift": 31},
        0x31 | 0x800000 << 32 | 0x7FFFFF << 56 | 0xFFFFFFFF << 80 | 31 << 112,
    ),
    (
        "VECTOR_POST",
        {"zp": -1, "lo": -128, "hi": 127, "add_lo": 1, "add_hi": 2, "za": 3, "zb": -4, "table": 7},
        0x32 | 0xFF << 32 | 0x80 << 40 | 0x7F << 48 | 1 << 56 | 2 << 64 | 3 << 72 | 0xFC << 80 | 7 << 88,
    ),
    (
        "VECTOR",
        {"source": 4, "a": 5, "b": 6, "dst": 7, "prm": 0xFFF, "reduce": 3, "add": 1, "lut": 1, "rounding": 2},
        0x33 | 4 << 32 | 5 << 35 | 6 << 53 | 7 << 71 | 0xFFF << 89 | 3 << 101 | 1 << 105 | 1 << 106 | 2 << 107,
    ),
    (
        "ROW",
        {"function": 2, "a": 5, "number": 0x3FFFF, "dst": 7, "prm": 0xFFF, "reduce": 3, "tail": 63, "exponent": 254},
        0x34 | 2 << 32 | 5 << 35 | 0x3FFFF << 53 | 7 << 71 | 0xFFF << 89 | 3 << 101 | 63 << 105 | 254 << 111,
    ),
    (
        "VECTOR_WIDE",
        {"byte": 1, "a": 5, "high": -2, "dst": 7, "prm": 0xFFF, "reduce": 3, "low": -32768},
        0x35 | 1 << 32 | 5 << 35 | 0x3FFFE << 53 | 7 << 71 | 0xFFF << 89 | 3 << 101 | 0x8000 << 105,
    ),
    ("VECTOR_SYNC", {"signal0": 7}, 0x3F | 7 << 20),
    (
        "STORE_DIM",
        {"level": 0, "count": 1, "row_stride": 131071, "mem_stride": -2147483648},
        0x40 | 1 << 33 | 0x1FFFF << 49 | 0x80000000 << 67,
    ),
    (
        "STORE",
        {"region": 2, "offset": 1, "row": 3, "count": 0xFFFF},
        0x41 | 2 << 32 | 1 << 35 | 3 << 67 | 0xFFFF << 85,
    ),
    ("STORE_SYNC", {"signal1": 8}, 0x4F | 8 << 26),
]  # fmt: skip


@st.composite
def operations(draw: st.DrawFn) -> Op:
    """Any instruction with any values that fit their fields."""
    row = draw(st.sampled_from(INSTRUCTIONS))
    values = {f.name: draw(st.integers(f.minimum, f.maximum)) for f in HEADER[1:] + row.fields}
    return op(row.name, **values)


@pytest.mark.parametrize(("name", "values", "word"), WORDS, ids=[w[0] for w in WORDS])
def test_words_by_hand(name: str, values: dict[str, int], word: int) -> None:
    assert op(name, **values).encode() == word
    decoded = decode(word)
    assert decoded.name == name
    assert {k: v for k, v in decoded.values.items() if v} == {k: v for k, v in values.items() if v}


def test_every_instruction_has_a_word_by_hand() -> None:
    assert [w[0] for w in WORDS] == [i.name for i in INSTRUCTIONS]


def test_whole_word_in_hex() -> None:
    # reduce = 3 at bit 86, acc = 1 at 68, wgt = 2 at 50, act = 4 at 32, signal0 = 2 at 20, wait0 = 1 at 8
    text = "GEMM wait0=1 signal0=2 act=4 wgt=2 acc=1 reduce=3"
    assert assemble(text)[0].encode() == 0x00000000_00C00010_00080004_00200121
    assert to_bytes(assemble(text)).hex() == "21012000040008001000c00000000000"


def test_table_is_sound() -> None:
    assert len(BY_NAME) == len(BY_OPCODE) == len(INSTRUCTIONS)
    assert sum(f.bits for f in HEADER) == HEADER_BITS
    for row in INSTRUCTIONS:
        assert row.engine == Engine(row.opcode >> 4) and row.doc
        used = 0
        for f in HEADER + row.fields:
            bits = ((1 << f.bits) - 1) << f.low
            assert not used & bits and f.low + f.bits <= INSTRUCTION_BITS and f.bits <= 32 and f.doc
            used |= bits


@given(operations())
def test_encode_and_decode_are_inverse(operation: Op) -> None:
    again = decode(operation.encode())
    assert again.name == operation.name and again.values == operation.values
    assert from_bytes(to_bytes([operation, operation])) == [again, again]


@given(operations())
def test_assembler_round_trip(operation: Op) -> None:
    text = disassemble_one(operation)
    assert [o.encode() for o in assemble(text)] == [operation.encode()]


@given(st.integers(0, 2**128 - 1))
def test_bits_outside_the_fields_are_ignored(noise: int) -> None:
    for row in INSTRUCTIONS:
        word = (noise & ~0xFF) | row.opcode
        decoded = decode(word)
        for f in HEADER + row.fields:
            raw = int(f"{word:0128b}"[128 - f.low - f.bits : 128 - f.low], 2)
            assert extract(word, f) == (raw - 2**f.bits if f.signed and raw >= 2 ** (f.bits - 1) else raw)
        assert decode(decoded.encode()).values == decoded.values


@given(st.integers(0, 2**128 - 1), st.sampled_from(sorted(PRESETS)))
def test_random_words_are_legal_or_rejected(word: int, name: str) -> None:
    try:
        check(decode(word), preset(name))
    except DecodeError as error:
        assert error.code in (ErrorCode.ILLEGAL_OPCODE, ErrorCode.ILLEGAL_OPERAND)


def test_assembler_text() -> None:
    text = "# a comment\n\n  LOAD region=0x2 target=WGT row=010 # trailing\n"
    with pytest.raises(EncodingError, match=r"a\.s:3: row must be an integer, not '010'"):
        assemble(text, "a.s")
    ops = assemble(text.replace("010", "10"))
    assert disassemble(ops) == "LOAD region=2 target=WGT row=10\n"
    assert (
        disassemble(assemble("VECTOR_LOOP level=1 count=2 b_stride=-3")) == "VECTOR_LOOP level=1 count=2 b_stride=-3\n"
    )
    assert disassemble([op("VECTOR", source=7)]) == "VECTOR source=7 rounding=EVEN\n"  # illegal, but shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("JUMP", "x:1: unknown instruction 'JUMP'; known: END, LOAD_DIM"),
        ("GEMM\nGEMM act", "x:2: expected field=value, not 'act'"),
        ("GEMM act=1 act=2", "field 'act' given twice"),
        ("GEMM bias=1", "GEMM has no field 'bias'; known: wait0"),
        ("GEMM opcode=1", "GEMM has no field 'opcode'"),
        ("GEMM act=262144", "GEMM.act must be 0..262143, not 262144"),
        ("VECTOR source=MIN", "source must be an integer or one of ACC, ACT, MUL, SUM, MAX, not 'MIN'"),
        ("VECTOR_POST zp=-129", "VECTOR_POST.zp must be -128..127, not -129"),
    ],
)
def test_assembler_errors(text: str, message: str) -> None:
    with pytest.raises(EncodingError) as info:
        assemble(text, "x")
    assert message in str(info.value)


def test_images() -> None:
    image = to_bytes([op("GEMM", act=5), op("END")])
    assert len(image) == 32 and list(words(image))[1] == 1
    with pytest.raises(EncodingError, match="multiple of 16 bytes, not 31"):
        list(words(image[:-1]))
    with pytest.raises(DecodeError, match="instruction 1: unknown opcode 0x00") as info:
        from_bytes(image[:16] + bytes(16))
    assert info.value.code == ErrorCode.ILLEGAL_OPCODE


def test_op_helpers() -> None:
    o = op("LOAD", wait1=3, signal0=4, signal1=5)
    assert o.waits == (3,) and o.signals == (4, 5) and o["count"] == 0
    assert hash(o) == hash(op("LOAD", wait1=3, signal0=4, signal1=5))


@pytest.mark.parametrize(
    ("name", "field", "low", "high"),
    [
        ("LOAD", "region", 0, 7),  # its bits
        ("LOAD_DIM", "mem_stride", -(2**31), 2**31 - 1),
        ("VECTOR", "source", 0, 4),  # its enumeration
        ("VECTOR", "wait0", 0, 12),  # the configuration's
        ("VECTOR", "lut", 0, 0),
        ("VECTOR_POST", "table", 0, 0),
        ("GEMM_LOOP", "level", 0, 4),  # below a configuration's
        ("GEMM_LOOP", "count", 1, 2**16 - 1),
        ("DEPTHWISE", "slice", 0, 3),
    ],
)
def test_limits_by_hand(name: str, field: str, low: int, high: int) -> None:
    config = preset("base").with_(semaphores=12, gemm_loops=5, lut_tables=0, row_unit=0, block_out=4)
    assert BY_NAME[name].by_name[field].limits(config) == (low, high)


def test_rows_of_scratchpads_by_hand() -> None:
    config = preset("base").with_(block_out=8)
    rows = {m.name: (m.rows(config), m.row_bytes(config)) for m in Memory}
    assert rows == {"ACT": (8192, 16), "WGT": (384, 8 * 16), "PRM": (64, 16 * 8), "LUT": (8, 256)}


def test_who_takes_semaphores() -> None:
    none = {"END", "LOAD_DIM", "LOAD_PAD", "GEMM_LOOP", "VECTOR_LOOP", "VECTOR_ADD", "VECTOR_POST", "STORE_DIM"}
    assert {i.name for i in INSTRUCTIONS if not i.takes_semaphores} == none
