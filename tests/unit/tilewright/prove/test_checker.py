"""Programs of real networks are proved; no program with a fault that changes an output is."""

import functools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tests.common.paths import ROOT
from tests.network.test_norm_planes import network
from tests.reference.random_quantized import random_quantized_graph
from tilewright import zoo
from tilewright.api.options import ProgramOptions
from tilewright.api.source import ModelSource
from tilewright.cli import cli
from tilewright.isa.config import PRESETS
from tilewright.isa.encoding import Op, from_bytes, to_bytes
from tilewright.isa.instructions import Memory, RowFunction, Source
from tilewright.isa.program import ARENA_REGION, Program
from tilewright.prove import certificate
from tilewright.prove.checker.compare import ProgramSide, Verdict, prove
from tilewright.prove.checker.graph import NoRule, QuantisedGraph, Value
from tilewright.prove.checker.names import Names
from tilewright.prove.compiled import quantised_graph, quantised_graphs
from tilewright.prove.entries import joined, prove_all
from verification.program_faults.faults import KINDS, fault
from verification.program_faults.judge import Subject, judge, shown, subject
from verification.programs.random_configs import random_config
from verification.proved_graphs import on_preset, proof

DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"


@functools.cache
def both(model: Path, config: str) -> tuple[QuantisedGraph, Program]:
    return quantised_graph(ModelSource(model), PRESETS[config], ProgramOptions().compiler), tw.compile_program(
        model, config
    )


@pytest.mark.parametrize("config", ["nano", "tiny", "small", "wide", "base", "large"])
def test_digits_are_proved(config: str) -> None:
    verdict = prove(*both(DIGITS, config), seed=1)
    assert verdict.proved, verdict
    assert verdict.elements == 10
    assert verdict.conversions == 2
    assert [name.split()[0] for name in verdict.opaque] == ["QuantizeLinear", "DequantizeLinear"]


def test_values_of_several_bytes_in_the_arena_have_no_rule() -> None:
    """Each would be one byte, and what it lies on would still be there."""
    graph, program = both(DIGITS, "base")
    side = ProgramSide(Names(1), graph, program, Verdict(), "")
    buffer = next(b.name for b in program.buffers if b.space == "arena")
    value, cells = Value((2,), np.dtype(np.float32)), side.names.random((2,), "x")
    with pytest.raises(NoRule, match="float32 in the arena"):
        side.write(buffer, value, cells)
    with pytest.raises(NoRule, match="float32 in the arena"):
        side.read(buffer, value)


@pytest.mark.network
@pytest.mark.parametrize("name", ["ad_autoencoder", "kws_dscnn", "resnet8", "vww_mobilenet"])
def test_mlperf_tiny_is_proved(name: str, models_dir: Path) -> None:
    verdict = prove(*both(models_dir / "mlperf_tiny" / f"{name}_int8.tflite", "base"), seed=1)
    assert verdict.proved, verdict


def check_random_graphs(seeds: Sequence[int]) -> None:
    """Programs of random graphs are proved, but where there is no rule."""
    found = [on_preset(seed) for seed in seeds]
    assert {each.found for each in found} <= {"proved", "no rule"}, found
    assert sum(each.found == "no rule" for each in found) < len(seeds) / 5


def test_random_graphs_are_proved() -> None:
    check_random_graphs(range(30))


def test_random_machines_are_proved() -> None:
    found = [proof(100_000 + seed, random_config(seed)) for seed in (0, 1, 2, 57)]
    assert all(each.found == "proved" for each in found), found


def test_functions_of_bytes_with_few_values_are_proved() -> None:
    check_random_graphs([310, 7951, 9066])


def test_reductions_and_transposed_products_of_one_byte_are_proved() -> None:
    check_random_graphs([784, 793, 867, 956, 1042, 4087, 4223])


