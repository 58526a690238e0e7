"""Timing shared by RTL, cycle-level simulator and the compiler's cost model. Units are cycles.

Latency constants are those of the RTL in `hw/`; its tests assert them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.isa.config import NpuConfig


@dataclass(frozen=True, kw_only=True)
class MemoryTiming:
    """External memory in the test memory and the cycle model; see `docs/machine.md`.

    Attributes:
        read_latency: cycles from the address handshake to the first data beat.
        write_latency: cycles from the last data beat to the response.
        read_interval, write_interval: cycles between beats, 1 = a beat every cycle, 2.5 = beats after 3 and 2 cycles in
            turn.

    Raises:
        ValueError: a value out of its range.
    """

    read_latency: int = 64
    write_latency: int = 16
    read_interval: float = 1
    write_interval: float = 1

    def __post_init__(self) -> None:
        for name, kind, high in (
            ("read_latency", int, 4096),
            ("write_latency", int, 4096),
            ("read_interval", (int, float), 64),
            ("write_interval", (int, float), 64),
        ):
            value = getattr(self, name)
            if not isinstance(value, kind) or isinstance(value, bool) or not 1 <= value <= high:
                raise ValueError(f"{name} must be 1..{high} cycles, not {value!r}")


#: The default memory of simulators and schedules.
DEFAULT_MEMORY = MemoryTiming()

# Pipelines of the RTL, in cycles. A step is the cycle in which an engine issues its scratchpad reads.

#: Terms one registered stage of the array's adder tree sums (two levels of adders).
ARRAY_TREE_RADIX = 4
#: Cycles from a read of ACT or WGT to its data: the block RAM, and the register behind it, which can lie in the block.
ACT_READ_CYCLES = WGT_READ_CYCLES = 2
#: Bytes of a look-up table written in a cycle, at most: as wide as one block RAM per lane takes.
TABLE_WORD_BYTES = 4
#: Cycles from a VECTOR step to the cycle before its ACT write.
VECTOR_DEPTH = 22
#: Cycles from a signal to the cycle in which it can be taken, and from there to the start it allows.
GIVE_CYCLES = 2
TAKE_CYCLES = 1
#: GEMM and VECTOR signal so many cycles before their last write that the first step they allow follows that write.
SIGNAL_AHEAD = GIVE_CYCLES + TAKE_CYCLES - 1
#: Cycles from the last step of a VECTOR to its signals.
VECTOR_SIGNAL = VECTOR_DEPTH - SIGNAL_AHEAD
#: Cycles from a ROW step of EXP_SUM, MOMENTS or POWER that ends a row to the next that may.
ROW_DIVIDE_CYCLES = 14
#: ACC is read for a group this many cycles before its accumulate stage.
ACCUMULATE_STAGES = 2
#: Cycles from the first of a run, in which FETCH begins, to two cycles before its first request.
FETCH_SETUP = 4
#: Cycles from the dispatch of an instruction to the head of its queue, which is in block RAM.
QUEUE_CYCLES = 3
#: Instructions that wait between the halves of LOAD; reads STORE makes ahead of the bus.
LOAD_DESCRIPTORS = 8
STORE_ROWS = 4
#: Bursts of LOAD and of STORE that wait for the bus, so that nothing before them depends on it in one cycle.
OUT_BURSTS = 2
#: FETCH raises an error when the engines have been still for this many cycles: no signal is on its way any more.
QUIET_CYCLES = 7
#: Bytes of program FETCH asks for at once (bursts end at multiples of this address) and can buffer.
FETCH_BURST_BYTES = 256
FETCH_BUFFER_BYTES = 512


def table_chunk_cycles(config: NpuConfig) -> int:
    """Cycles of the write of a bus-wide chunk of a look-up table."""
    return max(1, config.bus_bytes // TABLE_WORD_BYTES)


def array_stages(config: NpuConfig) -> int:
    """Registers in the array: the products and the stages of the adder tree."""
    stages, terms = 1, config.block_in
    while terms > 1:
        terms = -(-terms // ARRAY_TREE_RADIX)
        stages += 1
    return stages


def row_tree_stages(config: NpuConfig) -> int:
    """Registers in the trees of the row unit, two levels each; none where VECTOR has one lane."""
    return -(-(config.vector_lanes.bit_length() - 1) // 2)


def row_scale_cycles(config: NpuConfig) -> int:
    """Cycles of the write of a scale to all lanes of a row of PRM: a row has so many words in each of its memories."""
    return config.block_in // max(config.vector_lanes, config.bus_bytes // 8)


def row_scale_write(config: NpuConfig) -> int:
    """Cycles from the last ROW step of EXP_SUM in a row to the first write of its scale to PRM: the exponentials, the
    tree, the sum, two cycles of normalisation, the division, and a register where there are several writes.
    """
    return 7 + row_tree_stages(config) + 1 + 1 + ROW_DIVIDE_CYCLES + (row_scale_cycles(config) > 1)


def row_norm_write(config: NpuConfig) -> int:
    """Cycles from the last ROW step of MOMENTS or POWER in a row to the write of STAT. Up to the sums they are those of
    a scale; then three to the radicand, ten for its exponent, a root, a division, two for the offset.
    """
    return 7 + row_tree_stages(config) + 1 + 3 + 10 + ROW_DIVIDE_CYCLES + ROW_DIVIDE_CYCLES + 2


def gemm_depth(config: NpuConfig) -> int:
    """Cycles from a GEMM or DEPTHWISE step to the accumulate stage: the reads, one cycle for the operand registers,
    then the array. The ACC write happens one cycle later.
    """
    return ACT_READ_CYCLES + 1 + array_stages(config)


def gemm_signal(config: NpuConfig) -> int:
    """Cycles from the last step of a GEMM or DEPTHWISE to its signals."""
    return gemm_depth(config) - SIGNAL_AHEAD


def window_pairs(config: NpuConfig, act_stride: int, wgt_stride: int, delay: int) -> bool:
    """Whether a DEPTHWISE with these strides of level 0 makes pushes without output two in a cycle: they read different
    banks of ACT, all of a line have the same weights, and what enters a delay line leaves it in another step.
    """
    return bool(config.window_pairs and act_stride % config.act_banks and not wgt_stride and delay != 1)


def window_line_steps(pushes: int, start: int, step: int, emits: bool, alone: bool) -> int:
    """Steps of a line of pushes made in pairs: one without output goes together with the next one.

    Args:
        pushes: pushes of the line.
        start, step: the first push with an output, and pushes from one to the next.
        emits: the line has outputs at all.
        alone: the first push is by itself, as the first one of an instruction is.
    """
    if not emits or start >= pushes:
        return (pushes + 1 + alone) // 2
    between, behind = divmod(pushes - 1 - start, step)
    return (start + (alone and start > 0)) // 2 + 1 + between * ((step - 1) // 2 + 1) + (behind + 1) // 2


def fetch_burst_bytes(config: NpuConfig) -> int:
    """Bytes at whose multiples bursts of FETCH end."""
    return min(FETCH_BURST_BYTES, config.burst_beats * config.bus_bytes)
