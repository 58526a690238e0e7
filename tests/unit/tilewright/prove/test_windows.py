"""Rows that the runtime finds: of caches, of tables, of the embedding; also several, whose places rise by one."""

import functools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tilewright as tw
from tilewright import zoo
from tilewright.api.options import ProgramOptions
from tilewright.api.source import ModelSource
from tilewright.cli import cli
from tilewright.compiler.npu import rewrites
from tilewright.isa.config import PRESETS
from tilewright.isa.encoding import Op, from_bytes, to_bytes
from tilewright.isa.program import NpuStep, Program, Window
from tilewright.prove.checker.compare import prove
from tilewright.prove.checker.graph import QuantisedGraph
from tilewright.prove.compiled import quantised_graphs
from tilewright.prove.entries import prove_all

#: Caches that the NPU keeps in blocks of lanes.
WHOLE: dict[str, Any] = {
    "layers": 1, "width": 96, "heads": 3, "kv_heads": 1, "hidden": 64, "window": 32, "context": 64, "whole": True
}  # fmt: skip
COUNT = 8  # tokens of a prompt


@functools.cache
def model() -> bytes:
    return zoo.build_quantized("micro_llama", **WHOLE).SerializeToString()


@functools.cache
def both(*rising: str) -> tuple[dict[str, QuantisedGraph], Program]:
    """The graphs of the entry points and their program."""
    entries = {name: {"input_ids": [1, n]} for name, n in (("prefill", COUNT), ("decode", 1))}
    source = ModelSource(model(), states="auto", rising=rising)
    graphs = quantised_graphs(source, PRESETS["base"], ProgramOptions().compiler, entries)
    return graphs, tw.compile_program(model(), "base", states="auto", entries=entries, rising=rising, cache=False)


@pytest.mark.medium
def test_rows_without_tables_are_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU computes the mask and RoPE, and the NPU puts a row where a window is."""
    without = tuple(rewrite for rewrite in rewrites.REWRITES if rewrite.name != "rows_by_windows")
    monkeypatch.setattr(rewrites, "REWRITES", without)
    verdicts = prove_all(*both.__wrapped__(), seed=1)
    assert all(verdict.proved for verdict in verdicts.values()), verdicts
    assert verdicts["decode"].rules["row put into others"] == 4
    assert len(verdicts["decode"].opaque) > 5


def faults(program: Program, entry: str) -> Iterator[tuple[object, Program]]:
    """Programs with another window, another byte in a table, another transfer through a window, or other rows that are
    looked up, each with what is changed. None is right for all inputs."""
    ops, (step,) = from_bytes(program.instructions), program.entry(entry).steps
    assert isinstance(step, NpuStep)
    for number, window in enumerate(program.windows):
        own = range(step.first, step.first + step.count)
        moves = [i for i in own if ops[i].name in ("LOAD", "STORE") and ops[i]["region"] == window.region]
        if not moves:
            continue
        other = {"input_ids": "position_ids", "position_ids": "input_ids"}[window.tensor]
        changes: list[dict[str, Any]]
        changes = [{"period": 16}, {"stride": window.stride * 2}, {"tensor": other}, {"rows": 7}]
        for change in changes:
            changed = [*program.windows[:number], replace(window, **change), *program.windows[number + 1 :]]
            yield change, replace(program, windows=changed)
        values = ops[moves[-1]].values
        changes = [{name: values[name] + step} for name, step in (("region", -1), ("offset", 16), ("row", 1))]
        if window.space == "arena":
            changes.append({"wait0": 0, "wait1": 0})
        else:
            yield from _other_byte(program, window, values["offset"])
        for change in changes:
            wrong = Op(ops[moves[-1]].instruction, values | change)
            yield change, replace(program, instructions=to_bytes([*ops[: moves[-1]], wrong, *ops[moves[-1] + 1 :]]))
    for rows in program.lookups:
        if rows.entry == entry:
            for change in (
                {"offset": rows.offset + 64},
                {"rows": rows.rows - 1},
                {"block": 32},
                {"tensor": "position_ids"},
            ):
                yield change, replace(program, lookups=[replace(rows, **change)])
            yield from _other_byte(program, Window(0, "", 0, rows.stride, rows.rows), rows.offset)


def _other_byte(program: Program, window: Window, offset: int) -> Iterator[tuple[object, Program]]:
    constants = bytearray(program.constants)
    constants[offset + window.stride * (window.rows - 1) + 3] ^= 1
    yield "a byte of the last row", replace(program, constants=bytes(constants))


@pytest.mark.medium
@pytest.mark.parametrize("entry", ["prefill", "decode"])
def test_rows_that_the_runtime_finds_are_proved_and_faults_in_them_are_not(entry: str) -> None:
    graphs, program = both("position_ids")
    assert [window.space for window in program.windows] == ["arena", "constant", "constant", "constant"]
    assert [rows.entry for rows in program.lookups] == ["prefill"]
    verdict = prove(graphs[entry], program, seed=1, entry=entry)
    assert verdict.proved and not verdict.opaque, verdict
    assert verdict.rules["row put into others"] == 4
    for change, changed in faults(program, entry):
        assert not prove(graphs[entry], changed, seed=1, entry=entry).proved, change


def test_rows_rise_only_where_the_runtime_sees_to_it() -> None:
    """A program that does not ask for it may get any places, and is not right for all of them."""
    graphs, program = both("position_ids")
    verdict = prove(graphs["prefill"], replace(program, rising=[]), seed=1, entry="prefill")
    assert not verdict.proved


@pytest.mark.medium
def test_heads_side_by_side_in_blocks_are_proved() -> None:
    """Four heads of four channels share a block, and each pair of queries a head."""
    given = zoo.build_quantized("micro_llama", **WHOLE | {"width": 32, "heads": 8, "kv_heads": 4, "window": 16})
    entries = {name: {"input_ids": [1, n]} for name, n in (("prefill", 4), ("decode", 1))}
    source = ModelSource(given.SerializeToString(), states="auto", rising=("position_ids",))
    graphs = quantised_graphs(source, PRESETS["base"], ProgramOptions().compiler, entries)
    program = tw.compile_program(given, states="auto", entries=entries, rising=("position_ids",), cache=False)
    verdicts = prove_all(graphs, program, seed=1)
    assert all(verdict.proved and not verdict.opaque for verdict in verdicts.values()), verdicts


@pytest.mark.medium
def test_a_certificate_of_the_last_row(tmp_path: Path) -> None:
    """The certificate says of what outputs the program has the last row only; the prompt fills the cache."""
    given, program = tmp_path / "model.onnx", tmp_path / "model.twp"
    given.write_bytes(model())
    promised = [
        "--state",
        "auto",
        "--shape",
        f"input_ids=1,{WHOLE['window']}",
        "--rising",
        "position_ids",
        "--last",
        "logits",
    ]
    made = CliRunner().invoke(cli, ["compile", str(given), "-o", str(program), "--prove", *promised])
    assert made.exit_code == 0, made.output
    found = CliRunner().invoke(cli, ["prove", str(program), str(given), "--json", "-"])
    assert json.loads(found.stdout)["proved"], found.output
    refused = CliRunner().invoke(cli, ["prove", str(program), str(given), "--last", "logits"])
    assert "a certificate is checked: --last has no effect on it" in refused.output