@pytest.mark.parametrize(("seed", "config"), [(6092, "wide"), (7681, "pynq")])
def test_least_bytes_of_tensors_are_proved_and_faults_in_them_are_not(seed: int, config: str) -> None:
    """Maxima of maxima, one of which reaches the end of a clamp, and of products that keep to few values."""
    model = random_quantized_graph(seed).model
    case = subject("reduced", model, config, 6)
    assert isinstance(case, Subject), case
    assert prove(case.graph, case.program, seed=1).proved
    ops, rejected = from_bytes(case.program.instructions), 0
    places = [i for i, op in enumerate(ops) if op.name == "VECTOR" and (op["add"] or op["source"] == Source.MAX)]
    for at in places[-6:]:  # of maxima at the end of a clamp some read what changes nothing
        wrong = Op(ops[at].instruction, ops[at].values | {"a": ops[at]["a"] ^ 1})
        changed = replace(case.program, instructions=to_bytes([*ops[:at], wrong, *ops[at + 1 :]]))
        proved = prove(case.graph, changed, seed=1).proved
        rejected += not proved
        assert not proved or not shown(case, changed), at
    assert rejected > 2


@pytest.mark.long
def test_more_random_graphs_are_proved() -> None:
    check_random_graphs(range(30, 330))


def norm_model() -> bytes:
    """int8 [5, 40], its LayerNormalization, and a product of that with ones."""
    node, random = helper.make_node, np.random.default_rng(0)
    constants = {
        "s": np.float32(0.03), "z": np.int8(-7), "zo": np.int8(0), "one": np.float32(1), "sn": np.float32(0.03),
        "scale": random.normal(1, 0.4, 40).astype(np.float32), "bias": random.normal(0, 0.3, 40).astype(np.float32),
        "zn": np.int8(5), "so": np.float32(0.5), "ones": np.ones((40, 1), np.int8),
    }  # fmt: skip
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["xf"]), node("LayerNormalization", ["xf", "scale", "bias"], ["y"]),
        node("QuantizeLinear", ["y", "sn", "zn"], ["yq"]), node("DequantizeLinear", ["yq", "sn", "zn"], ["yf"]),
        node("DequantizeLinear", ["ones", "one", "zo"], ["of"]), node("MatMul", ["yf", "of"], ["sums"]),
        node("QuantizeLinear", ["sums", "so", "zn"], ["out"]),
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(k, TensorProto.INT8, [5, n]) for k, n in (("x", 40), ("yq", 40), ("out", 1))]
    made = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "norm", ends[:1], ends[1:], made)
    opset = [helper.make_opsetid("", 23)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString())


#: Fields whose change by one is a fault, by the function of ROW.
FIELDS = {
    RowFunction.MAXIMUM: ("a", "prm", "tail"), RowFunction.EXP_SUM: ("a", "prm", "tail", "number", "exponent"),
    RowFunction.EXP: ("a", "dst", "prm"), RowFunction.MOMENTS: ("a", "prm", "tail", "number", "function"),
    RowFunction.NORM: ("a", "dst", "prm", "number"),
}  # fmt: skip


def planes_model() -> bytes:
    """A norm of each plane."""
    return bytes(network((2, 8, 6, 5), 8, np.random.default_rng(3)).SerializeToString())


@pytest.mark.parametrize(("what", "make", "config"), [
    ("Softmax", lambda: random_quantized_graph(1207).model, "double"), ("norm", norm_model, "base"),
    ("norm", planes_model, "base"),
], ids=["Softmax", "norm", "planes"])  # fmt: skip
def test_rows_are_proved_and_faults_in_them_are_not(what: str, make: Callable[[], bytes], config: str) -> None:
    model = make()
    graph = quantised_graph(ModelSource(model), PRESETS[config], ProgramOptions().compiler)
    program = tw.compile_program(model, config, tuning="off", cache=False)
    verdict = prove(graph, program, seed=1)
    assert verdict.proved, verdict
    assert list(verdict.assumed) == [what]
    ops, seen = from_bytes(program.instructions), set()
    for at, chosen in enumerate(ops):
        if chosen.name != "ROW" or chosen["function"] in seen:
            continue
        seen.add(chosen["function"])
        for name in FIELDS[RowFunction(chosen["function"])]:
            ops[at] = Op(chosen.instruction, chosen.values | {name: chosen[name] + 1})
            assert not prove(graph, replace(program, instructions=to_bytes(ops)), seed=1).proved, (at, name)
        ops[at] = chosen
    assert len(seen) > 1


