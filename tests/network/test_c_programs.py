"""Programs exported as C give the bytes of onnxruntime on every host, NPU steps on the functional simulator.

Where no emulator for a host is installed its programs are built and linked only; without a cross compiler its tests
are skipped.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.common import c_programs, needs, onnx_models
from tests.common.paths import ROOT
from tilewright import zoo
from tilewright.zoo.catalogue import ZOO

DIGITS = ROOT / "examples" / "digits"
ON_HOSTS = pytest.mark.parametrize("host", c_programs.HOSTS)
SPECIAL = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -2.5, 0.3, -0.3, 1e-40, 8388609.0, -1e30, np.inf, -np.inf, np.nan]


def outputs_on(
    folder: Path, host: str, model: onnx.ModelProto, inputs: dict[str, np.ndarray], **options: bool
) -> dict[str, np.ndarray]:
    """The whole way: compile for the host, save, load, export, build, run."""
    tw.compile(model, host=host, **options).save(folder / "net.twp")
    program = tw.load(folder / "net.twp")
    device = any(step.kind == "npu" for step in program.steps)
    assert device != options.get("cpu_only", False)
    tw.export_c(program, folder / "c", "net")
    binary = c_programs.build(folder / "c", host, "net", device)
    if c_programs.launcher(host) is None:
        needs.skip(needs.EMULATORS, f"{host} is not run: no qemu-user")
    return c_programs.run(binary, host, program, inputs)


@ON_HOSTS
def test_digits(tmp_path: Path, host: str) -> None:
    model = onnx.load(DIGITS / "digits_int8.onnx")
    image = np.load(DIGITS / "digits_test.npz")["images"][:1].astype(np.float32) / np.float32(16)
    found = outputs_on(tmp_path, host, model, {"input": image})
    assert found["output"].tobytes() == onnx_models.run(model, {"input": image})["output"].tobytes()


@ON_HOSTS
@pytest.mark.parametrize("cpu_only", [False, True], ids=["npu", "cpu"])
def test_transformer(tmp_path: Path, host: str, cpu_only: bool) -> None:
    """Softmax, GELU, LayerNormalization and the conversions at the NPU's border on the CPU; or everything."""
    model = zoo.build_quantized("transformer", **ZOO["transformer"].small | {"size": 16, "layers": 1, "width": 24})
    image = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
    inputs = {model.graph.input[0].name: image}
    want = onnx_models.run(model, inputs)
    for name, value in outputs_on(tmp_path, host, model, inputs, cpu_only=cpu_only).items():
        assert value.tobytes() == want[name].tobytes()


@ON_HOSTS
def test_float_network(tmp_path: Path, host: str) -> None:
    """Sums of floats are rounded in another order on every host."""
    model = onnx.load(DIGITS / "digits_float.onnx")
    image = np.load(DIGITS / "digits_test.npz")["images"][:1].astype(np.float32) / np.float32(16)
    found = outputs_on(tmp_path, host, model, {"input": image}, cpu_only=True)
    np.testing.assert_allclose(
        found["output"], onnx_models.run(model, {"input": image})["output"], rtol=1e-5, atol=1e-5
    )


def functions(half: bool) -> onnx.ModelProto:
    """Functions of one tensor and operations that some hosts have no instruction for."""
    unary = ["Exp", "Log", "Tanh", "Erf", "Sigmoid", "Sqrt", "Round", "Floor", "Ceil", "Softplus", "Atan"]
    nodes = [helper.make_node(op, ["x"], [op]) for op in unary]
    nodes += [helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE)]
    nodes += [helper.make_node("Cast", ["y"], ["e"], to=TensorProto.DOUBLE)]
    nodes += [helper.make_node(op, ["d", "e"], [f"{op}64"]) for op in ("Max", "Min")]
    nodes += [helper.make_node("Round", ["d"], ["Round64"]), helper.make_node("Max", ["x", "y"], ["Max"])]
    kinds = dict.fromkeys([*unary, "Max"], TensorProto.FLOAT)
    if half:
        nodes += [helper.make_node("Cast", ["d"], ["h"], to=TensorProto.FLOAT16)]
        kinds["h"] = TensorProto.FLOAT16
    kinds |= dict.fromkeys(["Max64", "Min64", "Round64"], TensorProto.DOUBLE)
    shape = [len(SPECIAL), len(SPECIAL)]
    results = {name: (kind, shape) for name, kind in kinds.items()}
    return onnx_models.model_of(nodes, {"x": shape, "y": shape}, results, opset=20)


