"""Values kept in files beside the model: found wherever in the model they stand, and nowhere but beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx import import_onnx


def external(name: str, location: str, **entries: int) -> TensorProto:
    """A float32 tensor of two elements, kept in a file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": location} | entries).items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def write(path: Path, value: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.full(2, value, np.float32).tobytes())


def graph(nodes: list[onnx.NodeProto], initializers: list[TensorProto]) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
    return helper.make_model(
        helper.make_graph(nodes, "net", [x], [y], initializers), opset_imports=[helper.make_opsetid("", 18)]
    )


def in_initializer(tensor: TensorProto) -> onnx.ModelProto:
    tensor.name = "w"
    return graph([helper.make_node("Add", ["x", "w"], ["y"])], [tensor])


def in_constant(tensor: TensorProto) -> onnx.ModelProto:
    constant = helper.make_node("Constant", [], ["w"], value=tensor)
    return graph([constant, helper.make_node("Add", ["x", "w"], ["y"])], [])


def in_branch(tensor: TensorProto) -> onnx.ModelProto:
    """The weights stand in the branches of an If whose condition is an input."""
    tensor.name = "w"
    out = helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])
    body = helper.make_graph([helper.make_node("Add", ["x", "w"], ["b"])], "body", [], [out], [tensor])
    model = graph([helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)], [])
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "c"))
    return model


def in_loop(tensor: TensorProto) -> onnx.ModelProto:
    loop = helper.make_graph(
        [
            helper.make_node("Constant", [], ["w"], value=tensor),
            helper.make_node("Add", ["before", "w"], ["after"]),
            helper.make_node("Identity", ["go"], ["goes"]),
        ],
        "loop",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, [2]),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, [2]),
        ],
    )
    count = numpy_helper.from_array(np.array(1, np.int64), "n")
    return graph([helper.make_node("Loop", ["n", "", "x"], ["y"], body=loop)], [count])


PLACES = [in_initializer, in_constant, in_branch, in_loop]


@pytest.mark.parametrize("place", PLACES)
def test_beside_the_model_and_nowhere_else(
    place: Callable[[TensorProto], onnx.ModelProto], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the same name in the current folder is not read."""
    model = tmp_path / "model" / "net.onnx"
    write(tmp_path / "model" / "w.bin", 4)
    model.write_bytes(place(external("w", "w.bin")).SerializeToString())
    write(tmp_path / "elsewhere" / "w.bin", 400)
    monkeypatch.chdir(tmp_path / "elsewhere")
    program = tw.compile(model, cache=False)
    (y,) = tw.Device("functional").run(program, {"x": np.zeros(2, np.float32)}).values()
    assert y.tolist() == [4, 4]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("location", ["../secret", "link/secret", "/etc/hostname", "no such", "", "."])
def test_refused_elsewhere(place: Callable[[TensorProto], onnx.ModelProto], location: str, tmp_path: Path) -> None:
    write(tmp_path / "secret", 7)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "link").symlink_to(tmp_path)
    path = tmp_path / "model" / "net.onnx"
    path.write_bytes(place(external("w", location)).SerializeToString())
    with pytest.raises(CompileError, match=r"^net.onnx: external data of tensor 'w': [^\n]*$"):
        import_onnx(path)


def test_no_file_to_look_beside() -> None:
    for place in PLACES:
        model = place(external("w", "w.bin"))
        for source in (model, model.SerializeToString()):
            with pytest.raises(CompileError, match="has external data; give a file name"):
                import_onnx(source)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": 4}, "4 bytes of 'w.bin' where the tensor has 8"),
        ({"offset": 100}, "bytes 100 to 8 of 'w.bin', which has 8"),
        ({"length": 1 << 40}, "which has 8"),
        ({"offset": -4}, "offset must be a number of bytes, not '-4'"),
        ({"length": 7}, "7 bytes of 'w.bin' where the tensor has 8"),
    ],
)
def test_bad_ranges(tmp_path: Path, entries: dict[str, int], message: str) -> None:
    write(tmp_path / "w.bin", 1)
    (tmp_path / "net.onnx").write_bytes(in_constant(external("w", "w.bin", **entries)).SerializeToString())
    with pytest.raises(CompileError, match=message):
        import_onnx(tmp_path / "net.onnx")


def test_caches_of_model_hubs(tmp_path: Path) -> None:
    """Model and data are links into one folder of files named by their contents."""
    write(tmp_path / "blobs" / "0123", 5)
    (tmp_path / "blobs" / "4567").write_bytes(in_initializer(external("w", "w.bin")).SerializeToString())
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "w.bin").symlink_to(os.path.join("..", "blobs", "0123"))
    (tmp_path / "snapshot" / "net.onnx").symlink_to(os.path.join("..", "blobs", "4567"))
    assert import_onnx(tmp_path / "snapshot" / "net.onnx").outputs