def product_model(first_zero: int, exchanged: bool) -> bytes:
    """Two layers of int8 and the product of their results, [9, 64] by [64, 20]; the first one has a zero point."""
    node, random = helper.make_node, np.random.default_rng(0)
    rows, columns = (20, 64) if exchanged else (64, 20)
    constants = {
        "s": np.float32(0.03), "z": np.int8(-7), "one": np.float32(0.01), "zo": np.int8(0), "so": np.float32(0.3),
        "za": np.int8(first_zero), "wa": random.integers(-127, 128, (32, 64)).astype(np.int8),
        "zb": np.int8(0), "wb": random.integers(-127, 128, (32, columns)).astype(np.int8),
    }  # fmt: skip
    nodes = []
    for k in "ab":
        nodes += [
            node("DequantizeLinear", [f"x{k}", "s", "z"], [f"x{k}f"]),
            node("DequantizeLinear", [f"w{k}", "one", "zo"], [f"w{k}f"]), node("MatMul", [f"x{k}f", f"w{k}f"], [k]),
            node("QuantizeLinear", [k, "s", f"z{k}"], [f"{k}q"]),
            node("DequantizeLinear", [f"{k}q", "s", f"z{k}"], [f"{k}f"]),
        ]  # fmt: skip
    if exchanged:
        nodes.append(node("Transpose", ["bf"], ["bt"], perm=[1, 0]))
    nodes += [
        node("MatMul", ["af", "bt" if exchanged else "bf"], ["c"]), node("QuantizeLinear", ["c", "so", "z"], ["out"])
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(k, TensorProto.INT8, shape)
            for k, shape in (("xa", [9, 32]), ("xb", [rows, 32]), ("out", [9, 20]))]  # fmt: skip
    made = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "product", ends[:2], ends[2:], made)
    opset = [helper.make_opsetid("", 21)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString())


@pytest.mark.parametrize(("config", "first_zero", "exchanged"), [
    ("base", -12, True), ("small", 3, False), ("double", 64, True),
])  # fmt: skip
def test_biases_made_at_run_time_are_proved(config: str, first_zero: int, exchanged: bool) -> None:
    model = product_model(first_zero, exchanged)
    graph = quantised_graph(ModelSource(model), PRESETS[config], ProgramOptions().compiler)
    program = tw.compile_program(model, config, tuning="off", cache=False)
    verdict = prove(graph, program, seed=1)
    assert verdict.proved, verdict
    assert verdict.rules["quotient by an integer"] > 3
    ops = from_bytes(program.instructions)
    loads = [i for i, o in enumerate(ops) if o.name == "LOAD" and o["target"] == Memory.PRM]
    made = next(i for i in loads if ops[i]["region"] == ARENA_REGION)
    wrong = Op(ops[made].instruction, ops[made].values | {"offset": ops[made]["offset"] + 8})
    changed = replace(program, instructions=to_bytes([*ops[:made], wrong, *ops[made + 1 :]]))
    assert not prove(graph, changed, seed=1).proved
    case, rejected = subject("product", model, config, 4), 0
    assert isinstance(case, Subject), case
    for at in loads[: loads.index(made)]:  # other biases of the quotients
        data = bytearray(program.constants)
        if ops[at]["region"] != ARENA_REGION:
            data[ops[at]["offset"]] ^= 4
            changed = replace(program, constants=bytes(data))
            proved = prove(graph, changed, seed=1).proved
            rejected += not proved
            assert not proved or not shown(case, changed), at
    assert rejected > 2


def check_faults(config: str, count: int, seed: int) -> Counter[tuple[str, str]]:
    """Puts faults into the program of the digits; returns how many of each kind have which fate."""
    case, random, found = subject("digits", DIGITS, config, 3), Random(seed), Counter[tuple[str, str]]()
    assert isinstance(case, Subject), case
    while found.total() < count:
        kind = random.choice(KINDS)
        made = fault(random, case.program, kind)
        if made is not None:
            judged = judge(case, kind, *made, seed=found.total())
            found[kind, judged.found] += 1
            assert judged.found != "missed", judged
    return found


