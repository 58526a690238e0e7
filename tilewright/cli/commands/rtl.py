"""`tilewright rtl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilewright.cli import arguments, terminal
from tilewright.errors import UsageError
from tilewright.hw import verilog
from tilewright.isa.config import NpuConfig
from tilewright.store.files import write_files


@click.command(
    "rtl",
    epilog="\b\nExamples:\n  tilewright rtl --config tiny -o rtl\n  tilewright rtl --config my.toml -o rtl --json -\n",
)
@arguments.config_option
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder to write; made if missing."
)
@arguments.json_option
def command(output: Path, config: str | None, json_path: str | None) -> None:
    """Write the NPU as Verilog: one file, its README and its lint rules.

    A FuseSoC core, the registers as SystemRDL and the C header lie beside it. The README lists ports, registers,
    memories and modules, and says how to simulate. The same configuration (`base` unless another is given) gives the
    same bytes every time.
    """
    chosen = NpuConfig.load(config or "base")
    if output.exists() and not output.is_dir():
        raise UsageError(f"cannot write {output}: not a folder")
    if not output.parent.is_dir():
        raise UsageError(f"cannot write {output}: no such directory {output.parent}")
    terminal.prepare_json(json_path)
    with terminal.Working(f"writing the Verilog of {chosen.name}"):
        files = verilog.files(chosen)
    write_files(output, files)
    source = verilog.file_name(chosen)
    if terminal.emit_json(json_path, _summary(chosen, output, files)):
        lines = files[source].count("\n")
        click.echo(f"{output / source}: top module {verilog.TOP}, {lines} lines, configuration {chosen.fingerprint}")


def _summary(config: NpuConfig, output: Path, files: dict[str, str]) -> dict[str, Any]:
    text = files[verilog.file_name(config)]
    return {
        "config": config.name,
        "fingerprint": config.fingerprint,
        "top": verilog.TOP,
        "verilog": str(output / verilog.file_name(config)),
        "files": [str(output / name) for name in files],
        "lines": text.count("\n"),
        "modules": text.count("\nendmodule\n"),
        "ports": [{"name": n, "direction": d, "bits": b} for n, d, b in verilog.ports(config)],
        "memories": [{"name": n, "rows": r, "row_bytes": b, "bytes": r * b} for n, r, b in verilog.memories(config)],
    }
