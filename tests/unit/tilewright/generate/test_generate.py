"""Language models token by token: against onnxruntime's greedy choice, on all devices; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import helper

import tilewright as tw
from tests.common.onnx_models import model_of
from tilewright import zoo
from tilewright.cli import cli
from tilewright.errors import UsageError
from tilewright.generate import DECODE, PREFILL, GreedyReference, LanguageModel, Vocabulary
from tilewright.isa.config import PRESETS
from tilewright.isa.program import Program
from tilewright.measure.ends import ends_of
from verification.programs.equality import VARIANTS


def run(*args: object, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, ["generate", *map(str, args)], prog_name="tilewright")
    assert result.exit_code == code, (result.output, result.exception)
    if code > 1:
        lines = result.stderr.strip().splitlines()
        assert len(lines) == 1 and lines[0].startswith("tilewright: error: "), result.stderr
    return result


def compared(language: LanguageModel, model: Path | onnx.ModelProto, device: str, prompt: str, count: int) -> list[int]:
    """The tokens made, each of which must be onnxruntime's choice, of logits equal to the bit."""
    assert language.vocabulary is not None
    before = language.vocabulary.encode(prompt)
    reference = GreedyReference(model)
    made = []
    with tw.Device(device, language.program.config) as runner:
        for step in language.generate(runner, before, count):
            wanted = reference.logits(before)
            np.testing.assert_array_equal(step.logits, wanted)
            assert step.token == wanted.argmax()
            assert (step.cycles is not None) == (device != "functional")
            prefilled = 1 < len(prompt) <= language.cache
            assert step.entry == (PREFILL if prefilled and not made else DECODE)
            before = [step.token]
            made.append(step.token)
    return made


@pytest.mark.medium
@pytest.mark.parametrize(
    "prompt", ["Q", "To be", "sixteen of these", "seventeen of them", "more tokens than the cache"]
)
def test_tokens_are_those_of_onnxruntime(language: LanguageModel, model_file: Path, prompt: str) -> None:
    """A prompt of one token, one shorter than the cache, one that fills it, longer ones; all go on behind the
    end of the cache."""
    made = compared(language, model_file, "functional", prompt, 30)
    assert len(made) == 30 and made == compared(language, model_file, "cycle", prompt, 30)


@pytest.mark.medium
def test_what_the_cpu_does_in_each_entry_point(language: LanguageModel) -> None:
    found = {ends.entry: ends for ends in ends_of(language.program)}
    assert list(found) == [PREFILL, DECODE]
    for name, ends in found.items():
        assert ends.turns > 1 and "Softmax" not in {op.op for op in ends.front + ends.behind}
        assert [line.partition(": ")[0] for line in ends.sentences()] == [name] * 3


@pytest.mark.slow
def test_short_prefill(model_file: Path) -> None:
    language = LanguageModel.load(model_file, "base", prefill=6)
    compared(language, model_file, "functional", "To be", 4)
    compared(language, model_file, "functional", "sixteen of these", 3)  # in runs that begin with tokens 0, 6 and 10


@pytest.mark.slow
def test_a_mask_of_tokens(model_file: Path) -> None:
    """A model with an attention_mask gets one over the whole cache, with ones for the tokens so far."""
    model = onnx.load(model_file)
    graph = model.graph
    tokens = helper.make_tensor_value_info("attention_mask", onnx.TensorProto.INT64, ["batch", "total"])
    graph.input.append(tokens)
    maker = next(node for node in graph.node if "logits" in node.output)
    maker.output[list(maker.output).index("logits")] = "plain"
    graph.node.extend([
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=onnx.TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["mask"], ["seen"], keepdims=0),
        helper.make_node("Add", ["plain", "seen"], ["logits"]),
    ])  # fmt: skip
    language = LanguageModel.load(model, "base", prefill=5)
    assert language.vocabulary is not None
    before = prompt = language.vocabulary.encode("seven or more tokens")
    plain, reference = GreedyReference(model_file), GreedyReference(model)
    with tw.Device("functional", language.program.config) as device:
        for number, step in enumerate(language.generate(device, prompt, 4)):
            logits = reference.logits(before)
            seen = logits - plain.logits(before)
            np.testing.assert_allclose(seen, min(len(prompt) + number, language.cache), atol=1e-3)
            np.testing.assert_array_equal(step.logits, logits)
            before = [step.token]


