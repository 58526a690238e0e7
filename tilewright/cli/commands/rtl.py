"""`tilewright rtl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilewright.cli import arguments, terminal
from tilewright.cli.programs import Request
from tilewright.errors import UsageError
from tilewright.export.rtl_project import project_files
from tilewright.hw import packaging, verilog
from tilewright.isa.config import NpuConfig
from tilewright.measure.demo import DIGITS
from tilewright.store.files import write_files


@click.command(
    "rtl",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright rtl --config tiny -o rtl && make -C rtl lint sim\n"
        "  tilewright rtl --config my.toml -o rtl --top accelerator --json -\n"
        "  tilewright rtl --config small -o rtl --bench net.onnx\n"
    ),
)
@arguments.config_option
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder to write; made if missing."
)
@click.option("--top", default=verilog.TOP, show_default=True, metavar="NAME", help="Name of the top module.")
@click.option(
    "--bench",
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="The model or compiled program that the bench runs, with random inputs.  [default: digits]",
)
@arguments.json_option
def command(output: Path, config: str | None, top: str, bench: Path | None, json_path: str | None) -> None:
    """Write the NPU as Verilog, with all that a project without Tilewright needs.

    Beside the Verilog and a wrapper with the usual names of AXI lie constraints, lint rules, a FuseSoC core, the
    registers as SystemRDL and SVD, the C driver, and benches in C++ and cocotb that run a network and compare every
    byte. The README lists ports, registers, memories and modules, and says how to simulate. The same configuration
    (`base` unless another is given) gives the same Verilog every time.
    """
    chosen = NpuConfig.load(config or "base")
    if output.exists() and not output.is_dir():
        raise UsageError(f"cannot write {output}: not a folder")
    if not output.parent.is_dir():
        raise UsageError(f"cannot write {output}: no such directory {output.parent}")
    terminal.prepare_json(json_path)
    program, _ = Request(model=bench or DIGITS / "digits_int8.onnx", config=config).open(json_path)
    if program.config.fingerprint != chosen.fingerprint:
        raise UsageError(f"{bench} is compiled for {program.config.name}, not for {chosen.name}")
    with terminal.Working(f"writing the Verilog of {chosen.name}"):
        files = verilog.files(chosen, top, bench=True)
        title = f"{program.name} on {chosen.name}, random inputs"
        files |= project_files(program, title, packaging.wrapper_of(top))
    write_files(output, files)
    source = verilog.file_name(chosen)
    if terminal.emit_json(json_path, _summary(chosen, output, files, top)):
        lines = files[source].count("\n")
        click.echo(f"{output / source}: top module {top}, {lines} lines, configuration {chosen.fingerprint}")
        click.echo(f"make -C {output} lint sim: Verilator finds nothing, and runs {program.name}")


def _summary(config: NpuConfig, output: Path, files: dict[str, str], top: str) -> dict[str, Any]:
    text = files[verilog.file_name(config)]
    return {
        "config": config.name,
        "fingerprint": config.fingerprint,
        "top": top,
        "verilog": str(output / verilog.file_name(config)),
        "files": [str(output / name) for name in files],
        "lines": text.count("\n"),
        "modules": text.count("\nendmodule\n"),
        "ports": [{"name": n, "direction": d, "bits": b} for n, d, b in verilog.ports(config)],
        "memories": [{"name": n, "rows": r, "row_bytes": b, "bytes": r * b} for n, r, b in verilog.memories(config)],
    }
