"""The instruction table: the only place where an opcode, a field or a bit position is written.

Encoders, decoders (Python, C++ and RTL), assembler, disassembler, C header and reference page are derived from
`INSTRUCTIONS`. An instruction is 128 bits, little-endian in memory: a common header in bits 0..31 and a payload in
bits 32..127. The semantics below are normative; `simulator/reference` is their executable form.

Row addresses are computed modulo 2**`NpuConfig.address_bits` (base plus sum of index * stride), which is at least twice
the rows of any memory, and must then be below the memory's size, else the engine stops with `SCRATCHPAD_RANGE`. Memory
offsets are computed modulo 2**`NpuConfig.offset_bits` (32, or less on a bus of fewer address bits); every byte must lie
below the region's size and the region must permit the access, else `WINDOW`.

When a program starts, semaphores are 0, loop and box counts 1, strides, padding and post-processing registers 0.
Two waits (or two signals) of one instruction must name different semaphores, and instructions that only configure
must name none, else `ILLEGAL_OPERAND`. Bits outside the fields are ignored.

Order: instructions of one engine take effect in program order, the steps of one instruction in the order of its loop
nest (level 0 fastest) or box (x, then y, then z). Of several writes to one place the last one stays. GEMM and DEPTHWISE
see every earlier write of their engine to ACC, also from the same instruction. One thing is not ordered: a VECTOR step
that reads an ACT or PRM row written by an earlier step of the same instruction, or of an earlier VECTOR or ROW that no
semaphore separates. It may still see the old contents (the functional simulator shows the new ones); so may a step of
ROW of the same instruction. Engines are ordered with each other by semaphores only.

Only used operands are checked: operand b and PRM where source or Add read them, WGT and ACC of DEPTHWISE at emissions.
An engine stops at the first fault in step order. In one step GEMM and DEPTHWISE check ACT, WGT, ACC. VECTOR and ROW
check a, b (STAT of NORM), PRM, dst: a at every step of a reduction, the others at its last. LOAD and STORE check the
window of a run before its rows. The program must lie in its region as a whole. After an error, scratchpads and writable
regions hold unspecified data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from tilewright.isa.codes import CodeMode
from tilewright.isa.config import MAX_WINDOW_DELAY, ROW_BITS, TABLE_BYTES, NpuConfig
from tilewright.isa.fields import HEADER, HEADER_BITS, Field, layout

#: Bits of a row address that are enough for any configuration; see `NpuConfig.address_bits`.
ADDRESS_BITS = 20
#: Regions of external memory an instruction can name: base, size and permissions are set by the host.
REGIONS = 8


class Engine(IntEnum):
    """Engines in priority order; the value is the high nibble of their opcodes."""

    FETCH = 0
    LOAD = 1
    GEMM = 2
    VECTOR = 3
    STORE = 4


def queue_of(engine: Engine, config: NpuConfig) -> Engine:
    """The engine whose queue holds the instructions of `engine`, in program order with its own."""
    return Engine.GEMM if engine == Engine.VECTOR and not config.vector_queue else engine


class Memory(IntEnum):
    """Scratchpads, as LOAD's `target` field names them. ACC is written by GEMM only."""

    ACT = 0
    WGT = 1
    PRM = 2
    LUT = 3

    def rows(self, config: NpuConfig) -> int:
        """The number of rows of the scratchpad; a row address is below it."""
        return (config.act_rows, config.wgt_tiles, config.prm_rows, config.lut_tables)[self]

    def row_bytes(self, config: NpuConfig) -> int:
        """Bytes of one row in external memory."""
        return (config.block_in, config.tile_bytes, config.prm_row_bytes, TABLE_BYTES)[self]


class PackedTarget(IntEnum):
    """Scratchpads that LOAD_PACKED fills, numbered as in Memory."""

    WGT = 1


class Source(IntEnum):
    """The input of a VECTOR instruction; see the table entry of VECTOR."""

    ACC = 0
    ACT = 1
    MUL = 2
    SUM = 3
    MAX = 4