@pytest.mark.cosim
@pytest.mark.slow
def test_tokens_on_rtl(model_file: Path) -> None:
    language = LanguageModel.load(model_file, VARIANTS["wide_bus"])
    made = compared(language, model_file, "rtl", "To be", 6)
    assert made == compared(language, model_file, "cycle", "To be", 6)


@pytest.mark.long
def test_a_thousand_tokens(tmp_path: Path) -> None:
    """The zoo's micro llama makes onnxruntime's choice of each token, from several prompts; functional and cycle-level
    simulator agree in every bit. Norms are rounded from floats: a tie may flip, so that later logits are not equal."""
    path = tmp_path / "micro_llama.onnx"
    onnx.save(zoo.build_quantized("micro_llama"), path)
    language = LanguageModel.load(path)
    assert language.vocabulary is not None
    for prompt in ("Once upon a time", "A", "0123456789" * 6, "?"):
        before = language.vocabulary.encode(prompt)
        reference = GreedyReference(path)
        with tw.Device("functional") as first, tw.Device("cycle") as second:
            runs = zip(language.generate(first, before, 250), language.generate(second, before, 250), strict=True)
            for step, again in runs:
                np.testing.assert_array_equal(step.logits, again.logits)
                assert step.token == reference.logits(before).argmax()
                before = [step.token]


@pytest.mark.cosim
@pytest.mark.long
def test_twenty_tokens_on_rtl(tmp_path: Path) -> None:
    """The RTL's logits and cycles of the zoo's micro llama are those of the cycle-level simulator, the tokens
    onnxruntime's choice."""
    path = tmp_path / "micro_llama.onnx"
    onnx.save(zoo.build_quantized("micro_llama"), path)
    language = LanguageModel.load(path)
    assert language.vocabulary is not None
    before = language.vocabulary.encode("Once upon a time")
    reference = GreedyReference(path)
    with tw.Device("rtl") as first, tw.Device("cycle") as second:
        runs = zip(language.generate(first, before, 20), language.generate(second, before, 20), strict=True)
        for step, again in runs:
            np.testing.assert_array_equal(step.logits, again.logits)
            assert step.cycles == again.cycles
            assert step.token == reference.logits(before).argmax()
            before = [step.token]


@pytest.mark.long
def test_bounds_of_micro_llama() -> None:
    """Cycles depend on no value: what a token and a prompt of 64 take on the reference machine."""
    language = LanguageModel.load(zoo.build_quantized("micro_llama"))
    with tw.Device("cycle") as device:
        steps = list(language.generate(device, [1, 2, 3], 2))
    assert language.prefill == 64
    assert steps[0].cycles is not None and steps[0].cycles <= 600_000
    assert steps[1].cycles is not None and steps[1].cycles <= 100_000


