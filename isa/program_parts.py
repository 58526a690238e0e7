"""The parts of a `Program`: buffers, tensors, steps, rows of the reports. No behaviour, and no file format."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

#: Regions as every compiled program uses them (see `tilewright.isa.registers`, REGIONn_*).
PROGRAM_REGION = 0
CONSTANT_REGION = 1
ARENA_REGION = 2
#: A part of the arena that begins at another row in every run; see `Window`.
WINDOW_REGION = 3


class Layout(StrEnum):
    """The axis of a tensor that holds its channels where the NPU has it in blocks of lanes.

    The values are stored in program files and are part of buffer names.
    """

    #: Axis 1, as convolutions and pools have it: [N, C, H, W] or [N, C, W].
    CHANNELS_FIRST = "c1"
    #: The last axis, as matrix products have it: the axis before it is W, those before that are N, and H is 1.
    CHANNELS_LAST = "last"


@dataclass
class Buffer:
    """A named piece of memory.

    Attributes:
        name: unique in the program.
        space: "constant" or "arena" (device memory), or "host".
        offset: bytes from the start of that space; host buffers are offsets into the host arena.
        nbytes: size.
        data: for host constants, the section that holds the bytes ("" for none).
    """

    name: str
    space: str
    offset: int
    nbytes: int
    data: str = ""


@dataclass(frozen=True)
class BlockedLayout:
    """The layout of a tensor in a buffer in blocks of lanes.

    Attributes:
        shape: of the buffer, [N, CB, H, W, block]; of a tensor of 16 bits CB is twice that of a byte: the blocks of the
            high bytes, then those of the low ones less 128. Where N is a part of the images of a tensor with its
            channels last, so many of them lie side by side, and fill the lanes.
        block: lanes.
        xor: 128 where a uint8 tensor is stored as int8, else 0.
        convention: the axis of the tensor that holds the channels.
    """

    shape: tuple[int, ...]
    block: int
    xor: int = 0
    convention: Layout = Layout.CHANNELS_FIRST


@dataclass
class TensorInfo:
    """A graph input or output, or a quantised tensor that can be looked at.

    Attributes:
        name, shape, dtype: as in the model (numpy dtype name).
        buffer: the buffer with its value in C order, "" if it never leaves the scratchpads.
        scale, zero_point: quantisation, None for float tensors; lists for per-channel.
        relayout: layout of the value in the buffer if it is in blocks of lanes, None for plain C order. Of a float32
            tensor there are bytes in the blocks, int8 or with a flip of 128 uint8, which are its steps: scale and
            zero_point are theirs.
        where: "npu" or "cpu": the unit that computes it.
        reason: the reason why this tensor may differ from the reference by a step ("" = it must be equal).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    buffer: str
    scale: float | list[float] | None = None
    zero_point: int | list[int] | None = None
    relayout: BlockedLayout | None = None
    where: str = "npu"
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} {'x'.join(map(str, self.shape)) or 'scalar'}"


@dataclass
class StateInfo:
    """A value that lives from one run to the next.

    Attributes:
        name: as in the model.
        begin: tensor with the value that a run begins with. Its buffer holds the first run's value when the program is
            loaded.
        end: tensor with the value that the next run begins with.
    """

    name: str
    begin: TensorInfo
    end: TensorInfo


@dataclass(frozen=True)
class Window:
    """A region whose base the runtime moves before a run: to a row of the arena or of the constants.

    The row is `value modulo period`, or the last of the rows where it lies behind them.

    Attributes:
        region: number of the region.
        tensor: input of the program whose first element is the value; a run of an entry point without it leaves the
            base at the arena's.
        period: number of values.
        stride: bytes from one row to the next.
        rows: number of rows, 0 for as many as values.
        space: "arena" or "constant".
    """

    region: int
    tensor: str
    period: int
    stride: int
    rows: int = 0
    space: str = "arena"

    def offset(self, value: int) -> int:
        """Bytes from the base of the arena, or of the constants, to the region's."""
        return min(value % self.period, (self.rows or self.period) - 1) * self.stride


@dataclass(frozen=True)
class Lookup:
    """Rows of a table that the runtime copies into the arena before a run, one for each value of an input.

    Attributes:
        tensor: input of the program; a value below 0 counts rows from the end.
        buffer: buffer that begins with them: uint8 [blocks of a row, values, block].
        offset: first byte of the table in the constants.
        rows, stride: number of rows, and bytes of one.
        block: bytes of a block.
        entry: entry point whose runs need them, "" for a program without any.
    """

    tensor: str
    buffer: str
    offset: int
    rows: int
    stride: int
    block: int
    entry: str = ""


