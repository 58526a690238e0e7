"""`tilewright generate`."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

import tilewright as tw
from tilewright.cli import arguments, terminal
from tilewright.cli.group import MISMATCH
from tilewright.cli.terminal import Working, stdout_for_json
from tilewright.errors import UsageError
from tilewright.generate import generation
from tilewright.generate.chat import Chat
from tilewright.generate.chat_template import ChatTemplate
from tilewright.generate.conversation import Conversation
from tilewright.generate.generation import Ends, Generation, Turn
from tilewright.generate.language_model import LanguageModel
from tilewright.generate.model_folder import ModelFolder
from tilewright.generate.reference import GreedyReference
from tilewright.generate.sampling import Sampler
from tilewright.generate.score import score
from tilewright.generate.speed import speeds
from tilewright.generate.state_file import load_state, save_state
from tilewright.generate.text_stream import Words
from tilewright.isa.program import Program
from tilewright.measure.clock import clock_option
from tilewright.runtime.backends import preset_of
from tilewright.runtime.devices import Device, Runner
from tilewright.store.files import check_readable

_LISTENS = (
    "json_path",
    "score_path",
    "save_path",
    "load_path",
    "check",
    "prompt",
    "prompt_ids",
    "chat",
    "system",
    "clock_mhz",
)
_SEED = (1 << 64) - 1


@dataclass
class Drawing:
    """The options of sampling, None where they are not given."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None

    def sampler(self) -> Sampler:
        """Greedy without any of them; with some, but no temperature, that is 1."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        return Sampler(**({"temperature": 1.0} if given else {}) | given)


@dataclass
class Place:
    """The options that say where the model runs, and how it is compiled."""

    config: str | None
    backend: str
    prefill: int | None
    effort: int
    trust: bool


@click.command(
    "generate",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright generate micro_llama.onnx --prompt 'Once upon'\n"
        "  tilewright generate micro_llama.onnx --prompt 'Once upon' --tokens 20 --backend cycle\n"
        "  tilewright generate micro_llama.onnx --prompt-ids 40,37,44 --check --json -\n"
        "  tilewright generate smollm2/model.onnx --prompt 'Once upon' --temperature 0.8 --top-p 0.9 --seed 7\n"
        "  tilewright generate smollm2/model.onnx --chat --system 'Answer in one sentence.' --save-state talk.npz\n"
        "  tilewright generate smollm2/model.onnx --chat --load-state talk.npz\n"
        "  tilewright generate smollm2/model.onnx --listen 127.0.0.1:8080\n"
    ),
)
@arguments.model_argument
@click.option("--prompt", help="Text to continue.")
@click.option("--prompt-ids", metavar="N,N,...", help="The prompt as numbers of tokens; then numbers are printed, too.")
@click.option(
    "--score",
    "score_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Make no text, but say how well MODEL predicts that of FILE: its perplexity.",
)
@click.option("--chat", is_flag=True, help="Answer turns from standard input, a line each, by the chat template.")
@click.option("--system", metavar="TEXT", help="Message before the first turn of --chat.")
@click.option("--listen", metavar="HOST:PORT", help="Answer chat completions over HTTP; port 0 takes a free one.")
@click.option(
    "--tokens", "count", type=click.IntRange(1), default=100, show_default=True, help="How many tokens to make at most."
)
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    metavar="DIR|FILE",
    help="tokenizer.json, or its folder; by default the vocabulary in the metadata, else that beside MODEL.",
)
@click.option(
    "--stop",
    "stops",
    multiple=True,
    metavar="TEXT|ID",
    help="Text or number of a token that ends the text, beside those of the folder; repeatable.",
)
@click.option(
    "--temperature",
    type=arguments.FloatRange(0, 100),
    metavar="T",
    help="Draw tokens by probability, logits divided by T; by default the most probable is taken.",
)
@click.option("--top-k", type=click.IntRange(0), metavar="K", help="Draw from the K most probable tokens.")
@click.option(
    "--top-p",
    type=arguments.FloatRange(0, 1, min_open=True),
    metavar="P",
    help="Draw from the fewest tokens whose probabilities reach P.",
)
@click.option("--seed", type=click.IntRange(0, _SEED), metavar="N", help="Of the draws, which it repeats; default 0.")
@click.option("--prefill", type=click.IntRange(1), help="Tokens of a run of the prompt; by default the cache's size.")
@click.option(
    "--load-state",
    "load_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Go on with a conversation that was saved; no prompt is needed.",
)
@click.option(
    "--save-state",
    "save_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Save tokens and cache at the end (.npz).",
)
@click.option(
    "--conversations",
    type=click.IntRange(1, 4096),
    default=8,
    show_default=True,
    metavar="N",
    help="With --listen: how many are kept; those used longest ago go.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --listen: clients have to know the text in this file; a must beyond this machine.",
)
@click.option("--backend", "--device", "backend", default="functional", show_default=True, help="Device to run on.")
@arguments.config_option
@arguments.effort_option
@arguments.clock_option
@click.option(
    "--check", "check", is_flag=True, help="Compare every token with onnxruntime's choice. Exit code 1 on a difference."
)
@arguments.trust_option
@arguments.json_option
@arguments.gather(Drawing, "drawing")
@arguments.gather(Place, "place")
def command(
    model: Path,
    prompt: str | None,
    prompt_ids: str | None,
    score_path: Path | None,
    chat: bool,
    system: str | None,
    listen: str | None,
    count: int,
    tokenizer: Path | None,
    stops: tuple[str, ...],
    load_path: Path | None,
    save_path: Path | None,
    conversations: int,
    token_file: Path | None,
    clock_mhz: float | None,
    check: bool,
    json_path: str | None,
    drawing: Drawing,
    place: Place,
) -> int:
    """Continue a prompt by MODEL, a language model (ONNX) or a program compiled from one.

    The token of the greatest logit is taken each time, unless an option of sampling is given. Keys and values of past
    tokens stay in the program's memory.
    """
    terminal.prepare_json(json_path)
    if save_path is not None:
        terminal.prepare_output(save_path)
    _check_kind(prompt, prompt_ids, chat, system, listen, load_path, check, score_path)
    check_readable(model)
    if check and Program.is_program(model):
        raise UsageError(f"--check compares with the model, and {model} is a compiled program")
    folder = ModelFolder.of(model, tokenizer)
    language = _load(model, place, json_path)
    words = None if prompt_ids is not None else _words(model, language, folder, tokenizer is not None)
    if score_path is not None:
        assert words is not None
        return _score(score_path, language, place, words, json_path)
    ends = Ends(count, drawing.sampler(), *_stops(stops, language, words, folder))
    if listen is not None:
        from tilewright.generate.listen import listen as serve  # HTTP, which nothing else needs

        assert words is not None
        seeded = drawing.seed is not None
        template = ChatTemplate.of(folder)
        device = functools.partial(_device, language, place)
        return serve(listen, token_file, language, device, words, template, ends, seeded, conversations)
    made = Generation(_prompt(prompt, prompt_ids, words, load_path))
    template = _template(folder, model) if chat else None
    with _device(language, place) as runner:
        conversation = Conversation(language, runner)
        messages = load_state(load_path, conversation) if load_path is not None else []
        show: Callable[[str], None] = (
            (lambda text: None) if json_path == "-" else lambda text: click.echo(text, nl=False)
        )
        turns: list[Turn] = []
        try:
            if template is None:
                language.check(made.prompt, count, before=len(conversation.tokens))
                show(prompt if prompt is not None else ",".join(map(str, made.prompt)))
                made.make(conversation, words, ends, show, GreedyReference(model) if check else None)
            else:
                assert words is not None
                messages = messages or ([{"role": "system", "content": system}] if system is not None else [])
                talk = Chat(conversation, words, template, messages)
                for turn in generation.chat(talk, _turns(), ends, show):
                    turns.append(turn)
                    messages = talk.messages
                    show("\n")
        finally:  # what is said of an interruption or a fault stands on a line of its own
            if template is None:
                show("\n")
            if save_path is not None:
                save_state(save_path, conversation, messages)
        found = speeds(conversation, clock_option(clock_mhz))
        result = generation.summary(conversation, turns if chat else made, found, ends.sampler)
    if terminal.emit_json(json_path, result):
        generation.show_speeds(found, None if chat else len(made.prompt))
        generation.show_check(made)
    return MISMATCH if made.differences else 0


def _check_kind(
    prompt: str | None,
    prompt_ids: str | None,
    chat: bool,
    system: str | None,
    listen: str | None,
    load_path: Path | None,
    check: bool,
    score_path: Path | None,
) -> None:
    """Raises `UsageError` for options that contradict each other."""
    context = click.get_current_context()
    given = {p.name: p.opts[-1] if p.name != "backend" else "--backend" for p in context.command.params
             if context.get_parameter_source(p.name or "") is click.core.ParameterSource.COMMANDLINE}  # fmt: skip
    if listen is not None and (wrong := [given[name] for name in _LISTENS if name in given]):
        raise UsageError(f"{' and '.join(wrong)} can not be given with --listen: clients say what they want")
    if listen is None and (wrong := [given[name] for name in ("conversations", "token_file") if name in given]):
        raise UsageError(f"{' and '.join(wrong)} can only be given with --listen")
    allowed = {"model", "score_path", "tokenizer", "prefill", "backend", "config", "effort", "trust", "json_path"}
    if score_path is not None:
        if wrong := [option for name, option in given.items() if name not in allowed]:
            raise UsageError(f"{' and '.join(wrong)} can not be given with --score, which makes no text")
        return
    if chat and (prompt is not None or prompt_ids is not None):
        raise UsageError("--chat reads turns from standard input: give them there, without --prompt and --prompt-ids")
    if system is not None and not chat:
        raise UsageError("--system is the first message of --chat")
    if check and (chat or load_path is not None):
        raise UsageError("--check compares a prompt and its tokens from the first one on, without --chat, --load-state")
    several = prompt is not None and prompt_ids is not None
    some = chat or any(given is not None for given in (listen, load_path, prompt, prompt_ids))
    if several or not some:
        raise UsageError("give the prompt either as text (--prompt) or as numbers of tokens (--prompt-ids)")


def _score(path: Path, language: LanguageModel, place: Place, words: Words, json_path: str | None) -> int:
    check_readable(path)
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text: {error.reason} at byte {error.start}") from None
    with _device(language, place) as runner, Working(f"reading {path.name}"):
        found = score(language, runner, words.encode(text, special=False))
    if terminal.emit_json(json_path, found.to_dict()):
        bits = found.nats / math.log(2)
        click.echo(f"perplexity {found.perplexity:.3f} ({bits:.3f} bits a token) of {found.tokens} tokens of {path}")
    return 0


def _load(model: Path, place: Place, json_path: str | None) -> LanguageModel:
    if Program.is_program(model):
        if place.prefill is not None:
            raise UsageError(f"{model} is compiled already: --prefill has no effect on it")
        return LanguageModel(tw.load(model, trust=place.trust))
    with Working(f"compiling {model.name}") as working, stdout_for_json(json_path):
        chosen = place.config or preset_of(place.backend) or "base"
        return LanguageModel.load(model, chosen, prefill=place.prefill, effort=place.effort, progress=working.fraction)


def _device(language: LanguageModel, place: Place) -> Runner:
    with Working(f"opening {place.backend}", log=True) as working:
        options = {"progress": working.estimate} if place.backend == "rtl" else {}
        runner = Device(place.backend, place.config, **options)
        runner.load(language.program)
    return runner


def _words(model: Path, language: LanguageModel, folder: ModelFolder, given: bool) -> Words:
    """Texts of tokens: those that were `given`, else of the metadata, else of the folder. Raises `UsageError`."""
    words = folder.tokenizer if given or language.vocabulary is None else language.vocabulary
    if words is None:
        raise UsageError(
            f"{model} has no vocabulary in its metadata, and no tokenizer.json beside it: give one with --tokenizer, "
            "or the prompt with --prompt-ids"
        )
    if len(words) > language.tokens:
        raise UsageError(
            f"{folder.tokenizer_file} has {len(words)} tokens, {language.program.name} logits of {language.tokens}: it "
            "is the tokenizer of another model"
        )
    return words


def _stops(
    given: tuple[str, ...], language: LanguageModel, words: Words | None, folder: ModelFolder
) -> tuple[list[int], list[str]]:
    """Numbers and texts that end a text. Raises `UsageError` for what is none."""
    numbers, texts = folder.stop_tokens(), []
    for text in given:
        number = int(text) if text.isdecimal() else words.number(text) if words is not None else None
        if number is not None:
            numbers.append(number)
        elif words is None or not text:
            raise UsageError(
                f"--stop {text!r}: with --prompt-ids it must be the number of a token, with text not empty"
            )
        else:
            texts.append(text)
    wrong = next((number for number in numbers if number >= language.tokens), None)
    if wrong is not None:
        raise UsageError(
            f"token {wrong} cannot stop {language.program.name}, which has tokens 0..{language.tokens - 1}"
        )
    return numbers, texts


def _prompt(prompt: str | None, prompt_ids: str | None, words: Words | None, load_path: Path | None) -> list[int]:
    if prompt is not None and words is not None:
        return words.encode(prompt, special=load_path is None)
    return _numbers(prompt_ids)


def _numbers(text: str | None) -> list[int]:
    """Parses --prompt-ids. Raises `UsageError` for what is no number."""
    try:
        return [int(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"--prompt-ids must be numbers separated by commas, not {text!r}") from None


def _template(folder: ModelFolder, model: Path) -> ChatTemplate:
    found = ChatTemplate.of(folder)
    if found is None:
        raise UsageError(
            f"{folder.path or model.absolute().parent} has no chat template: --chat needs a tokenizer_config.json with "
            "chat_template, or chat_template.jinja, beside the model or in the folder of --tokenizer"
        )
    return found


def _turns() -> Iterator[str]:
    """Lines of standard input, without empty ones. A terminal is asked for each."""
    terminal_input = sys.stdin.isatty()
    while True:
        if terminal_input:
            click.echo("> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")