@pytest.mark.slow
def test_decode_is_as_fast_as_memory() -> None:
    """A model that does not fit on the chip: weights come through the whole width of the bus, hardly a beat is lost."""
    model = zoo.build_quantized("micro_llama", layers=1, width=256, heads=4, kv_heads=4, hidden=768)
    config = PRESETS["base"]
    program = tw.compile_program(model, config, states="auto", shapes={"input_ids": [1, 1]})
    with tw.Device("cycle", config) as device:
        device.run(program, {"input_ids": np.array([[3]]), "position_ids": np.array([[0]])})
    weights = (4 * 256 + 3 * 768) * 256
    assert weights > 8 * config.wgt_tiles * config.block_in * config.block_out
    assert device.counters.bytes_read >= max(weights, 0.97 * device.counters.cycles * config.axi_data_bits // 8)


@pytest.mark.slow
def test_command(model_file: Path, language: LanguageModel, tmp_path: Path) -> None:
    text = run(model_file, "--config", "base", "--prompt", "To be", "--tokens", 12, "--check", "--clock", 50).stdout
    assert text.startswith("To be") and "12 of 12 tokens are those of onnxruntime" in text
    assert "tokens/s" in text and "cycles at 50 MHz" in text
    found = json.loads(run(model_file, "--config", "base", "--prompt", "To be", "--tokens", 12, "--json", "-").stdout)
    assert text.startswith("To be" + found["text"]) and len(found["tokens"]) == 12
    cycles = found["entries"]["decode"]["npu_cycles"]
    language.program.save(tmp_path / "p.twp")
    again = run(tmp_path / "p.twp", "--backend", "cycle", "--prompt", "To be", "--tokens", 12, "--json", "-").stdout
    assert json.loads(again)["tokens"] == found["tokens"]
    assert json.loads(again)["entries"]["decode"]["npu_cycles"] == cycles > 0
    ids = ",".join(map(str, found["prompt"]))
    numbers = run(tmp_path / "p.twp", "--prompt-ids", ids, "--tokens", 12).stdout
    assert numbers.startswith(f"{ids},{','.join(map(str, found['tokens']))}\n")


@pytest.mark.medium
@pytest.mark.parametrize(
    "args, message",
    [
        (["--prompt", "né"], "the prompt has 'é' as character 2, which no token of the vocabulary begins with"),
        (["--prompt", ""], "the prompt is empty"),
        (["--prompt-ids", "3,96"], "the prompt has token 96; the vocabulary has tokens 0..95"),
        (["--prompt-ids", "3,x"], "--prompt-ids must be numbers separated by commas, not '3,x'"),
        (["--prompt-ids", "3", "--stop", "x"], "--stop 'x': with --prompt-ids it must be the number of a token"),
        (["--prompt", "To", "--stop", "96"], "token 96 cannot stop small_llama, which has tokens 0..95"),
        (["--prompt", "To", "--top-p", "0"], "Invalid value for '--top-p': 0.0 is not in the range 0<x<=1"),
        (["--prompt", "To", "--tokenizer", "none"], "no tokenizer at none: give a tokenizer.json, or the folder"),
        (["--prompt", "To", "--load-state", "none"], "cannot read none: no such file"),
        (["--prompt", "To", "--chat"], "--chat reads turns from standard input"),
        (["--prompt", "To", "--system", "x"], "--system is the first message of --chat"),
        (["--chat"], "has no chat template: --chat needs a tokenizer_config.json with chat_template"),
        (["--listen", "8080"], "--listen must be HOST:PORT, not '8080'"),
        (["--listen", "0.0.0.0:0"], "0.0.0.0 can be reached from other machines: give --token-file"),
        (["--listen", "127.0.0.1:0", "--json", "-"], "--json can not be given with --listen"),
        (["--prompt", "To", "--conversations", "2"], "--conversations can only be given with --listen"),
        (["--prompt", "To", "--tokens", "64"], "need 65 positions; small_llama knows 64: make at most 63"),
        (["--prompt", "To", "--prefill", "9"], "small_llama.twp is compiled already: --prefill has no effect on it"),
        (["--prompt", "To", "--check"], "small_llama.twp is a compiled program"),
        ([], "give the prompt either as text (--prompt) or as numbers of tokens (--prompt-ids)"),
    ],
)
def test_mistakes_are_one_line(program_file: Path, args: list[str], message: str) -> None:
    assert message in run(program_file, "--config", "base", *args, code=2).stderr


def test_prefill_that_does_not_fit_the_cache(model_file: Path) -> None:
    message = "takes 1..16 tokens, the size of the cache of small_llama.onnx, not 17"
    assert message in run(model_file, "--prompt", "To", "--prefill", "17", code=2).stderr


def saved(path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any]) -> Path:
    onnx.save(model_of(nodes, inputs, outputs), path)
    return path


def test_models_of_other_kinds(tmp_path: Path) -> None:
    plain = saved(tmp_path / "a.onnx", [helper.make_node("Relu", ["x"], ["y"])], {"x": [1, 4]}, {"y": [1, 4]})
    assert "a.onnx has no cache: no input called past..." in run(plain, "--prompt", "x", code=2).stderr
    nodes = [helper.make_node("Concat", ["past_key", "x"], ["present_key"], axis=2)]
    grown = saved(
        tmp_path / "b.onnx", nodes, {"past_key": [1, 2, "past", 4], "x": [1, 2, 1, 4]}, {"present_key": [1, 2, None, 4]}
    )
    assert (
        "leaves the size of its cache open; export it with a static cache" in run(grown, "--prompt", "x", code=2).stderr
    )
    program = tw.compile_program(plain, "base")
    program.save(tmp_path / "a.twp")
    assert (
        "is no language model: it needs the entry point 'decode'"
        in run(tmp_path / "a.twp", "--prompt", "x", code=2).stderr
    )
    assert "cannot read" in run(tmp_path / "none.onnx", "--prompt", "x", code=2).stderr
    (tmp_path / "text.onnx").write_text("hello, this is no model")
    assert "text.onnx: not an ONNX model, or damaged" in run(tmp_path / "text.onnx", "--prompt", "x", code=2).stderr