def test_faults_are_rejected() -> None:
    found = check_faults("base", 60, 1)
    assert sum(n for (_, fate), n in found.items() if fate in ("shown", "order")) > 30


@pytest.mark.long
@pytest.mark.parametrize("config", ["nano", "tiny", "wide"])
def test_more_faults_are_rejected(config: str) -> None:
    found = check_faults(config, 150, 2)
    assert {kind for kind, _ in found} == set(KINDS)


def test_sums_of_one_row_in_several_steps() -> None:
    """A level of reduction may be one of steps for the same row of ACC, if these are added to it."""
    graph, program = both(DIGITS, "wide")
    ops = from_bytes(program.instructions)
    at = next(i for i, op in enumerate(ops) if op.name == "GEMM" and op["reduce"] == 2 and op["accumulate"])
    for accumulate in (0, 1):
        changed = Op(ops[at].instruction, ops[at].values | {"reduce": 1, "accumulate": accumulate})
        image = to_bytes([*ops[:at], changed, *ops[at + 1 :]])
        assert prove(graph, replace(program, instructions=image), seed=1).proved == bool(accumulate)


def test_later_runs_of_weights_that_stay_are_proved() -> None:
    graph = quantised_graph(ModelSource(DIGITS), PRESETS["base"], ProgramOptions(keep_weights=True).compiler)
    program = tw.compile_program(DIGITS, "base", keep_weights=True)
    (later,) = program.later
    verdict = prove(graph, program, seed=1)
    assert verdict.proved, verdict
    assert verdict.instructions == program.steps[1].count + later.count  # type: ignore[union-attr]
    ops = from_bytes(program.instructions)
    at = next(i for i in range(later.first, later.first + later.count) if ops[i].name == "GEMM")
    ops[at] = Op(ops[at].instruction, ops[at].values | {"wgt": ops[at]["wgt"] ^ 1})
    assert not prove(graph, replace(program, instructions=to_bytes(ops)), seed=1).proved
    loads = [i for i, o in enumerate(ops[: later.first]) if o.name == "LOAD" and o["target"] == Memory.WGT]
    data = bytearray(program.constants)
    data[ops[loads[-1]]["offset"]] ^= 1
    assert not prove(graph, replace(program, constants=bytes(data)), seed=1).proved


@pytest.mark.medium
def test_rows_that_the_cpu_computes_in_parts_are_proved() -> None:
    model = zoo.build_quantized("bert", **zoo.ZOO["bert"].small).SerializeToString()
    graph = quantised_graph(ModelSource(model), PRESETS["tiny"], ProgramOptions().compiler)
    verdict = prove(graph, tw.compile_program(model, "tiny"), seed=1)
    assert verdict.proved, verdict
    assert not verdict.assumed
    assert verdict.rules["opaque QSoftmax"] > 1
    rows = {step.name: graph.values[step.outputs[0]].shape[2] for step in graph.steps if step.op == "QSoftmax"}
    computed = [graph.work_values[node.outputs[0]].shape[2] for nodes in graph.work.values() for node in nodes
                if node.op == "QSoftmax"]  # fmt: skip
    assert set(rows.values()) == {24}
    assert sorted(set(computed)) == [1, 24]  # rows that nothing reads are dropped behind the graph that is proved


@pytest.mark.medium
def test_attention_over_tokens_that_fill_no_block_is_proved() -> None:
    """Lanes without a token are 0, so that a sum over them has the range of the others."""
    model = zoo.build_quantized("bert", **zoo.ZOO["bert"].small | {"tokens": 20, "layers": 1}).SerializeToString()
    graph = quantised_graph(ModelSource(model), PRESETS["base"], ProgramOptions().compiler)
    verdict = prove(graph, tw.compile_program(model, "base"), seed=1)
    assert verdict.proved, verdict
    assert verdict.rules["quotient by an integer"] > 10


