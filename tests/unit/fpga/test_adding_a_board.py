"""A board is one file: `example_board.py` and its name in BOARDS are all that builds, lists and constraints need."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Const, Module, Value

from tests.common.lit_design import LitDesign
from tests.unit.fpga.example_board import BOARD
from tilewright.cli import cli
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.flows.ecp5 import CONSTRAINTS
from tilewright.fpga.points import board_named, point_of
from tilewright.isa.config import preset


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds the board, as the line in `fpga/boards/__init__.py` does."""
    monkeypatch.setitem(BOARDS, BOARD.name, BOARD)


def test_it_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["fpga", "boards"], prog_name="tilewright")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "icesugar_pro" in line]
    assert line.split() == ["icesugar_pro", "iCESugar-Pro", "24288", "28", "56"]


@pytest.mark.slow
def test_its_pins_reach_the_tools(tmp_path: Path) -> None:
    board, config = board_named("icesugar_pro"), preset("tiny")
    point = point_of(board, config)
    assert (point.clock_mhz, point.memory_kib) == (20, 16)
    board.flow().generate(board.design(config, point).top, tmp_path)
    constraints = (tmp_path / CONSTRAINTS).read_text()
    for port, pin in (("clk25_0__io", "P6"), ("uart_0__rx__io", "A9"), ("uart_0__tx__io", "B9"), ("led_2__io", "A12")):
        assert f'LOCATE COMP "{port}" SITE "{pin}"' in constraints


class Lit(LitDesign):
    """An LED that is on."""

    def body(self, m: Module) -> Value:
        return Const(1)


@pytest.mark.slow
def test_the_tools_make_a_bitstream_for_its_fpga(tmp_path: Path) -> None:
    flow = BOARD.flow()
    flow.generate(Lit(), tmp_path)
    flow.place_and_route(tmp_path, flow.synthesise(tmp_path), 50, [1], lambda text: None)
    flow.pack(tmp_path)
    assert b"LFE5U-25F" in (tmp_path / flow.images[0]).read_bytes()[:200]