class RowFunction(IntEnum):
    """The function of a ROW instruction; see the table entry of ROW."""

    MAXIMUM = 0
    EXP_SUM = 1
    EXP = 2
    MOMENTS = 3
    POWER = 4
    NORM = 5


#: Functions of ROW that write a vector for each they read; the others keep something of a whole row.
ROW_WRITES = (RowFunction.EXP, RowFunction.NORM)
#: Bits of the sums of ROW and of its quotients.
ROW_SUM_BITS, ROW_QUOTIENT_BITS = 36, 26


class WideByte(IntEnum):
    """The int8 byte of the 16-bit results that VECTOR_WIDE makes; see `tilewright.isa.wide_numerics.wide_byte`."""

    LOW = 0
    HIGH = 1


class Rounding(IntEnum):
    """Rounding of the requantiser and the place of the zero point; see `tilewright.isa.numerics.requantize`."""

    EVEN = 0
    EVEN_ZERO_POINT_INSIDE = 1
    HALF_AWAY = 2


@dataclass(frozen=True)
class Instruction:
    """One row of the table.

    Attributes:
        configures: it only sets registers of its engine, and takes no time while the engine works on an earlier
            instruction.
        requires: an attribute of `NpuConfig`; where that is 0 the opcode is illegal.
    """

    name: str
    opcode: int
    fields: tuple[Field, ...]
    doc: str
    configures: bool = False
    requires: str | None = None

    @property
    def engine(self) -> Engine:
        return Engine(self.opcode >> 4)

    @property
    def takes_semaphores(self) -> bool:
        """True if the instruction may wait and signal; otherwise the four header fields must be 0."""
        return not self.configures and self.name != "END"

    @cached_property
    def by_name(self) -> dict[str, Field]:
        return {f.name: f for f in HEADER + self.fields}


def _i(
    name: str, opcode: int, doc: str, *fields: Field, configures: bool = False, requires: str | None = None
) -> Instruction:
    return Instruction(name, opcode, layout(fields, HEADER_BITS), doc, configures, requires)


def _row(name: str, doc: str) -> Field:
    return Field(name, ROW_BITS, doc=doc)


def _stride(name: str, doc: str) -> Field:
    return Field(name, ROW_BITS, signed=True, doc=doc)


