"""Checks that the parts of a program fit together, before any of them is used.

A program file may come from a stranger, or from a disk that fails. Everything that a runtime takes for granted later is
checked here: sizes, ranges, and that every named part exists.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.isa.encoding import DecodeError, decode
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import REGIONS
from tilewright.isa.program_parts import (
    ARENA_REGION,
    BlockedLayout,
    Buffer,
    CpuStep,
    EntryPoint,
    HostFacts,
    KernelWork,
    Layer,
    Layout,
    Lookup,
    NpuStep,
    StateInfo,
    TensorInfo,
    Window,
)

#: Bytes of any one memory of a program. A number beyond it is damage, not a plan.
MAX_BYTES = 1 << 44
MAX_THREADS = 64
#: 256 steps of the largest float32 scale are less.
MAX_VALUE = 1e42
#: Bytes of an element of the types that numpy does not know by name: those of ml_dtypes, which the importers make.
_OTHER_TYPES = {"bfloat16": 2} | dict.fromkeys(
    (
        "float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
        "int2", "int4", "uint2", "uint4",
    ), 1,
)  # fmt: skip
_SYMBOL = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Unfit(ValueError):
    """Parts of a program contradict each other. One line."""


def check_memory(sizes: Mapping[str, int], buffers: Sequence[Buffer], sections: Mapping[str, bytes]) -> None:
    """Checks that every buffer lies in its space and constants have their bytes.

    Args:
        sizes: bytes of each space.

    Raises:
        Unfit: the first contradiction.
    """
    for space, size in sizes.items():
        _within(f"the size of {space}", size, MAX_BYTES)
    seen: set[str] = set()
    constants: list[Buffer] = []
    for b in buffers:
        if not b.name or b.name in seen:
            raise Unfit(f"two buffers are called {b.name!r}")
        seen.add(b.name)
        if b.space not in sizes:
            raise Unfit(f"buffer {b.name!r} is in {b.space!r}; there are {', '.join(sizes)}")
        if b.offset < 0 or b.nbytes < 0 or b.offset + b.nbytes > sizes[b.space]:
            raise Unfit(f"buffer {b.name!r} lies outside of the {sizes[b.space]} bytes of {b.space!r}")
        if b.data:
            if b.space not in ("host", "arena") or b.data not in sections:
                raise Unfit(f"buffer {b.name!r} takes its bytes from section {b.data!r}, which does not exist")
            if len(sections[b.data]) > b.nbytes:
                raise Unfit(f"buffer {b.name!r} has {b.nbytes} bytes, its section {b.data!r} {len(sections[b.data])}")
            constants.append(b)
    constants.sort(key=lambda b: (b.space, b.offset))
    for first, second in itertools.pairwise(constants):
        overlap = first.space == second.space and first.offset + first.nbytes > second.offset
        if overlap and first.nbytes and second.nbytes:
            raise Unfit(f"the constants {first.name!r} and {second.name!r} overlap")


def check_tensor(tensor: TensorInfo, buffers: Mapping[str, Buffer]) -> None:
    """Checks that the tensor fits the buffer it names. Raises `Unfit`."""
    itemsize = _itemsize(tensor)
    if any(d < 0 for d in tensor.shape) or len(tensor.shape) > 64:
        raise Unfit(f"tensor {tensor.name!r} has shape {list(tensor.shape)}")
    if tensor.where not in ("npu", "cpu"):
        raise Unfit(f"tensor {tensor.name!r} is computed by {tensor.where!r}")
    scales = tensor.scale if isinstance(tensor.scale, list) else [tensor.scale or 0.0]
    if not all(abs(s) <= MAX_VALUE for s in scales):
        raise Unfit(f"tensor {tensor.name!r} has scale {tensor.scale}")
    size = math.prod(tensor.shape) * itemsize
    if tensor.relayout is not None:
        size = _blocked_size(tensor, tensor.relayout, itemsize)
    if tensor.buffer and tensor.buffer not in buffers:
        raise Unfit(f"tensor {tensor.name!r} is in buffer {tensor.buffer!r}, which does not exist")
    if tensor.buffer and buffers[tensor.buffer].nbytes < size:
        raise Unfit(
            f"tensor {tensor.name!r} of {size} bytes does not fit the {buffers[tensor.buffer].nbytes} of its buffer"
        )


def check_states(states: Sequence[StateInfo], buffers: Mapping[str, Buffer]) -> None:
    """Checks that states have own names, and begin and end as one kind of tensor in memory of the host, or of the
    device in blocks. Raises `Unfit`."""
    names: set[str] = set()
    for state in states:
        if state.name in names:
            raise Unfit(f"two states are called {state.name!r}")
        names.add(state.name)
        for tensor in (state.begin, state.end):
            check_tensor(tensor, buffers)
            if not tensor.buffer or buffers[tensor.buffer].space != ("host" if tensor.relayout is None else "arena"):
                raise Unfit(f"state {state.name!r} is neither in host memory nor in blocks in the arena")
        if (state.begin.dtype, tuple(state.begin.shape)) != (state.end.dtype, tuple(state.end.shape)):
            raise Unfit(f"state {state.name!r} ends a run as another tensor than it begins the next one with")
        if not buffers[state.begin.buffer].data:
            raise Unfit(f"state {state.name!r} has no value for the first run")


def check_windows(
    windows: Sequence[Window], inputs: Sequence[Sequence[TensorInfo]], sizes: Mapping[str, int], bus_bytes: int
) -> None:
    """Checks that windows have regions of their own, begin at whole beats within their memory, and follow an input.

    Args:
        windows: the windows.
        inputs: inputs of the program and of its entry points.
        sizes: bytes of "arena" and "constant".
        bus_bytes: bytes of a beat.

    Raises:
        Unfit: the first contradiction.
    """
    numbers = [window.region for window in windows]
    for w in windows:
        if not ARENA_REGION < w.region < REGIONS or numbers.count(w.region) > 1:
            raise Unfit(f"window {w.region} is not one of the regions {ARENA_REGION + 1}..{REGIONS - 1}, each once")
        if w.space not in ("arena", "constant"):
            raise Unfit(f"window {w.region} is one of {w.space!r}, not of arena or constant")
        counts = w.period >= 1 and 0 <= w.rows <= w.period
        if not counts or w.stride < 1 or w.stride % bus_bytes or w.offset(w.period - 1) >= sizes[w.space]:
            where = "an arena" if w.space == "arena" else "constants"
            raise Unfit(
                f"window {w.region} has {w.rows or w.period} rows of {w.stride} bytes in {where} of {sizes[w.space]}"
            )
        found = [t for some in inputs for t in some if t.name == w.tensor]
        if not found or any(t.dtype not in ("int32", "int64") or math.prod(t.shape) < 1 for t in found):
            raise Unfit(f"window {w.region} follows input {w.tensor!r}, which is no integer of this program")


def check_lookups(
    lookups: Sequence[Lookup],
    inputs: Mapping[str, Sequence[TensorInfo]],
    buffers: Mapping[str, Buffer],
    sizes: Mapping[str, int],
) -> None:
    """Checks that rows that are looked up lie in constants, and fit the buffer that they are copied to.

    Args:
        inputs: of each entry point by its name; of a program without any by "".

    Raises:
        Unfit: the first contradiction.
    """
    for rows in lookups:
        what = f"a lookup of {rows.rows} rows of {rows.stride} bytes by {rows.tensor!r}"
        t = next((t for t in inputs.get(rows.entry, ()) if t.name == rows.tensor), None)
        if t is None or t.dtype not in ("int32", "int64"):
            raise Unfit(f"{what}: no integers of this program")
        if min(rows.rows, rows.stride, rows.block) < 1 or rows.stride % rows.block or rows.offset < 0:
            raise Unfit(f"{what}: no blocks of {rows.block} from byte {rows.offset} on")
        if rows.offset + rows.rows * rows.stride > sizes["constant"]:
            raise Unfit(f"{what} in constants of {sizes['constant']}")
        buffer = buffers.get(rows.buffer)
        if buffer is None or buffer.space != "arena" or math.prod(t.shape) * rows.stride > buffer.nbytes:
            raise Unfit(f"{what}: {rows.buffer!r} is no buffer of the arena that has room for them")


def check_entries(entries: Sequence[EntryPoint], buffers: Mapping[str, Buffer], steps: int, layers: int) -> None:
    """Checks that entry points have own names, tensors that fit, and parts of the steps and layers. Raises `Unfit`."""
    names: set[str] = set()
    for entry in entries:
        if not entry.name or entry.name in names:
            raise Unfit(f"two entry points are called {entry.name!r}")
        names.add(entry.name)
        for tensor in (*entry.inputs, *entry.outputs):
            check_tensor(tensor, buffers)
        for what, first, count, total in (("steps", entry.first_step, entry.step_count, steps),
                                          ("layers", entry.first_layer, entry.layer_count, layers)):  # fmt: skip
            if first < 0 or count < 0 or first + count > total:
                raise Unfit(f"entry point {entry.name!r} has {what} {first}..{first + count - 1} of {total}")


def check_host_work(host_work: Sequence[KernelWork], steps: Sequence[NpuStep | CpuStep]) -> None:
    """Checks that every kernel belongs to an existing CPU step and its work is not negative. Raises `Unfit`."""
    for kernel in host_work:
        if not 0 <= kernel.step < len(steps) or not isinstance(steps[kernel.step], CpuStep):
            raise Unfit(f"the work of kernel {kernel.name!r} is of step {kernel.step}, which is no CPU step")
        if not all(0 <= amount <= MAX_VALUE for amount in (kernel.nbytes, *kernel.work.values())):
            raise Unfit(f"the work of kernel {kernel.name!r} is {kernel.work} and {kernel.nbytes} bytes")


def check_ranges(ranges: Mapping[str, tuple[float, float]]) -> None:
    """Checks that the range of every input is ordered and within MAX_VALUE. Raises `Unfit`."""
    for name, (low, high) in ranges.items():
        if not -MAX_VALUE <= low <= high <= MAX_VALUE:
            raise Unfit(f"the values of input {name!r} range from {low:g} to {high:g}")


def _itemsize(tensor: TensorInfo) -> int:
    """Bytes of an element of the tensor. Raises `Unfit` for an unknown dtype."""
    if tensor.dtype in _OTHER_TYPES:
        return _OTHER_TYPES[tensor.dtype]
    try:
        found = np.dtype(tensor.dtype)
    except (TypeError, ValueError, SyntaxError):
        found = np.dtype(object)
    if found.kind not in "biufc" or found.name != tensor.dtype:
        raise Unfit(f"tensor {tensor.name!r} is of type {tensor.dtype!r}, which is no type of numbers")
    return found.itemsize


def _blocked_size(tensor: TensorInfo, blocks: BlockedLayout, itemsize: int) -> int:
    """Bytes of the tensor in blocks of lanes. Raises `Unfit` unless the blocks hold exactly its elements."""
    shape, where = blocks.shape, f"the layout of tensor {tensor.name!r}"
    if len(shape) != 5 or min(shape, default=0) < 1 or blocks.block != shape[-1]:
        raise Unfit(f"{where} has shape {list(shape)} and blocks of {blocks.block}")
    if tensor.dtype == "float32" and isinstance(tensor.scale, float) and isinstance(tensor.zero_point, int):
        itemsize = 1  # steps of that scale
    if not (itemsize == 1 and blocks.xor in (0, 128)) and not (tensor.dtype == "int16" and blocks.xor == 0):
        raise Unfit(
            f"{where} is for elements of a byte and xor 0 or 128, or for int16, not {tensor.dtype} and {blocks.xor}"
        )
    axis = -1 if blocks.convention is Layout.CHANNELS_LAST else 1
    channels = tensor.shape[axis] if len(tensor.shape) >= 2 or (axis == -1 and tensor.shape) else 0
    beside = math.prod(tensor.shape) // max(shape[0] * channels * shape[2] * shape[3], 1)  # images in a block
    sizes = (shape[0] * beside * channels * shape[2] * shape[3], itemsize * -(-channels // blocks.block))
    fills = beside == 1 or (axis == -1 and beside * channels == blocks.block)
    if sizes != (math.prod(tensor.shape), shape[1]) or not fills:
        raise Unfit(f"{where} has shape {list(shape)}, which does not hold {list(tensor.shape)}")
    return math.prod(shape)


def check_steps(
    steps: Sequence[NpuStep | CpuStep],
    instructions: bytes,
    buffers: Mapping[str, Buffer],
    sections: Mapping[str, bytes],
    host: HostFacts,
) -> None:
    """Checks that steps lie within the instructions and end, and kernels and their buffers exist. Raises `Unfit`."""
    count, rest = divmod(len(instructions), INSTRUCTION_BYTES)
    if rest:
        raise Unfit(f"{len(instructions)} bytes of instructions are no multiple of {INSTRUCTION_BYTES}")
    _within("the number of threads", host.threads, MAX_THREADS, 1)
    for number, step in enumerate(steps):
        where = f"step {number}"
        if isinstance(step, NpuStep):
            if step.first < 0 or step.count < 1 or step.first + step.count > count:
                raise Unfit(f"{where} runs instructions {step.first}..{step.first + step.count - 1} of {count}")
            last = (step.first + step.count - 1) * INSTRUCTION_BYTES
            if not _ends(instructions[last : last + INSTRUCTION_BYTES]):
                raise Unfit(f"{where} does not end with END")
            continue
        _within(f"the workspace of {where}", step.workspace, MAX_BYTES)
        if not _SYMBOL.fullmatch(step.symbol):
            raise Unfit(f"{where} calls {step.symbol!r}")
        if step.section not in sections:
            raise Unfit(f"{where} needs section {step.section!r}, which does not exist")
        missing = [name for name in step.buffers if name not in buffers]
        if missing:
            raise Unfit(f"{where} needs buffer {missing[0]!r}, which does not exist")


def check_later(later: Sequence[NpuStep], steps: Sequence[NpuStep | CpuStep]) -> None:
    """Checks that NPU steps for later runs, if there are any, are one, as those of a first run. Raises `Unfit`."""
    runs = sum(isinstance(step, NpuStep) for step in steps)
    if later and (len(later), runs) != (1, 1):
        raise Unfit(f"{len(later)} NPU steps for later runs, {runs} for a first one; weights stay where there is one")


def check_layers(layers: Sequence[Layer], instructions: bytes) -> None:
    """Checks that rows of the reports name existing instructions. Raises `Unfit`."""
    count = len(instructions) // INSTRUCTION_BYTES
    for layer in layers:
        if layer.where not in ("npu", "cpu") or min(layer.first, layer.count) < 0 or layer.first + layer.count > count:
            raise Unfit(f"layer {layer.name!r} has instructions {layer.first}..{layer.first + layer.count} of {count}")


def _ends(word: bytes) -> bool:
    """True if the word is an END."""
    try:
        return decode(int.from_bytes(word, "little")).name == "END"
    except DecodeError:
        return False


def _within(what: str, value: int, high: int, low: int = 0) -> None:
    if not low <= value <= high:
        raise Unfit(f"{what} must be {low}..{high}, not {value}")
