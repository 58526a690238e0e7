"""Boards without a host for tests: what must be installed, their images, and the SoC, Verilated."""

from __future__ import annotations

import importlib.util

import numpy as np

import tilewright as tw
from tests.common import needs
from tilewright.fpga.board import Point
from tilewright.fpga.sim.standalone import standalone_line
from tilewright.fpga.standalone.boards import ALONE, StandaloneBoard
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.standalone.ask import SimulationLine
from tilewright.standalone.build import board_with_core
from tilewright.standalone.client import Client
from tilewright.standalone.firmware import firmware

BOARD = "ulx3s_85f"


def require(*packages: str) -> None:
    """Skips the test where a package is missing."""
    for package in packages or ("ziglang", "pythondata_cpu_vexriscv"):
        if importlib.util.find_spec(package) is None:
            needs.skip(needs.STANDALONE, f"no {package}")


def board() -> StandaloneBoard:
    """The ULX3S with its boot program."""
    require()
    return board_with_core(BOARD)


def started(board: StandaloneBoard, config: NpuConfig, point: Point, image: bytes) -> SimulationLine:
    """The SoC with an image in its flash memory."""
    line = standalone_line(board, config, point)
    line.set_flash(b"\xff" * ALONE[BOARD].place.offset + image)
    return SimulationLine(line)


def outputs(
    program: Program, point: Point, inputs: dict[str, np.ndarray], config: NpuConfig
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Starts the SoC from its flash memory, runs a program once, and gives its outputs and all lines."""
    lines: list[str] = []
    line = started(board(), config, point, firmware(program).image)
    client = Client(line, lines.append)
    client.wait()
    client.load(b"".join(np.ascontiguousarray(inputs[t.name]).tobytes() for t in program.inputs))
    client.infer(1)
    found = dict(client.outputs(program.outputs))
    client.command("cycles")
    assert line.line.sdram_fault == 0
    line.close()
    return found, lines


def compiled(model: object, config: str) -> Program:
    """A program for the core."""
    return tw.compile_program(model, config, host="riscv32-none")  # type: ignore[arg-type]