@pytest.mark.medium
def test_entry_points_with_states_are_proved(tmp_path: Path) -> None:
    model, sizes = tmp_path / "llama.onnx", zoo.ZOO["micro_llama"].small
    model.write_bytes(zoo.build_quantized("micro_llama", **sizes).SerializeToString())
    entries = {name: {"input_ids": [1, n]} for name, n in (("prefill", sizes["window"]), ("decode", 1))}
    program = tw.compile_program(model, "base", states="auto", entries=entries)
    source = ModelSource(model, states="auto")
    graphs = quantised_graphs(source, PRESETS["base"], ProgramOptions().compiler, entries)
    verdicts = prove_all(graphs, program, seed=1)
    assert all(verdict.proved for verdict in verdicts.values()), verdicts
    assert joined(verdicts).elements == sum(verdict.elements for verdict in verdicts.values())
    program.certificate = certificate.certificate(source, program, graphs, verdicts)
    again = Program.from_bytes(program.to_bytes())
    assert all(verdict.proved for verdict in certificate.recheck(model, again, seed=2).values())
    data = program.buffer(program.states[0].begin.buffer).data
    sections = program.sections | {data: bytes(b ^ 1 for b in program.sections[data])}
    wrong = joined(prove_all(graphs, replace(program, sections=sections), seed=1))
    assert wrong.reason.endswith(f"state {program.states[0].name!r} begins with other values")
    (decode,) = [entry for entry in program.entries if entry.name == "decode"]
    first = program.steps[decode.first_step + 1]
    ops = from_bytes(program.instructions)
    at = next(i for i in range(first.first, len(ops)) if ops[i].name == "GEMM")  # type: ignore[union-attr]
    ops[at] = Op(ops[at].instruction, ops[at].values | {"act": ops[at]["act"] + 1})
    verdicts = prove_all(graphs, replace(program, instructions=to_bytes(ops)), seed=1)
    assert verdicts["prefill"].proved
    assert not verdicts["decode"].proved
    assert joined(verdicts).reason.startswith("entry point decode: ")


def test_a_wrong_weight_is_shown_by_an_input(tmp_path: Path) -> None:
    graph, program = both(DIGITS, "base")
    data = bytearray(program.constants)
    for at in range(0, len(data), 97):
        wrong = bytearray(data)
        wrong[at] ^= 64
        verdict = prove_all({"": graph}, replace(program, constants=bytes(wrong)), seed=3)[""]
        if verdict.difference is not None and verdict.difference.layer == "conv_1":
            break
    else:
        raise AssertionError("no byte changes the second layer")
    replace(program, constants=bytes(wrong)).save(tmp_path / "wrong.twp")
    arguments = ["prove", str(DIGITS), "--program", str(tmp_path / "wrong.twp"), "--seed", "3"]
    result = CliRunner().invoke(cli, [*arguments, "--json", "-"], prog_name="tilewright")
    assert result.exit_code == 1, result.output
    shown = json.loads(result.stdout)
    assert not shown["proved"]
    assert shown["difference"]["tensor"] == "relu_1_QuantizeLinear_Output"
    assert "instead of" in shown["witness"]["text"]


def test_the_command_says_what_is_proved() -> None:
    result = CliRunner().invoke(cli, ["prove", str(DIGITS), "--config", "tiny", "--seed", "5"], prog_name="tilewright")
    assert result.exit_code == 0, result.output
    assert "digits_int8.onnx on tiny: proved for all inputs, 10 output elements; " in result.output
    assert "trusted: 2 nodes and 2 conversions on the CPU" in result.output


def test_an_operator_without_a_rule_is_said() -> None:
    graph, program = both(DIGITS, "base")
    other = [replace(s, op="QThing") if s.op == "QAdd" else s for s in graph.steps]
    verdict = prove(replace(graph, steps=tuple(other)), program, seed=1)
    assert verdict.reason == "not proved: no rule for QThing (add_0)"
    assert not verdict.proved
