"""A board is one file: `example_board.py` and its name in BOARDS are all that builds, lists and constraints need."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Const, Module, Value

from fpga.boards import BOARDS
from fpga.build import board_named, point_of
from fpga.toolchain import FAMILIES, NAME, run
from fpga.top import BoardTop
from isa.config import preset
from tests.common.lit_design import LitDesign
from tests.unit.fpga.example_board import BOARD
from tilewright.cli import cli


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the line in `fpga/boards/__init__.py` does."""
    monkeypatch.setitem(BOARDS, BOARD.name, BOARD)


def test_it_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["fpga", "boards"], prog_name="tilewright")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "icesugar_pro" in line]
    assert line.split() == ["icesugar_pro", "iCESugar-Pro", "24288", "28", "56"]


@pytest.mark.slow
def test_its_pins_reach_the_tools() -> None:
    board, config = board_named("icesugar_pro"), preset("tiny")
    point = point_of(board, config)
    assert (point.clock_mhz, point.memory_kib) == (20, 16)
    top = BoardTop(board, config, point, board.pll(round(point.clock_mhz * 1e6)))
    plan = board.platform().prepare(top, name=NAME, emit_src=False, **FAMILIES[board.family].overrides)
    constraints = str(plan.files[f"{NAME}.lpf"])
    for port, pin in (("clk25_0__io", "P6"), ("uart_0__rx__io", "A9"), ("uart_0__tx__io", "B9"), ("led_2__io", "A12")):
        assert f'LOCATE COMP "{port}" SITE "{pin}"' in constraints


class Lit(LitDesign):
    """An LED that is on."""

    def body(self, m: Module) -> Value:
        return Const(1)


@pytest.mark.slow
def test_the_tools_make_a_bitstream_for_its_fpga(tmp_path: Path) -> None:
    family, platform = FAMILIES[BOARD.family], BOARD.platform()
    platform.prepare(Lit(), name=NAME, emit_src=False, **family.overrides).extract(tmp_path)
    run(family.synthesis(tmp_path), tmp_path)
    for step in (family.route(platform, 50.0, 1, False), family.pack(platform)):
        run(step, tmp_path)
    assert b"LFE5U-25F" in (tmp_path / family.bitstream).read_bytes()[:200]
