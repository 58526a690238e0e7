"""Writes a folder from which the vendor's tool makes a bitstream: Verilog, Tcl, device-tree overlay, instructions."""

from __future__ import annotations

from importlib.resources import files as resources
from pathlib import Path

from tilewright.fpga.zynq.boards import ZynqBoard
from tilewright.fpga.zynq.overlay import OVERLAY, UIO_NAME, overlay
from tilewright.fpga.zynq.processing_systems import WINDOW, ZYNQ7
from tilewright.hw import verilog
from tilewright.isa.config import NpuConfig

CORE = "npu_core"
MASTER, SLAVE, REGISTERS = "M_AXI", "S_AXI", "registers"
IMAGE = "npu.bit.bin"
_AXI = "xilinx.com:interface:aximm:1.0"


def wrapper(config: NpuConfig) -> str:
    """Verilog of the packaged module: the NPU without debug strobes, ports named and marked for the vendor's tool."""
    interfaces = {"axi_": ("m_axi_", MASTER), "axil_": ("s_axi_", SLAVE)}
    ports = [
        '  (* X_INTERFACE_INFO = "xilinx.com:signal:clock:1.0 clk CLK",\n'
        f'     X_INTERFACE_PARAMETER = "ASSOCIATED_BUSIF {MASTER}:{SLAVE}, ASSOCIATED_RESET rst" *)\n'
        "  input clk",
        '  (* X_INTERFACE_INFO = "xilinx.com:signal:reset:1.0 rst RST",\n'
        '     X_INTERFACE_PARAMETER = "POLARITY ACTIVE_HIGH" *)\n'
        "  input rst",
        '  (* X_INTERFACE_INFO = "xilinx.com:signal:interrupt:1.0 irq INTERRUPT",\n'
        '     X_INTERFACE_PARAMETER = "SENSITIVITY LEVEL_HIGH" *)\n'
        "  output irq",
    ]
    pins = [(name, name) for name in ("clk", "rst", "irq")]
    for prefix, (outer, interface) in interfaces.items():
        protocol = "AXI4" if interface == MASTER else "AXI4LITE"
        mark = f', X_INTERFACE_PARAMETER = "PROTOCOL {protocol}"'
        for name, direction, width in verilog.ports(config):
            if not name.startswith(prefix):
                continue
            signal = name.removeprefix(prefix)
            bits = f" [{width - 1}:0]" if width > 1 else ""
            info = f'(* X_INTERFACE_INFO = "{_AXI} {interface} {signal.upper()}"{mark} *)'
            ports.append(f"  {info}\n  {direction}{bits} {outer}{signal}")
            pins.append((name, outer + signal))
            mark = ""  # parameters stand at the first port
    connections = ",\n".join(f"    .{inner}({outer})" for inner, outer in pins)
    return (
        f"// Tilewright NPU {config.name} ({config.fingerprint}) for a block design. Generated.\n"
        f"module {CORE} (\n" + ",\n".join(ports) + "\n);\n"
        f"  {verilog.TOP} npu (\n{connections}\n  );\nendmodule\n"
    )


def settings(board: ZynqBoard, config: NpuConfig, clock_mhz: float) -> str:
    """The text of `settings.tcl`: every name, address and width that `build.tcl` uses."""
    s = board.system
    options = [(name, value.format(memory_bits=s.memory_bits)) for name, value in s.options]
    options.append((s.clock_option, f"{clock_mhz:g}"))
    values = {
        "part": board.part,
        "board_part": board.board_part,
        "dsp_blocks": str(board.capacity.dsp),
        "clock_mhz": f"{clock_mhz:g}",
        "config_name": config.name,
        "config_fingerprint": config.fingerprint,
        "npu_source": verilog.file_name(config),
        "core_top": CORE,
        "core_vendor": "tilewright",
        "core_library": "npu",
        "core_version": "1.0",
        "master": MASTER,
        "slave": SLAVE,
        "registers": REGISTERS,
        "clock": "clk",
        "reset": "rst",
        "interrupt": "irq",
        "register_base": f"{s.registers:#010x}",
        "register_window": str(WINDOW),
        "ps_cell": s.cell,
        "ps_automation": 'make_external "FIXED_IO, DDR"' if s is ZYNQ7 else "",
        "ps_options": " ".join(f"{name} {value}" for name, value in options),
        "ps_control": s.control,
        "ps_memory": s.memory,
        "ps_control_clock": s.control_clock,
        "ps_memory_clock": s.memory_clock,
        "ps_clock": s.clock,
        "ps_reset": s.reset,
        "ps_interrupt": s.interrupt,
        "ps_memory_segment": "/".join(s.segments),
        "image": IMAGE,
    }
    lines = "".join(f"set {name} {{{value}}}\n" for name, value in values.items())
    return f"# {board.title}, NPU {config.name}. Generated: change the configuration, not this file.\n{lines}"


def readme(board: ZynqBoard, config: NpuConfig, clock_mhz: float) -> str:
    """The instructions for the exported folder, as Markdown."""
    return f"""\
# NPU `{config.name}` on {board.title}

{clock_mhz:g} MHz, registers at {board.system.registers:#x}, configuration fingerprint `{config.fingerprint}`.
Generated: change the configuration, not the files.

1. `make` runs the vendor's tool (`vivado` on the PATH): `npu.bit`, `npu.hwh`, `{IMAGE}`, `*.rpt`.
2. `make npu.dtbo` compiles the device-tree overlay (needs `dtc`).
3. On the board, as root:

```
cp {IMAGE} npu.dtbo /lib/firmware/
mkdir -p /sys/kernel/config/device-tree/overlays/npu
cat npu.dtbo > /sys/kernel/config/device-tree/overlays/npu/dtbo
tilewright probe uio:{UIO_NAME}
```

The scripts have been parsed and run against recorded commands, never in the vendor's tool; the bitstream has not been
seen on a board.
"""


MAKEFILE = f"""\
npu.bit: build.tcl settings.tcl
	vivado -mode batch -source build.tcl -nojournal -log build.log

npu.dtbo: {OVERLAY}
	dtc -@ -I dts -O dtb -o $@ $<

clean:
	rm -rf work .Xil npu.bit npu.hwh {IMAGE} npu.dtbo *.rpt *.log

.PHONY: clean
"""


def files(board: ZynqBoard, config: NpuConfig, clock_mhz: float | None = None) -> dict[str, str]:
    """Every file by name. Raises `FpgaError` for a configuration the board's ports cannot serve."""
    board.check(config)
    mhz = clock_mhz or board.export_clock_mhz
    return {
        "README.md": readme(board, config, mhz),
        "Makefile": MAKEFILE,
        "build.tcl": (resources("tilewright.fpga.zynq") / "build.tcl").read_text(encoding="utf-8"),
        "settings.tcl": settings(board, config, mhz),
        f"{CORE}.v": wrapper(config),
        verilog.file_name(config): verilog.convert(config),
        OVERLAY: overlay(board.system, board.title, mhz, IMAGE),
    }


def write(board: ZynqBoard, config: NpuConfig, directory: Path, clock_mhz: float | None = None) -> list[Path]:
    """Writes `files` into `directory` (made if missing). Returns the paths."""
    made = files(board, config, clock_mhz)
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (directory / name).write_text(text, encoding="utf-8")
    return [directory / name for name in made]
