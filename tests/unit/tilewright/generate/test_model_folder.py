"""Files beside a model: tokenizer, tokens that stop, chat template. The tokenizers are made here."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tilewright as tw
from tests.common import needs
from tilewright.cli import cli
from tilewright.common.installation import MissingPackageError, install_extra
from tilewright.errors import InputError, UsageError
from tilewright.generate import Chat, ChatTemplate, Conversation, LanguageModel, ModelFolder, TextStream, Tokenizer
from tilewright.generate.model_folder import TOKENIZER

TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "<|{{ message.role[0] }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|a|>{% endif %}"
)


def tokenizer_json(specials: list[str]) -> str:
    """A tokenizer of bytes as tokens 0..63 of a few letters and parts of UTF-8, and of special tokens behind them."""
    try:
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    except ModuleNotFoundError:
        needs.skip(needs.TOKENIZERS, "tokenizers is not installed")
    known = list(pre_tokenizers.ByteLevel.alphabet())
    letters = sorted({c for text in ("abcdefghijklmnopqrstuvwxyz ,.!?", "é€😀") for c in _byte_level(text)})
    assert set(letters) <= set(known)
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    vocabulary["th"] = len(vocabulary)
    made = Tokenizer(models.BPE(vocabulary, [("t", "h")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True) for text in specials])
    return str(made.to_str())


def _byte_level(text: str) -> str:
    """Each byte as the character that byte-level tokenizers write for it."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in shown} | {
        b: chr(256 + n) for n, b in enumerate(b for b in range(256) if b not in shown)
    }
    return "".join(table[b] for b in text.encode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / TOKENIZER).write_text(tokenizer_json(["<|end|>", "<|u|>", "<|a|>", "<|s|>"]))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": "<|end|>"}))
    return tmp_path


def test_tokens_of_a_text_and_back(folder: Path) -> None:
    words = Tokenizer(folder / TOKENIZER)
    tokens = words.encode("the é, 😀!")
    assert (
        words.decode(tokens) == "the é, 😀!" and max(tokens) < len(words) and len(tokens) == 2 + 2 + 3 + 4 + 1 + 1 - 1
    )
    stream = TextStream(words, ["!"])
    assert [stream.push(token) for token in tokens][-5:] == ["", "", "", "😀", ""] and stream.stopped
    end = words.number("<|end|>")
    assert end is not None and words.number("a") is None
    assert words.encode("a<|end|>") == [*words.encode("a"), end] and words.decode([end]) == ""


def test_tokens_that_stop(folder: Path) -> None:
    found = ModelFolder.of(folder / "model.onnx")
    assert found.tokenizer is not None
    assert found.stop_tokens() == [found.tokenizer.number("<|end|>")]
    (folder / "config.json").write_text('{"eos_token_id": 5}')
    assert ModelFolder.of(None, folder).stop_tokens() == [5]
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    assert ModelFolder.of(None, folder / TOKENIZER).stop_tokens() == [7, 8]
    (folder / "generation_config.json").write_text('{"eos_token_id": "x"}')
    with pytest.raises(UsageError, match="eos_token_id must be the number of a token, not 'x'"):
        ModelFolder.of(None, folder).stop_tokens()
    (folder / "generation_config.json").write_text("[")
    with pytest.raises(UsageError, match=r"generation_config.json is damaged: it must hold a JSON object"):
        ModelFolder.of(None, folder).stop_tokens()


def test_files_of_others_beside_a_model(tmp_path: Path) -> None:
    """A config.json without a tokenizer is of something else."""
    (tmp_path / "config.json").write_text("hello")
    assert ModelFolder.of(tmp_path / "model.onnx").stop_tokens() == []
    assert ModelFolder.of(tmp_path / "model.onnx").template() is None


def test_a_folder_called_onnx(folder: Path) -> None:
    (folder / "onnx").mkdir()
    assert ModelFolder.of(folder / "onnx" / "model.onnx").path == folder
    (folder / "other").mkdir()
    assert ModelFolder.of(folder / "other" / "model.onnx").path is None


def test_a_damaged_tokenizer(folder: Path) -> None:
    for text in ("", "{}", '{"model": {"type": "Unknown"}}'):
        (folder / TOKENIZER).write_text(text)
        with pytest.raises(UsageError, match="no tokenizer, or of a kind unknown to this version") as error:
            Tokenizer(folder / TOKENIZER)
        assert "\n" not in str(error.value)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    (tmp_path / TOKENIZER).write_text("{}")
    for call in (lambda: Tokenizer(tmp_path / TOKENIZER), lambda: ChatTemplate("")):
        with pytest.raises(MissingPackageError) as error:
            call()
        assert str(error.value).endswith(install_extra("language"))


MESSAGES = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi <b>"}]


