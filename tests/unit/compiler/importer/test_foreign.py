"""Files of other formats are named, with what writes ONNX or TFLite of them."""

from __future__ import annotations

import io
import json
import pickle
import zipfile

import pytest

from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx.loader import load


def _zip(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return file.getvalue()


def _safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(4)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x18\0\0\0ORTM" + bytes(40), "onnxruntime's own format; give the ONNX file"),
        (b"GGUF\3\0\0\0" + b"a" * 40, "a GGUF file has weights without a network"),
        (_safetensors(), "a safetensors file has weights without a network"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "a Keras model"),
        (_zip("metadata.json", "config.json", "model.weights.h5"), "a Keras model"),
        (_zip("archive/data.pkl", "archive/version"), "a PyTorch file; `tilewright.from_torch`"),
        (pickle.dumps({"w": 1}, protocol=2), "a PyTorch file"),
        (b'<?xml version="1.0"?><net name="x" version="11"></net>', "a network of OpenVINO"),
        (b"\xff\xff plain bytes", "not an ONNX model, or damaged"),
    ],
)
def test_the_format_is_named(data: bytes, said: str) -> None:
    with pytest.raises(CompileError) as error:
        load(data, "net")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
