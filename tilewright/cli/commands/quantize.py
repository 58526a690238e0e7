"""`tilewright quantize`."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli import arguments, terminal
from tilewright.errors import UsageError
from tilewright.files import check_writable, read_arrays, write_bytes
from tilewright.quantization import quantize_model


@click.command(
    "quantize",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright quantize float.onnx --calibration images.npy -o int8.onnx\n"
        "  tilewright quantize float.onnx --calibration inputs.npz -o int8.onnx --activation uint8\n"
    ),
)
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--calibration",
    required=True,
    type=click.Path(path_type=Path),
    metavar="NPZ|NPY",
    help="Samples of the inputs: arrays by input name (.npz), or of a single input (.npy); first axes count samples.",
)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="ONNX file to write.")
@click.option("--activation", type=click.Choice(["int8", "uint8"]), default="int8", show_default=True)
@click.option("--form", type=click.Choice(["qdq", "qoperator"]), default="qdq", show_default=True)
@click.option("--per-tensor", is_flag=True, help="One scale per weight tensor instead of one per output channel.")
@arguments.json_option
def command(
    model: Path, calibration: Path, output: Path, activation: str, form: str, per_tensor: bool, json_path: str | None
) -> None:
    """Quantise MODEL (float ONNX) to 8 bits with onnxruntime's static quantiser."""
    check_writable(output)
    terminal.prepare_json(json_path)
    arrays = read_arrays(calibration)
    if not arrays:
        raise UsageError(f"input file {calibration} has no arrays")
    with terminal.Working(f"quantising {model.name}"), terminal.stdout_for_json(json_path):
        result = quantize_model(
            model, arrays.get("", arrays), activation=activation, form=form, per_channel=not per_tensor
        )
    raw = result.SerializeToString()
    write_bytes(output, raw)
    found = {
        "output": str(output),
        "bytes": len(raw),
        "activation": activation,
        "form": form,
        "quantize_nodes": sum(
            n.op_type == "QuantizeLinear" or n.op_type.startswith("QLinear") for n in result.graph.node
        ),
    }
    if json_path is not None:
        terminal.emit_json(json_path, found)
    if json_path != "-":
        console = terminal.table_console()
        console.print(f"{output}: {form}, {activation} activations, {len(raw)} bytes", markup=False)
