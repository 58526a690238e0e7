"""`tilewright generate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

import tilewright as tw
from tilewright.cli import arguments, terminal
from tilewright.cli.group import MISMATCH
from tilewright.cli.terminal import Working, stdout_for_json
from tilewright.errors import UsageError
from tilewright.generate import DECODE, PREFILL, GreedyReference, LanguageModel, Step
from tilewright.isa.program import Program
from tilewright.measure.clock import clock_of, clock_option
from tilewright.measure.latency import Latency, latency
from tilewright.runtime.backends import preset_of
from tilewright.runtime.cost import run_npu_steps
from tilewright.runtime.devices import Device, Runner
from tilewright.simulator.cycle import CycleDevice
from tilewright.store.files import check_readable


@dataclass
class Generation:
    """Tokens of one generation, and how they compare with the reference.

    Attributes:
        prompt: numbers of its tokens.
        steps: one for each token made.
        differences: tokens, by number from 0, for which the reference would have chosen another one.
        unequal: tokens whose logits differ from the reference's in any bit.
        reference: what they were compared with, "" for nothing.
    """

    prompt: list[int]
    steps: list[Step] = field(default_factory=list)
    differences: list[int] = field(default_factory=list)
    unequal: int = 0
    reference: str = ""


@click.command(
    "generate",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright generate micro_llama.onnx --prompt 'Once upon'\n"
        "  tilewright generate micro_llama.onnx --prompt 'Once upon' --tokens 20 --backend rtl\n"
        "  tilewright generate micro_llama.onnx --prompt-ids 40,37,44 --check --json -\n"
    ),
)
@arguments.model_argument
@click.option("--prompt", help="Text to continue; its tokens come from the vocabulary in the model's metadata.")
@click.option("--prompt-ids", metavar="N,N,...", help="The prompt as numbers of tokens; then numbers are printed, too.")
@click.option(
    "--tokens", "count", type=click.IntRange(1), default=100, show_default=True, help="How many tokens to make."
)
@click.option("--prefill", type=click.IntRange(1), help="Tokens of a run of the prompt; by default the cache's size.")
@click.option("--backend", "--device", "backend", default="functional", show_default=True, help="Device to run on.")
@arguments.config_option
@arguments.effort_option
@arguments.clock_option
@click.option(
    "--check", "check", is_flag=True, help="Compare every token with onnxruntime's choice. Exit code 1 on a difference."
)
@arguments.trust_option
@arguments.json_option
def command(
    model: Path,
    prompt: str | None,
    prompt_ids: str | None,
    count: int,
    prefill: int | None,
    backend: str,
    config: str | None,
    effort: int,
    clock_mhz: float | None,
    check: bool,
    trust: bool,
    json_path: str | None,
) -> int:
    """Continue a prompt by MODEL, a language model (ONNX) or a program compiled from one.

    The token of the greatest logit is taken each time. Keys and values of past tokens stay in the program's memory.
    """
    terminal.prepare_json(json_path)
    if (prompt is None) == (prompt_ids is None):
        raise UsageError("give the prompt either as text (--prompt) or as numbers of tokens (--prompt-ids)")
    check_readable(model)
    if check and Program.is_program(model):
        raise UsageError(f"--check compares with the model, and {model} is a compiled program")
    language = _load(model, config, backend, prefill, effort, trust, json_path)
    if prompt is not None and language.vocabulary is None:
        raise UsageError(f"{model} has no vocabulary in its metadata: give the prompt with --prompt-ids")
    made = Generation(_numbers(prompt_ids) if prompt is None else language.vocabulary.encode(prompt))  # type: ignore[union-attr]
    language.check(made.prompt, count)
    with Working(f"opening {backend}", log=True) as working:
        options = {"progress": working.estimate} if backend == "rtl" else {}
        runner = Device(backend, config, **options)
    with runner:
        runner.load(language.program)
        _generate(language, runner, made, count, model if check else None, prompt, quiet=json_path == "-")
    speeds = {name: _speed(language, name, made, clock_mhz) for name in _used(made)}
    if terminal.emit_json(json_path, _summary(language, runner, made, speeds)):
        _show(made, speeds)
    return MISMATCH if made.differences else 0


def _load(
    model: Path, config: str | None, backend: str, prefill: int | None, effort: int, trust: bool, json_path: str | None
) -> LanguageModel:
    if Program.is_program(model):
        if prefill is not None:
            raise UsageError(f"{model} is compiled already: --prefill has no effect on it")
        return LanguageModel(tw.load(model, trust=trust))
    with Working(f"compiling {model.name}") as working, stdout_for_json(json_path):
        chosen = config or preset_of(backend) or "base"
        return LanguageModel.load(model, chosen, prefill=prefill, effort=effort, progress=working.fraction)


def _numbers(text: str | None) -> list[int]:
    """Parses --prompt-ids. Raises `UsageError` for what is no number."""
    try:
        return [int(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"--prompt-ids must be numbers separated by commas, not {text!r}") from None


def _generate(
    language: LanguageModel,
    runner: Runner,
    made: Generation,
    count: int,
    model: Path | None,
    prompt: str | None,
    quiet: bool,
) -> None:
    """Prints tokens as they come, unless `quiet`.

    Args:
        model: to compare with in onnxruntime, None for nothing.
        prompt: as text, None for numbers.
    """
    reference = GreedyReference(model) if model is not None else None
    made.reference = reference.name if reference is not None else ""
    words = language.vocabulary if prompt is not None else None
    before = made.prompt
    if not quiet:
        click.echo(prompt if prompt is not None else ",".join(map(str, made.prompt)), nl=False)
    try:
        for number, step in enumerate(language.generate(runner, made.prompt, count)):
            made.steps.append(step)
            if not quiet:
                text = words.text(step.token) if words is not None else f",{step.token}"
                click.echo(text, nl=False)
            if reference is not None:
                wanted = reference.logits(before)
                made.unequal += bool((wanted != step.logits).any())
                if int(wanted.argmax()) != step.token:
                    made.differences.append(number)
            before = [step.token]
    finally:  # what is said of an interruption or a fault stands on a line of its own
        if not quiet:
            click.echo()


def _used(made: Generation) -> list[str]:
    return [name for name in (PREFILL, DECODE) if any(step.entry == name for step in made.steps)]


def _speed(language: LanguageModel, name: str, made: Generation, clock_mhz: float | None) -> Latency:
    """Returns the latency of a run of an entry point. Cycles depend on no value: a device without a clock needs only
    the simulator's."""
    entry = language.program.entry(name)
    cycles = next(step.cycles for step in reversed(made.steps) if step.entry == name)
    if cycles is None:
        cycles = run_npu_steps(entry, CycleDevice(entry.config, functional=False)).cycles or 0
    return latency([entry], cycles, clock_of(entry.config, clock_option(clock_mhz)))


