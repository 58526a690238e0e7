"""Numbers of attributes that make no sense: the model compiles, or is refused with one line, whatever the op."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import AttributeProto
from onnx.backend.test.loader import load_model_tests

import tilewright as tw
from tests.common import onnx_models
from tilewright.compiler.errors import CompileError

#: Beyond the axes of any tensor, to either side, none, too many, and 0 in the lower half.
NUMBERS = (5, -9, 0, 1000, -1, -(1 << 63))
#: Of the cases, those that every run of the tests has.
EVERY = 80


def damaged() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Single nodes of onnx's own tests, in which an attribute has another number; each op once, by its inputs."""
    seen: set[tuple[str, str, int]] = set()
    for case in load_model_tests(kind="node"):
        model = case.model or onnx.load(Path(case.model_dir) / "model.onnx")
        if len(model.graph.node) != 1:
            continue
        node = model.graph.node[0]
        for place, attribute in enumerate(node.attribute):
            key = node.op_type, attribute.name, len(model.graph.input)
            if key in seen or attribute.type not in (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT):
                continue
            seen.add(key)
            for number in NUMBERS:
                changed = copy.deepcopy(model)
                into = changed.graph.node[0].attribute[place]
                if attribute.type == AttributeProto.INTS:
                    into.ints[:1] = [number] * bool(into.ints)
                elif attribute.type == AttributeProto.INT:
                    into.i = number
                else:
                    into.f = number
                yield f"{node.op_type} {attribute.name}={number}", changed
            for numbers in (list(attribute.ints)[:-1], [*attribute.ints, *attribute.ints[-1:]]):
                if numbers and attribute.type == AttributeProto.INTS:
                    changed = copy.deepcopy(model)
                    changed.graph.node[0].attribute[place].ints[:] = numbers
                    yield f"{node.op_type} {attribute.name}={numbers}", changed


def outcome(model: onnx.ModelProto) -> str:
    """Compiles in a process of its own, which libraries may bring down; returns what went wrong, "" for nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            tw.compile(model, config="tiny", cache=False)
        except CompileError as error:
            os.write(writer, b"several lines" if "\n" in str(error) else b"")
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}"[:500].encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return text or (f"ended with status {status}" if status else "")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of what onnx computes for its tests
@pytest.mark.parametrize(
    "every", [pytest.param(EVERY, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"]
)
def test_attributes(every: int) -> None:
    cases = list(damaged())[::every]
    assert len(cases) * every > 1000
    spec = (onnx.TensorProto.FLOAT, [4])
    healthy = onnx_models.model_of([onnx.helper.make_node("Relu", ["x"], ["y"])], {"x": spec}, {"y": spec})
    tw.compile(healthy, config="tiny", cache=False)  # so that no child has to load the compiler
    found = {name: outcome(model) for name, model in cases}
    assert not {name: text for name, text in found.items() if text}
