"""IF against LiteRT, both ways of the condition."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.common.tflite_models import Model, Op, T
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.importer.tflite import import_tflite
from tilewright.compiler.importer.tflite.part import survey
from tilewright.compiler.importer.tflite.schema import read
from tilewright.isa.program import Program


def branching(dtype: str, known: bool | None = None, shorter: bool = False) -> Model:
    """`x` through one of two branches, which take weights from outside: a product, or `x` itself."""
    r, whole = np.random.default_rng(0), dtype == "int8"
    like = {"scale": 0.05, "zero": 3} if whole else {}
    weights = r.integers(-127, 128, (6, 6)) if whole else r.normal(0, 1, (6, 6))
    scale = {"scale": 0.01} if whole else {}
    go = T("go", (), "bool", data=None if known is None else np.array(known))
    outer = [
        go, T("x", (2, 6), dtype, **like), T("w", (6, 6), dtype, **scale, data=weights), T("y", (2, 6), dtype, **like),
        T("z", (2, 6), dtype, **like),
    ]  # fmt: skip
    ops = [
        Op("IF", ["go", "x", "w"], ["y"], ("IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})),
        Op("ADD", ["y", "x"], ["z"], ("AddOptions", {}), 2 if whole else 1),
    ]
    inner = [
        T("x", (2, 6), dtype, **like), T("w", (6, 6), dtype, **scale), T("p", (2, 6), dtype, **like),
        T("axis", (1,), "int32", data=np.array([0])), T("m", (6,), dtype, **like),
    ]  # fmt: skip
    product = [Op("FULLY_CONNECTED", ["x", "w", ""], ["p"], ("FullyConnectedOptions", {}), 4 if whole else 1)]
    mean = [Op("MEAN", ["x", "axis"], ["m"], ("ReducerOptions", {}))]
    branches = [
        (inner, product, ["x", "w"], ["p"]),
        (inner, mean if shorter else [], ["x", "w"], ["m" if shorter else "x"]),
    ]
    return Model(outer, ops, ["x"] if known is not None else ["go", "x"], ["z"], called=branches)


@pytest.mark.medium
@pytest.mark.parametrize("go", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_branches(dtype: str, go: bool) -> None:
    data, r = branching(dtype).build(), np.random.default_rng(1)
    x = r.integers(-128, 128, (2, 6)).astype(np.int8) if dtype == "int8" else r.normal(0, 1, (2, 6)).astype(np.float32)
    inputs = {"go": np.array(go), "x": x}
    program = tw.compile(data, "tiny")
    with tw.Device("functional") as device:
        found = device.run(program, inputs)["z"]
    np.testing.assert_allclose(found, LiteRtReference(data).run(inputs)["z"], rtol=1e-5, atol=1e-5)
    assert tw.check(data, inputs, config="tiny", keep="all").ok


@pytest.mark.parametrize("go", [False, True])
def test_known_condition_takes_its_branch(go: bool) -> None:
    program = tw.compile(branching("int8", known=go).build(), "tiny")
    assert isinstance(program, Program) and program.macs == (72 if go else 0)


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"output 'y' is \[2, 6\] or \[6\], by the branch taken; one shape"):
        import_tflite(branching("float32", shorter=True).build())
    refused = survey(read(branching("float32").build())).refused  # parts for a delegate
    assert "which branch is taken is known when the model runs only" in refused[0]
    model = branching("float32")
    model.ops[0].options = ("IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 0})
    with pytest.raises(CompileError, match=r"IF \(op 0, version 1\) calls graph 0 of 3"):
        import_tflite(model.build())


def test_constant_without_elements() -> None:
    """The shape of a scalar has no bytes in the file."""
    tensors = [T("x", (1, 1), "float32"), T("shape", (0,), "int32"), T("y", (), "float32")]
    data = Model(tensors, [Op("RESHAPE", ["x", "shape"], ["y"])], ["x"], ["y"]).build()
    with tw.Device("functional") as device:
        found = device.run(tw.compile(data), {"x": np.array([[3]], np.float32)})["y"]
    assert found.shape == () and found == 3