def _summary(language: LanguageModel, runner: Runner, made: Generation, speeds: dict[str, Latency]) -> dict[str, Any]:
    """Returns the result for JSON."""
    tokens, words = [step.token for step in made.steps], language.vocabulary
    decode = speeds.get(DECODE)
    found: dict[str, Any] = {
        "model": language.program.name,
        "config": language.program.config.name,
        "backend": runner.name,
        "prompt": made.prompt,
        "tokens": tokens,
        "text": "".join(map(words.text, tokens)) if words is not None else None,
        "tokens_per_second": 1 / decode.seconds if decode is not None and decode.seconds else None,
        "simulation_seconds": sum(step.seconds for step in made.steps),
        "entries": {name: speed.to_dict() for name, speed in speeds.items()},
    }
    if made.reference:
        found["check"] = {
            "reference": made.reference, "different_tokens": made.differences, "unequal_logits": made.unequal,
        }  # fmt: skip
    return found


def _show(made: Generation, speeds: dict[str, Latency]) -> None:
    """Prints the lines after the text."""
    console = terminal.table_console()
    for name, speed in speeds.items():
        what = f"the prompt of {len(made.prompt)} tokens" if name == PREFILL else "each token"
        unit = "prompts/s" if name == PREFILL else "tokens/s"
        console.print(f"{what}: {speed.sentence().replace('inferences/s', unit)}", markup=False)
    if made.reference:
        count = len(made.steps)
        same = f"{count - len(made.differences)} of {count} tokens are those of {made.reference}"
        console.print(f"{same}; logits equal to the bit for {count - made.unequal}", markup=False)