@dataclass
class EntryPoint:
    """One of several computations of a program, which share constants and states.

    Attributes:
        name: name by which a run selects it.
        inputs, outputs: inputs and outputs of its runs.
        first_step, step_count: its range of the program's steps.
        first_layer, layer_count: its range of the rows of the reports.
    """

    name: str
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]
    first_step: int
    step_count: int
    first_layer: int
    layer_count: int


@dataclass(frozen=True)
class HostFacts:
    """Requirements of a program's CPU kernels on the machine that runs them.

    Attributes:
        triple: LLVM target triple they are compiled for, "" for a program without kernels.
        features: instruction-set extensions they may use, by LLVM's names.
        threads: number of threads that call every kernel together.
    """

    triple: str = ""
    features: tuple[str, ...] = ()
    threads: int = 1


@dataclass
class NpuStep:
    """Runs instructions first..first+count-1 (the last one is END)."""

    first: int
    count: int
    kind: str = "npu"


@dataclass
class CpuStep:
    """Calls `symbol` of the object in `section` with the addresses of `buffers` and a workspace."""

    symbol: str
    section: str
    buffers: list[str]
    workspace: int
    ops: list[str]  # the graph nodes inside, "OpType name"
    kernels: list[str] = field(default_factory=list)  # one line per fused kernel
    kind: str = "cpu"


#: Kinds of machine operations that kernels are counted in, see `tilewright.compiler.cpu.cost.count.Work`.
WORK_KINDS = ("vector", "shuffle", "scalar", "plain", "divide", "memory", "gather", "turns")


@dataclass
class KernelWork:
    """Work of one kernel of a CPU step in a run, from which a model of the host derives time.

    Attributes:
        step: index of the step in the program.
        name, op: nodes it computes (several joined by " + "), conversions between NPU and CPU among them.
        work: machine operations by kind, of `WORK_KINDS`; absent kinds are 0.
        nbytes: bytes of the memory it reads and writes, each buffer once.
    """

    step: int
    name: str
    op: str
    work: dict[str, float]
    nbytes: int


@dataclass
class Layer:
    """A row of the reports: the part of the instruction image that belongs to a node of the model.

    Attributes:
        name, op: node of the model (several joined by " + " when fused).
        where: "npu" or "cpu".
        first, count: instruction range (count 0 for cpu layers).
        macs: multiply-accumulates of the model's arithmetic, padding and alignment not counted.
        read_bytes, write_bytes: memory traffic of the instructions.
        minimum_bytes: traffic that no schedule can avoid, see docs/simulators.md.
        minimum_writes: written part of `minimum_bytes`.
        minimum_steps: steps of the array that no schedule can avoid.
        after_all: no schedule can begin this layer or later ones before all earlier layers are done.
        tile: description of its tiling, for people to read.
    """

    name: str
    op: str
    where: str
    first: int = 0
    count: int = 0
    macs: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    minimum_bytes: int = 0
    tile: str = ""
    minimum_writes: int = 0
    minimum_steps: int = 0
    after_all: bool = False


@dataclass
class Proof:
    """A proof of a program, or of one of its entry points, for all inputs.

    Attributes:
        elements: elements of the outputs, each of which is the quantised graph's.
        instructions, accesses: instructions that were evaluated, and accesses whose order was checked.
        conversions, opaque: nodes of the CPU steps: conversions between layouts, and functions of which nothing is
            assumed.
        rows: rows of Softmax and norms by what they are, which have the integers of ROW.
        seed: of the names of values.
        work: the nodes of the CPU steps, and the tensors among them that the model does not have; made and read by
            `tilewright.prove.certificate`.
    """

    elements: int
    instructions: int
    accesses: int
    conversions: int
    opaque: int
    rows: dict[str, int]
    seed: int
    work: str


@dataclass
class Certificate:
    """The claim of a compiled program that it was proved, which `tilewright prove PROGRAM MODEL` checks.

    Attributes:
        model: SHA-256 of the model's file, 64 hex digits.
        config: fingerprint of the configuration.
        program: content hash of the program.
        checker: digest of the sources of the checker, 64 hex digits.
        trusted: passes of the front end that are not covered, with commas between them.
        states: inputs of the model that are states, as `compile_program` took them; "" for none.
        proofs: by the name of the entry point; "" in a program without.
        last: outputs of the model of which the program has the last row only.
    """

    model: str
    config: str
    program: str
    checker: str
    trusted: str
    states: dict[str, str] | str
    proofs: dict[str, Proof]
    last: list[str] = field(default_factory=list)