INSTRUCTIONS: tuple[Instruction, ...] = (
    _i("END", 0x01, "Ends the program: it is complete when every queue is empty and every engine idle. FETCH reads no "
       "further. Takes no semaphores."),
    _i("LOAD_DIM", 0x10, "Sets one outer dimension of the LOAD box.",
       Field("level", 1, doc="0 = rows of the box (y), 1 = planes (z)"),
       Field("count", 16, doc="iterations; 0 at level 0 makes a box of padding only"),
       _stride("row_stride", "scratchpad rows from one iteration to the next"),
       Field("mem_stride", 32, signed=True, doc="bytes in memory from one iteration to the next"),
       configures=True),
    _i("LOAD_PAD", 0x11, "Sets the padding around every plane of the LOAD box. Padding exists in the scratchpad only.",
       Field("left", 8, doc="fill rows before each x run"),
       Field("right", 8, doc="fill rows after each x run"),
       Field("top", 8, doc="iterations of y before the box that are all fill"),
       Field("bottom", 8, doc="iterations of y after the box that are all fill"),
       Field("fill", 8, doc="the value of every byte of a fill row, whatever the target"),
       configures=True),
    _i("LOAD", 0x12, "Copies a box from memory to a scratchpad. With count0/row_stride0/mem_stride0 of LOAD_DIM level "
       "0, count1/... of level 1: for z < count1, for y < top + count0 + bottom: the scratchpad rows start at "
       "row + z*row_stride1 + y*row_stride0; left fill rows, then `count` rows, then right fill rows. Data row (z, y) "
       "comes from the contiguous bytes at offset + z*mem_stride1 + (y - top)*mem_stride0 of the region (any byte "
       "alignment); rows of y in the padding are left + count + right fill rows. "
       "A box without any row is ILLEGAL_OPERAND. A row is block_in bytes (ACT), a tile "
       "(WGT: block_out x block_in int8, o-major), block_in pairs int32 bias, float32 scale (PRM) or 256 bytes (LUT).",
       Field("region", 3, doc="memory region"),
       Field("offset", 32, doc="byte offset of the first data byte in the region"),
       Field("target", 2, doc="scratchpad", enum=Memory),
       _row("row", "first scratchpad row of the box, padding included"),
       Field("count", 16, doc="data rows of one x run; 0 only with fill rows")),
    _i("LOAD_CODED", 0x13,
       "Decodes weights into WGT, or loads the table for that, from `beats` bus beats at offset of the region; the low "
       "bits of offset, which tell bytes of a beat, are ignored. `tilewright.isa.codes` has the rule. The words of "
       "all LOAD_CODED of a program are one stream. WEIGHTS: `count` tiles from `row` on. TABLE: row and count are "
       "ignored. LOAD_DIM and LOAD_PAD do not matter. The error is CODE where words are missing, where beats are left "
       "over at the end, and where weights come before the first table; the window of the beats is checked when the "
       "first of them is needed.",
       Field("region", 3, doc="memory region"),
       Field("offset", 32, doc="byte offset of the first beat in the region"),
       Field("mode", 2, doc="what is loaded", enum=CodeMode),
       _row("row", "first tile of WGT"),
       Field("count", 16, doc="tiles, at least 1", at_least=1),
       Field("beats", 16, doc="bus beats the instruction takes"),
       requires="weight_codes"),
    _i("LOAD_PACKED", 0x14,
       "Copies a box of weights of 4 bits to WGT, as LOAD does with LOAD_DIM and LOAD_PAD. Only data rows differ: a "
       "tile is block_out x block_in / 2 bytes in memory, o-major; byte i has weight 2i in bits 0..3 and weight 2i + 1 "
       "in bits 4..7, both in two's complement, which become int8 of the same value.",
       Field("region", 3, doc="memory region"),
       Field("offset", 32, doc="byte offset of the first data byte in the region"),
       Field("target", 2, doc="scratchpad", enum=PackedTarget, at_least=PackedTarget.WGT),
       _row("row", "first tile of the box, padding included"),
       Field("count", 16, doc="tiles of one x run; 0 only with fill rows"),
       requires="packed_weights"),
    _i("LOAD_SYNC", 0x1f, "Only takes and gives semaphores: one step without effect, in order with the instructions "
       "around it. "
       "Its signals are given when everything LOAD did before is visible."),
    _i("GEMM_LOOP", 0x20, "Sets one level of the GEMM loop nest; level 0 is innermost. All levels start at count 1.",
       Field("level", 3, doc="0..gemm_loops-1", below="gemm_loops"),
       Field("count", 16, doc="iterations, at least 1", at_least=1),
       _stride("act_stride", "ACT rows per iteration"),
       _stride("wgt_stride", "WGT tiles per iteration"),
       _stride("acc_stride", "ACC rows per iteration"),
       configures=True),
    _i("GEMM", 0x21, "Walks the loop nest, one product per cycle. The innermost `reduce` levels are summed: for every "
       "index of the outer levels, ACC[acc] = (accumulate ? ACC[acc] : 0) + sum over the inner levels of "
       "WGT[wgt] (block_out x block_in) times ACT[act] (block_in), in wrapping int32. acc_stride of summed levels is "
       "ignored.",
       _row("act", "first ACT row"), _row("wgt", "first tile"), _row("acc", "first ACC row (of block_out lanes)"),
       Field("reduce", 4, doc="number of innermost levels that are summed, 0..gemm_loops", at_most="gemm_loops"),
       Field("accumulate", 1, doc="1 = add to what ACC holds")),
    _i("DEPTHWISE", 0x22, "Walks the loop nest pushing ACT[act] into the window, one push per cycle: slot 0 is the "
       "newest vector, slot i the one pushed i + delay * floor(i / S) pushes earlier, where S is 4 if block_in < 16, "
       "else 5; what was pushed before the instruction started counts as zero. With i0, i1 the indices of levels 0 and "
       "1: if i0 >= start0 and (i0 - start0) mod step0 == 0 and the same holds for level 1, then with D = "
       "min(block_in, block_out) lanes (half of block_out at most with packed_products), o < D: P[o] = sum over slots "
       "i < block_in of WGT[wgt][o][i] * "
       "slot[i][slice*D + o], and ACC[acc][o] = (accumulate ? ACC[acc][o] : 0) + P[o], in wrapping int32. ACC rows "
       "have D lanes here; acc advances by acc_stride of levels 0 and 1 per emission index (i - start) / step, of "
       "other levels per iteration. wgt advances on every level as in GEMM.",
       _row("act", "first ACT row"), _row("wgt", "first tile"), _row("acc", "first ACC row (of D lanes)"),
       Field("accumulate", 1, doc="1 = add to what ACC holds"),
       Field("start0", 6, doc="first index of level 0 that emits"),
       Field("step0", 4, doc="indices of level 0 from one emission to the next, at least 1", at_least=1),
       Field("start1", 6, doc="first index of level 1 that emits"),
       Field("step1", 4, doc="indices of level 1 from one emission to the next, at least 1", at_least=1),
       Field("slice", 4, doc="which D lanes of the ACT vectors; 0 unless D < block_in", below="dw_slices"),
       Field("delay", MAX_WINDOW_DELAY.bit_length(), doc="pushes by which each S slots come later",
             at_most="window_delay"),
       requires="depthwise"),
    _i("GEMM_SYNC", 0x2f, "Only takes and gives semaphores: one step without effect, in order with the instructions "
       "around it. "
       "Its signals are given when everything GEMM did before is visible."),
    _i("VECTOR_LOOP", 0x30, "Sets one level of the VECTOR loop nest; level 0 is innermost. All levels start at "
       "count 1.",
       Field("level", 3, doc="0..vector_loops-1", below="vector_loops"),
       Field("count", 16, doc="iterations, at least 1", at_least=1),
       _stride("a_stride", "rows of operand a (ACC vectors of block_in lanes, or ACT rows) per iteration"),
       _stride("b_stride", "ACT rows of operand b per iteration"),
       _stride("dst_stride", "ACT rows of the result per iteration"),
       _stride("prm_stride", "PRM rows per iteration"),
       configures=True),
    _i("VECTOR_ADD", 0x31, "Sets the constants of the integer Add.",
       Field("ma", 24, signed=True, doc="multiplier of the first operand"),
       Field("mb", 24, signed=True, doc="multiplier of operand b"),
       Field("c", 32, signed=True, doc="added constant"),
       Field("shift", 5, doc="arithmetic right shift"),
       configures=True),
    _i("VECTOR_POST", 0x32, "Sets zero points, clamps and the table of the post-processing.",
       Field("zp", 8, signed=True, doc="output zero point of the requantiser"),
       Field("lo", 8, signed=True, doc="lower clamp of the requantiser"),
       Field("hi", 8, signed=True, doc="upper clamp of the requantiser"),
       Field("add_lo", 8, signed=True, doc="lower clamp of Add"),
       Field("add_hi", 8, signed=True, doc="upper clamp of Add"),
       Field("za", 8, signed=True, doc="zero point of operand a in MUL"),
       Field("zb", 8, signed=True, doc="zero point of operand b in MUL"),
       Field("table", 4, doc="LUT table", at_most="last_table"),
       configures=True),
    _i("VECTOR", 0x33, "Walks the loop nest, one step per cycle, lane by lane. Source: ACC: v = ACC[a] (int32); ACT: "
       "v = ACT[a]; MUL: v = (ACT[a] - za) * (ACT[b] - zb); SUM, MAX: sum or maximum of ACT[a] over the innermost "
       "`reduce` levels (one result per index of the outer levels). ACC, MUL and SUM are then requantised: "
       "v = requantize(v + PRM[prm].bias (wrapping), PRM[prm].scale, zp, lo, hi, rounding). If `add`: v = "
       "clamp((v*ma + ACT[b]*mb + c) >> shift, add_lo, add_hi) in wrapping int32 sums. If `lut`: v = LUT[table][v & "
       "255]. ACT[dst] = v. For SUM and MAX, strides of b, dst and prm on the reduced levels are ignored; for other "
       "sources `reduce` is ignored.",
       Field("source", 3, doc="what the post-processing starts from", enum=Source),
       _row("a", "first row of operand a"), _row("b", "first ACT row of operand b"),
       _row("dst", "first ACT row of the result"),
       Field("prm", 12, doc="first PRM row"),
       Field("reduce", 4, doc="innermost levels reduced by SUM or MAX, 0..vector_loops", at_most="vector_loops"),
       Field("add", 1, doc="1 = integer Add with operand b"),
       Field("lut", 1, doc="1 = table look-up", at_most="table_lookup"),
       Field("rounding", 2, doc="requantiser mode", enum=Rounding)),
    _i("ROW", 0x34,
       "Walks the loop nest of VECTOR, for functions of rows that lie along the channels. A row is the lanes of "
       "ACT[a] over the innermost `reduce` levels, of its last vector only the first `tail` (all if 0). W(i) = word "
       "i & 255 of tables 4*(table/4) to 4*(table/4) + 3 of LUT, read as 256 little-endian words, of which the low "
       "`row_word_bits` count; E(prm) = W(ACT[a] - MAX[prm]). MAXIMUM: MAX[prm] = maximum of the row. EXP_SUM: "
       "PRM[prm].scale of every lane = row_scale(sum of E(prm) over the row modulo 2**36, number, exponent), about "
       "number * 2**(exponent - 109) / sum, see `tilewright.isa.numerics.row_scale`. EXP: for every vector, at every "
       "index of all levels, ACT[dst] = requantize(E(prm), PRM[prm].scale, zp, lo, hi, EVEN), without the bias. "
       "MOMENTS, POWER: in every pass the lanes' W(ACT[a] - za) are added; the low `row_square_bits` of such a sum "
       "are added to Q, what is above to S; STAT[prm] = row_norm(Q, S, number, e, MOMENTS), about 1 / sqrt(number * Q "
       "- S**2 + e), e = c + (ma & 65535) / 65536, with POWER without S**2, and the mean S / number - 128, see "
       "`tilewright.isa.row_norm`. NORM: for every vector, at every index of all levels, ACT[dst] = normalise(ACT[a], "
       "STAT[number], PRM[prm].bias, PRM[prm].scale, zp, lo, hi), where `number` advances by b_stride. With MAXIMUM, "
       "EXP_SUM, MOMENTS and POWER strides of prm on the reduced levels are ignored; with EXP and NORM `reduce` and "
       "`tail` are. MAX and STAT have a value for every row of PRM, which only MAXIMUM, or MOMENTS and POWER, set. "
       "`table`, za, zp, lo and hi are those of VECTOR_POST, c and ma those of VECTOR_ADD. ROW starts when every "
       "earlier VECTOR and ROW is complete.",
       Field("function", 3, doc="what is done", enum=RowFunction),
       _row("a", "first ACT row of the operand"),
       Field("number", 18, doc="EXP_SUM: dividend, 2**17 and more for 24 bits of the quotient; MOMENTS, POWER: "
             "elements of a row, of 13 bits; NORM: the first row's place in STAT"),
       _row("dst", "first ACT row of the result of EXP and NORM"),
       Field("prm", 12, doc="MAXIMUM to EXP: the PRM row of the first row's maximum and scale; MOMENTS, POWER: the "
             "first row's place in STAT; NORM: the first vector's PRM row"),
       Field("reduce", 4, doc="innermost levels that make up a row, 0..vector_loops", at_most="vector_loops"),
       Field("tail", 6, doc="lanes of the last vector of a row, 0 = all", below="block_in"),
       Field("exponent", 8, doc="EXP_SUM: of the quotient, as that of a float32"),
       requires="row_unit"),
    _i("VECTOR_WIDE", 0x35,
       "Walks the loop nest of VECTOR, one step per cycle, lane by lane: results of 16 bits, of which an instruction "
       "makes one byte. v = sum of ACC[a] over the innermost `reduce` levels (one result per index of the outer "
       "levels), where what has been summed so far is shifted left by 8 before each further row: with the sums of high "
       "bytes first and those of low bytes behind, that of 16-bit activations. Then v = v + PRM[prm].bias + h * 2**32, "
       "all in wrapping 48 bits; y = clamp(round(v * m / 2**t), low, high), ties upwards, and high where low exceeds "
       "it; m, t - 1 and h (signed) are bits 0 to 14, 16 to 21 and 22 to 31 of PRM[prm].scale. Of y 16 bits are kept: "
       "ACT[dst] = y >> 8 (HIGH), or (y & 255) - 128 (LOW). Strides of dst and prm on the reduced levels are ignored.",
       Field("byte", 3, doc="which byte of the results", enum=WideByte),
       _row("a", "first row of ACC (vectors of block_in lanes)"),
       _stride("high", "upper limit of the results"),
       _row("dst", "first ACT row of the result"),
       Field("prm", 12, doc="first PRM row"),
       Field("reduce", 4, doc="innermost levels that are summed, 0..vector_loops", at_most="vector_loops"),
       Field("low", 16, signed=True, doc="lower limit of the results"),
       requires="wide_results"),
    _i("VECTOR_SYNC", 0x3f, "Only takes and gives semaphores: one step without effect, in order with the instructions "
       "around it. "
       "Its signals are given when everything VECTOR did before is visible."),
    _i("STORE_DIM", 0x40, "Sets one outer dimension of the STORE box.",
       Field("level", 1, doc="0 = rows of the box (y), 1 = planes (z)"),
       Field("count", 16, doc="iterations, at least 1", at_least=1),
       _stride("row_stride", "ACT rows from one iteration to the next"),
       Field("mem_stride", 32, signed=True, doc="bytes in memory from one iteration to the next"),
       configures=True),
    _i("STORE", 0x41, "Copies a box of ACT rows to memory: for z, y of STORE_DIM, `count` rows from row + "
       "z*row_stride1 + y*row_stride0 go to the contiguous bytes at offset + z*mem_stride1 + y*mem_stride0 of the "
       "region.",
       Field("region", 3, doc="memory region"),
       Field("offset", 32, doc="byte offset of the first byte in the region"),
       _row("row", "first ACT row"),
       Field("count", 16, doc="rows of one x run, at least 1", at_least=1)),
    _i("STORE_SYNC", 0x4f, "Only takes and gives semaphores: one step without effect, in order with the instructions "
       "around it. "
       "Its signals are given when everything STORE did before is visible."),
)  # fmt: skip


def indexed(table: Iterable[Instruction]) -> tuple[dict[str, Instruction], dict[int, Instruction]]:
    """The instructions by name and by opcode. Raises ValueError where two share a name or an opcode."""
    by_name: dict[str, Instruction] = {}
    by_opcode: dict[int, Instruction] = {}
    for row in table:
        other = by_opcode.setdefault(row.opcode, row)
        if other is not row:
            raise ValueError(f"opcode 0x{row.opcode:02x} of {row.name} is that of {other.name}; each has its own")
        if by_name.setdefault(row.name, row) is not row:
            raise ValueError(f"two instructions are called {row.name}: opcodes 0x{by_name[row.name].opcode:02x} and "
                             f"0x{row.opcode:02x}")  # fmt: skip
    return by_name, by_opcode


BY_NAME, BY_OPCODE = indexed(INSTRUCTIONS)
#: Attributes of `NpuConfig` that bound operands or allow opcodes, in order of first use.
LIMITS: tuple[str, ...] = tuple(
    dict.fromkeys(
        name
        for name in (
            *(f.highest[0] for f in HEADER),
            *(name for i in INSTRUCTIONS for name in (i.requires, *(f.highest[0] for f in i.fields))),
        )
        if name
    )
)
