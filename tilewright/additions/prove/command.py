"""`tilewright prove`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import tilewright as tw
from tilewright.cli import arguments, terminal
from tilewright.cli.group import MISMATCH
from tilewright.cli.programs import Request
from tilewright.cli.terminal import Working, stdout_for_json
from tilewright.errors import UsageError
from tilewright.isa.program import Program
from tilewright.prove import certificate, witness
from tilewright.prove.checker.compare import Verdict
from tilewright.prove.checker.graph import QuantisedGraph
from tilewright.prove.entries import joined, prove_all
from tilewright.prove.imported import TRUSTED
from tilewright.store.files import check_readable


@click.command(
    "prove",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright prove model.onnx --config small\n"
        "  tilewright prove model.onnx --program model.twp --json -\n"
        "  tilewright prove model.twp model.onnx  # by the certificate that compile --prove wrote\n"
    ),
)
@arguments.model_argument
@click.argument("certified", metavar="[MODEL]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--program", "program_path", type=click.Path(path_type=Path), help="A program of this model, instead of a new one."
)
@arguments.config_option
@arguments.shape_option
@arguments.decoder_options
@arguments.entry_option
@arguments.effort_option
@click.option("--seed", type=click.IntRange(0), help="Seed of the names of values; by default a new one each time.")
@click.option(
    "--inputs", type=click.IntRange(0), default=20, show_default=True,
    help="Random inputs to search one that shows a difference.",
)  # fmt: skip
@arguments.json_option
@arguments.gather(Request, "request")
def command(
    request: Request, certified: Path | None, program_path: Path | None, seed: int | None, inputs: int,
    json_path: str | None,
) -> int:  # fmt: skip
    """Prove that the program of MODEL, an ONNX or TFLite model, is right for all inputs.

    It then computes the model's quantised graph. Given a program that was compiled with --prove, and its model behind
    it, the certificate in the program is checked without the compiler. Exit code 1 if nothing is proved.
    """
    terminal.prepare_json(json_path)
    model = request.model if certified is None else certified
    started = time.perf_counter()
    if certified is not None:
        program, verdicts = _rechecked(request, certified, program_path, seed, json_path)
    elif request.is_program:
        raise UsageError(f"{model} is a compiled program: give its model behind it, or the model and --program {model}")
    else:
        program, verdicts = _proved(request, program_path, seed, json_path)
    verdict, found = joined(verdicts), None
    inputs = 0 if program.entries or program.states else inputs  # a run of these is not by itself
    if not verdict.proved and inputs:
        with Working(f"looking for an input of {model.name}"), stdout_for_json(json_path):
            found = witness.search(str(model), program, inputs)
    value = _summary(program, verdict, found, time.perf_counter() - started)
    if terminal.emit_json(json_path, value):
        click.echo(_text(model, program, verdict, found, inputs, value["seconds"]))
    return 0 if verdict.proved else MISMATCH


def _proved(
    request: Request, program_path: Path | None, seed: int | None, json_path: str | None
) -> tuple[Program, dict[str, Verdict]]:
    """The program of a model, and its proofs with the CPU steps that the compiler makes now."""
    if program_path is None:
        program = request.compile(request.given_shapes, json_path)
    else:
        program = tw.load(program_path)
        if request.config is not None:
            raise UsageError(f"{program_path} is compiled already: --config has no effect on it")
    with Working(f"proving {request.model.name}", log=True), stdout_for_json(json_path):
        return program, prove_all(_graphs(request, program), program, seed)


def _rechecked(
    request: Request, model: Path, program_path: Path | None, seed: int | None, json_path: str | None
) -> tuple[Program, dict[str, Verdict]]:
    """A program, and its proofs by its certificate."""
    check_readable(model)
    if not request.is_program:
        raise UsageError(f"{request.model} is no compiled program: give one, and its model behind it")
    unused = {
        "--program": program_path, "--config": request.config, "--shape": request.shapes, "--entry": request.entries,
        "--state": request.states, "--rising": request.options.rising, "--last": request.options.last,
    }  # fmt: skip
    for option, given in unused.items():
        if given:
            raise UsageError(f"a certificate is checked: {option} has no effect on it")
    program = request.compiled
    with Working(f"proving {request.model.name}", log=True), stdout_for_json(json_path):
        return program, certificate.recheck(model, program, seed)


def _graphs(request: Request, program: Program) -> dict[str, QuantisedGraph]:
    from tilewright.prove import compiled  # the compiler, which a check of a certificate does not need

    return compiled.quantised_graphs(request.source(), program.config, request.chosen.compiler, dict(request.entries))


def certify(request: Request, program: Program) -> None:
    """Proves a program that was compiled for a request, and gives it a certificate.

    Raises:
        UsageError: it is not proved.
    """
    graphs = _graphs(request, program)
    verdicts = prove_all(graphs, program)
    verdict = joined(verdicts)
    if not verdict.proved:
        raise UsageError(f"{request.model} on {program.config.name}: {verdict.reason}; `tilewright prove` says more")
    program.certificate = certificate.certificate(request.source(), program, graphs, verdicts)


def _summary(program: Program, verdict: Verdict, found: witness.Witness | None, seconds: float) -> dict[str, Any]:
    """The JSON form."""
    return {
        "model": program.name,
        "config": program.config.name,
        **asdict(verdict),
        "witness": None if found is None else asdict(found) | {"text": str(found)},
        "trusted_passes": [each.name for each in TRUSTED],
        "content": program.content_hash(),
        "seconds": seconds,
    }


def _text(
    model: Path, program: Program, verdict: Verdict, found: witness.Witness | None, inputs: int, seconds: float
) -> str:
    """The form for people."""
    where = f"{model.name} on {program.config.name}"
    work = (
        f"{verdict.instructions:,} instructions, order of {verdict.accesses:,} accesses; trusted: "
        f"{len(verdict.opaque)} nodes and {verdict.conversions} conversions on the CPU; "
        + "".join(f"{rows:,} rows of {what} by the integers of ROW; " for what, rows in verdict.assumed.items())
        + f"{seconds:.1f} s, seed {verdict.seed}"
    )
    if verdict.proved:
        return f"{where}: proved for all inputs, {verdict.elements:,} output elements; {work}"
    lines = [f"{where}: {verdict.reason}"]
    difference = verdict.difference
    if difference is not None:
        lines.append(
            f"  first of {difference.differing:,} output elements: {difference.output}{list(difference.place)}"
        )
        if difference.tensor:
            lines.append(f"  first in the graph: {difference.tensor}{list(difference.index)} of {difference.layer}")
    if found is not None:
        lines.append(f"  {found}")
    elif inputs:
        lines.append(f"  none of {inputs} random inputs shows a difference")
    return "\n".join([*lines, f"  {work}"])