@pytest.mark.parametrize(
    "config, wanted",
    [
        ({"chat_template": TEMPLATE}, "<|s|>be<|end|><|u|>hi <b><|end|><|a|>"),
        (
            {"chat_template": [{"name": "tool", "template": "x"}, {"name": "default", "template": TEMPLATE}]},
            "<|s|>be<|end|><|u|>hi <b><|end|><|a|>",
        ),
        (
            {
                "bos_token": {"content": "<s>"},
                "chat_template": "{{ bos_token }}{{ messages[1] | tojson }}{{ eos_token }}",
            },
            '<s>{"role": "user", "content": "hi <b>"}',
        ),
        ({"chat_template": "{% for m in messages %}\n  {{ m.role }}\n{% break %}\n{% endfor %}"}, "  system\n"),
    ],
)
def test_templates(tmp_path: Path, config: dict[str, Any], wanted: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    template = ChatTemplate.of(ModelFolder.of(tmp_path / "model.onnx"))
    assert template is not None and template.text(MESSAGES) == wanted
    (tmp_path / "chat_template.jinja").write_text("newer")
    template = ChatTemplate.of(ModelFolder.of(tmp_path / "model.onnx"))
    assert template is not None and template.text(MESSAGES) == "newer"


@pytest.mark.parametrize(
    "source, message",
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses these messages: roles must alternate"),
        ("{{ messages[7].content.strip() }}", "refuses these messages: "),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "refuses these messages: access to attribute"),
        ("{% for i in range(100000000) %}x{% endfor %}", "refuses these messages: Range too big"),
        ("{% for i in range(90000) %}{{ 'x' * 100 }}{% endfor %}", "makes more than 4,194,304 characters"),
        ("{{ 1 / 0 }}", "refuses these messages: division by zero"),
    ],
)
def test_templates_that_refuse(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ChatTemplate(source).text(MESSAGES)
    with pytest.raises(UsageError, match="the chat template is damaged: "):
        ChatTemplate(source + "{% if %}")


@pytest.mark.medium
def test_turns_compute_only_what_is_new(language: LanguageModel, folder: Path) -> None:
    words = Tokenizer(folder / TOKENIZER)
    template = ChatTemplate.of(ModelFolder.of(None, folder))
    assert template is not None
    with tw.Device("functional", language.program.config) as device:
        conversation = Conversation(language, device)
        chat = Chat(conversation, words, template)
        first = "".join(piece.text for piece in chat.answer("hi", 5))
        before, tokens = sum(conversation.runs.values()), list(conversation.tokens)
        list(chat.answer("the", 3))
        assert conversation.tokens[: len(tokens)] == tokens
        assert sum(conversation.runs.values()) - before <= 2 + len(words.encode("<|end|><|u|>the<|end|><|a|>")) + 1
        assert [m["role"] for m in chat.messages] == ["user", "assistant"] * 2 and chat.messages[1]["content"] == first
        other = Conversation(language, device)
        other.tokens = conversation.tokens[:-3]
        assert [step.token for step in other.generate([], 3)] == conversation.tokens[-3:]


def run(*args: object, stdin: str | None = None, code: int = 0) -> Any:
    result = CliRunner().invoke(cli, ["generate", *map(str, args)], input=stdin, prog_name="tilewright")
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.mark.medium
def test_command(program_file: Path, folder: Path) -> None:
    """A program beside a tokenizer has the vocabulary of its metadata; --tokenizer gives the other."""
    program = shutil.copy(program_file, folder / "model.twp")
    own = json.loads(run(program, "--trust", "--prompt", "the", "--tokens", 4, "--json", "-").stdout)
    found = json.loads(
        run(program, "--trust", "--prompt", "the", "--tokens", 4, "--tokenizer", folder, "--json", "-").stdout
    )
    words = Tokenizer(folder / TOKENIZER)
    assert len(own["prompt"]) == 3 and found["prompt"] == words.encode("the") and len(found["prompt"]) == 2
    assert found["text"] == words.decode(found["tokens"]) and found["finish_reason"] == "length"
    stop = str(found["tokens"][0])
    again = json.loads(
        run(
            program, "--trust", "--prompt", "the", "--stop", stop, "--tokens", 4, "--tokenizer", folder, "--json", "-"
        ).stdout
    )
    assert again["tokens"] == found["tokens"][:1] and again["text"] == "" and again["finish_reason"] == "stop"


@pytest.mark.medium
def test_chat_command(program_file: Path, folder: Path) -> None:
    program = shutil.copy(program_file, folder / "model.twp")
    given = (program, "--trust", "--chat", "--tokens", 4, "--tokenizer", folder, "--temperature", 5, "--json", "-")
    whole = json.loads(run(*given, "--system", "be", stdin="hi\n\nthe\n").stdout)
    assert [turn["user"] for turn in whole["turns"]] == ["hi", "the"] and whole["sampling"]["temperature"] == 5
    state = folder / "talk.npz"
    first = json.loads(run(*given, "--system", "be", "--save-state", state, stdin="hi\n").stdout)
    second = json.loads(run(*given, "--load-state", state, stdin="the\n").stdout)
    assert [*first["turns"], *second["turns"]] == whole["turns"] and second["position"] == whole["position"]
    text = run(*given[:-2], stdin="hi\nthe\n").stdout
    assert text.splitlines()[0] == json.loads(run(*given, stdin="hi\nthe\n").stdout)["turns"][0]["assistant"]
    assert "bytes a token over the bus" in text
    for entry in whole["entries"].values():  # reads and writes at once may be more than one direction carries
        assert 0 < entry["bus_fraction"] <= 1


def test_a_tokenizer_of_another_model(program_file: Path, folder: Path) -> None:
    (folder / TOKENIZER).write_text(tokenizer_json([f"<{n}>" for n in range(96)]))
    result = run(program_file, "--trust", "--prompt", "a", "--tokenizer", folder, code=2)
    assert "small_llama logits of 96: it is the tokenizer of another model" in result.stderr


def test_no_tokenizer_at_all(language: LanguageModel, tmp_path: Path) -> None:
    program = type(language.program).from_bytes(language.program.to_bytes())
    del program.metadata["vocabulary"]
    program.save(tmp_path / "plain.twp")
    result = run(tmp_path / "plain.twp", "--trust", "--prompt", "a", code=2)
    assert (
        "has no vocabulary in its metadata, and no tokenizer.json beside it: give one with --tokenizer" in result.stderr
    )
