"""`tilewright info`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from tilewright.cli import arguments, programs, terminal
from tilewright.errors import UsageError
from tilewright.isa.program import CpuStep, Program, TensorInfo
from tilewright.measure import off_npu
from tilewright.store.files import write_text


@click.command(
    "info",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright info model.twp\n"
        "  tilewright info model.onnx --config large --json -\n"
        "  tilewright info model.onnx --mlir model.mlir\n"
    ),
)
@arguments.model_argument
@arguments.config_option
@arguments.shape_option
@arguments.decoder_options
@arguments.effort_option
@arguments.json_option
@click.option(
    "--mlir",
    "mlir_path",
    metavar="FILE|-",
    help="Write the model's graph as MLIR, which compile takes; - for standard output, and nothing else.",
)
@arguments.gather(programs.Request, "request")
def command(request: programs.Request, json_path: str | None, mlir_path: str | None) -> None:
    """Show what becomes of MODEL (an ONNX or TFLite model or a compiled program), layer by layer.

    Per layer: where it runs, its multiply-accumulates, bytes read and written, and how it is cut into tiles.
    """
    terminal.prepare_json(json_path)
    if json_path == mlir_path == "-":
        raise UsageError("standard output takes one of --json and --mlir: name a file for the other")
    if mlir_path is not None:
        write_graph(request, mlir_path)
    if mlir_path == "-" and json_path is None:
        return
    program, _ = request.open(json_path)
    if terminal.emit_json(json_path, describe(program)) and mlir_path != "-":
        show(program)


def write_graph(request: programs.Request, path: str) -> None:
    """Writes the graph of the model of a request to a file, or to standard output for "-"."""
    if request.is_program:
        raise UsageError(f"{request.model} is compiled already: --mlir writes the graph of a model")
    from tilewright.compiler.mlir.graph_text import graph_text  # needs the compiler's graph, which takes long to import

    if path != "-":
        terminal.prepare_output(path)
    text = graph_text(request.source().graph())
    if path == "-":
        click.echo(text, nl=False)
    else:
        write_text(path, text)


def describe(program: Program) -> dict[str, Any]:
    """The JSON form."""
    return programs.totals(program) | {
        "inputs": [_tensor(t) for t in program.inputs],
        "outputs": [_tensor(t) for t in program.outputs],
        "states": [_tensor(s.begin) | {"name": s.name} for s in program.states],
        "entries": [
            {"name": e.name, "inputs": [_tensor(t) for t in e.inputs], "outputs": [_tensor(t) for t in e.outputs]}
            for e in program.entries
        ],
        "layers": [asdict(layer) for layer in program.layers],
        "steps": [
            {"kind": s.kind, "ops": s.ops, "kernels": s.kernels}
            if isinstance(s, CpuStep)
            else {"kind": s.kind, "instructions": s.count}
            for s in program.steps
        ],
        "kernel_bytes": sum(len(program.sections[s]) for s in _objects(program)),
        "off_npu": off_npu.as_json(off_npu.causes(program)),
        "content": program.content_hash(),
        "compiler": program.compiler,
        "certificate": _certificate(program),
        "notes": program.notes,
    }


def _certificate(program: Program) -> dict[str, Any] | None:
    """The certificate without the nodes of the CPU steps."""
    if program.certificate is None:
        return None
    found = asdict(program.certificate)
    for proof in found["proofs"].values():
        del proof["work"]
    return found


def proof_line(program: Program) -> str:
    """One line about the certificate of a program, which has one."""
    found = program.certificate
    assert found is not None
    if found.program != program.content_hash() or found.config != program.config.fingerprint:
        return "proof: the certificate is of another program"
    proofs = found.proofs.values()
    opaque, conversions = sum(p.opaque for p in proofs), sum(p.conversions for p in proofs)
    return (
        f"proof: its certificate says that it is right for all inputs of the model {found.model[:12]}: "
        f"{sum(p.elements for p in proofs):,} output elements, order of {sum(p.accesses for p in proofs):,} accesses; "
        f"trusted: {opaque} nodes and {conversions} conversions on the CPU; `tilewright prove PROGRAM MODEL` checks it"
    )


def _objects(program: Program) -> set[str]:
    return {s.section for s in program.steps if isinstance(s, CpuStep)}


def _tensor(info: TensorInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "shape": list(info.shape),
        "dtype": info.dtype,
        "scale": info.scale,
        "zero_point": info.zero_point,
    }


def show(program: Program) -> None:
    """The table form."""
    console = terminal.table_console()
    table = Table(title=f"{program.name} for {program.config.name}", title_justify="left")
    for heading in ("layer", "op", "where", "tile"):
        table.add_column(heading, overflow="fold")
    for heading in ("MAC", "read", "written", "minimum"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in program.layers:
        sizes = (layer.macs, layer.read_bytes, layer.write_bytes, layer.minimum_bytes)
        texts = [terminal.human(x) if x else "" for x in sizes]
        table.add_row(layer.name, layer.op, layer.where, layer.tile, *texts)
    console.print(table)
    for kind, infos in (("input", program.inputs), ("output", program.outputs)):
        for t in infos:
            console.print(f"{kind:7} {t.name}: {t.dtype} {'x'.join(map(str, t.shape))}", markup=False)
    for entry in program.entries:
        for kind, infos in (("takes", entry.inputs), ("gives", entry.outputs)):
            text = ", ".join(f"{t.name}: {t.dtype} {'x'.join(map(str, t.shape))}" for t in infos)
            console.print(f"entry   {entry.name} {kind} {text}", markup=False)
    for state in program.states:
        shape = "x".join(map(str, state.begin.shape))
        console.print(f"state   {state.name}: {state.begin.dtype} {shape}, kept from run to run", markup=False)
    found = programs.totals(program)
    console.print(
        f"{terminal.human(program.macs, 'MAC')}, {found['npu_mac_fraction']:.2%} on the NPU; "
        f"{found['instructions']} instructions, {terminal.human(found['constant_bytes'], 'B')} constants, "
        f"{terminal.human(found['arena_bytes'], 'B')} arena, {terminal.human(found['host_bytes'], 'B')} host memory",
        markup=False,
    )
    ops = Counter(op.split()[0] for op in found["cpu_ops"] if op)
    console.print(f"on the CPU: {', '.join(f'{n} {op}' for op, n in ops.most_common()) or 'nothing'}", markup=False)
    if program.certificate is not None:
        console.print(proof_line(program), markup=False)
    causes = off_npu.causes(program)
    if causes:
        left = Table(title="MACs that are not on the NPU", title_justify="left")
        left.add_column("cause", overflow="fold")
        left.add_column("layers", justify="right", no_wrap=True)
        left.add_column("share of MACs", justify="right", no_wrap=True)
        for row in off_npu.table(causes):
            left.add_row(*map(escape, row))
        console.print(left)
    for note in program.notes:
        console.print(f"note: {note}", markup=False)