@ON_HOSTS
def test_functions(tmp_path: Path, host: str) -> None:
    """Element-wise arithmetic is the same on every host, special values included."""
    values = np.array(SPECIAL, np.float32)
    if host == "armv7-linux":  # NEON takes denormal numbers for zero
        values[np.abs(values) < 1e-38] = 1
    x, y = np.meshgrid(values, values)
    model = functions(half=host != "riscv64-linux")  # libgcc before 13 has no conversions for it there
    found = outputs_on(tmp_path, host, model, {"x": x, "y": y}, cpu_only=True)
    here = tw.Device("functional").run(tw.compile(model, cpu_only=True), {"x": x, "y": y})
    for name, value in found.items():
        np.testing.assert_array_equal(value, here[name], err_msg=name)  # NaN equal to NaN
        number = ~np.isnan(value)
        np.testing.assert_array_equal(np.signbit(value)[number], np.signbit(here[name])[number], err_msg=name)
    np.testing.assert_array_equal(found["Round64"], np.round(x.astype(np.float64)))
    np.testing.assert_array_equal(found["Max64"], np.maximum(x, y).astype(np.float64))
    if "h" in found:
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(found["h"], x.astype(np.float16))


BOTH = """
#include <stdio.h>
#include <stdlib.h>
#include "first.h"
#include "second.h"
static float run(const tw_program *p) {
    uint8_t *raw = calloc(1, tw_memory_bytes(p) + TW_ALIGNMENT);
    tw_instance t;
    if (tw_init(&t, p, NULL, raw + 1 + (TW_ALIGNMENT - 1 - (uintptr_t)raw % TW_ALIGNMENT))) exit(1);
    float *x = tw_data(&t, &p->inputs[0]);
    for (uint64_t i = 0; i < p->inputs[0].nbytes / sizeof *x; i++) x[i] = 1.0f;
    if (tw_run(&t)) exit(2);
    float y = *(float *)tw_data(&t, &p->outputs[0]);
    free(raw);
    return y;
}
int main(void) {
    tw_instance t;
    if (tw_init(&t, &first_program, NULL, NULL) != TW_BAD_MEMORY) return 3;
    printf("%g %g\\n", run(&first_program), run(&second_program));
}
"""


def test_two_programs_in_one(tmp_path: Path) -> None:
    """Names of one program do not meet those of another."""
    for name, op in (("first", "Exp"), ("second", "Neg")):
        model = onnx_models.model_of([helper.make_node(op, ["x"], ["y"])], {"x": [40]}, {"y": [40]}, opset=20)
        tw.export_c(tw.compile(model, host="x86_64-linux"), tmp_path, name)
    (tmp_path / "both.c").write_text(BOTH)
    sources = [tmp_path / f for f in ("both.c", *(f"{n}{e}" for n in ("first", "second") for e in (".c", "_data.S")))]
    command = [*c_programs.compiler("x86_64-linux").split(), "-o", "both", *map(str, sources)]
    subprocess.run([*command, *map(str, tmp_path.glob("*.o")), "-lm"], cwd=tmp_path, check=True)
    if c_programs.launcher("x86_64-linux") is None:
        needs.skip(needs.EMULATORS, "x86_64-linux is not run: no qemu-user")
    command = [*(c_programs.launcher("x86_64-linux") or []), str(tmp_path / "both")]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"2.71828 -1\n"