def test_vocabulary_of_several_characters() -> None:
    words = Vocabulary(["a", "ab", "b", "abba"])
    assert words.encode("abbaab") == [3, 1] and [words.text(n) for n in (0, 3)] == ["a", "abba"]
    with pytest.raises(UsageError, match="differ, none of them empty"):
        Vocabulary(["a", "a"])
    with pytest.raises(UsageError, match="'vocabulary' in the metadata must be a JSON list of strings"):
        Vocabulary.of({"vocabulary": '{"a": 1}'}, "m")
    assert Vocabulary.of({}, "m") is None


def test_vocabulary_must_have_the_size_of_the_logits(language: LanguageModel) -> None:
    program = Program.from_bytes(language.program.to_bytes())
    assert program.metadata == language.program.metadata
    program.metadata["vocabulary"] = '["a", "b"]'
    with pytest.raises(UsageError, match="the vocabulary has 2 tokens, the model logits of 96"):
        LanguageModel(program)


def copy_of(language: LanguageModel) -> Program:
    return Program.from_bytes(language.program.to_bytes())


def test_context_by_the_size_of_the_cache(language: LanguageModel) -> None:
    """The cache's size is the context where the metadata do not say how many positions there are."""
    program = copy_of(language)
    del program.metadata["context"]
    for state in program.states:  # [1, heads, 16, depth]
        state.begin.shape = (1, 2, 16, 64)
    assert LanguageModel(program).context == 16
    for text in ("abc", "", "0", "-3", "9" * 5000):
        program.metadata["context"] = text
        with pytest.raises(UsageError, match="'context' in the metadata must be the number of positions it knows"):
            LanguageModel(program)


def test_logits_of_some_tokens_only(language: LanguageModel) -> None:
    """Logits of each token, or of the last, are what prompts can do with."""
    program = copy_of(language)
    prefill = next(entry for entry in program.entries if entry.name == PREFILL)
    prefill.outputs[0].shape = (1, 2, 96)
    with pytest.raises(UsageError, match="small_llama gives logits of 2 of the 16 tokens of a run"):
        LanguageModel(program)
    prefill.outputs[0].shape = (1, 1, 96)
    assert not LanguageModel(program).every_logits
    prefill.outputs[0].shape = ()
    with pytest.raises(UsageError, match="no language model of one sequence with logits"):
        LanguageModel(program)
    prefill.name = "score"  # entry points that generating does not use may be of any kind
    assert LanguageModel(program).prefill == 1


def test_run_of_an_entry_point(program_file: Path) -> None:
    """Name and cycles of a run are those of the entry point alone."""

    def run(*options: str) -> Result:
        return CliRunner().invoke(cli, ["run", str(program_file), *options], prog_name="tilewright")

    results = {}
    for name in (PREFILL, DECODE):
        results[name] = json.loads(run("--entry", name, "--backend", "cycle", "--json", "-").stdout)
    assert [found["model"] for found in results.values()] == ["small_llama.prefill", "small_llama.decode"]
    assert [found["outputs"]["logits"]["shape"] for found in results.values()] == [[1, 16, 96], [1, 1, 96]]
    assert results[PREFILL]["macs"] > 8 * results[DECODE]["macs"]
    assert results[PREFILL]["cycles"] > results[DECODE]["cycles"] > 0
    for options, message in (
        (["--entry", "encode"], "has no entry point 'encode' (did you mean decode?): it has prefill, decode"),
        (["--entry", DECODE, "--check"], "--check compares whole models, not an entry point"),
    ):
        result = run(*options)
        assert result.exit_code == 2 and result.stderr.count("\n") == 1 and message in result.stderr


@pytest.mark.medium
def test_run_and_explain_of_entry_points(program_file: Path) -> None:
    result = CliRunner().invoke(cli, ["run", str(program_file)], prog_name="tilewright")
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert "small_llama.twp has the entry points prefill, decode" in result.stderr
    result = CliRunner().invoke(cli, ["explain", str(program_file)], prog_name="tilewright")
    assert "of all entry points, one after the other: prefill, decode" in result.output
