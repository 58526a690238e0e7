"""ImageDecoder: pixels of Pillow, and refusals of what is no image or a far too large one."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from onnx import TensorProto, helper
from PIL import Image

import tilewright as tw
from tilewright.common.errors import TilewrightError

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(/etc/passwd) (r) file\n%%EOF\n"


def decode(data: bytes) -> np.ndarray:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("ImageDecoder", ["x"], ["y"])], "g",
        [value("x", TensorProto.UINT8, ["n"])], [value("y", TensorProto.UINT8, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    with tw.Device("functional") as device:
        return np.asarray(device.run(tw.compile(model, "tiny"), {"x": np.frombuffer(data, np.uint8)})["y"])


def test_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    for form in ("PNG", "BMP", "PPM", "TIFF"):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, form)
        np.testing.assert_array_equal(decode(buffer.getvalue()), pixels)


def test_what_is_refused() -> None:
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    large = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 0))
    larger = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 90000, 90000, 8, 2, 0, 0, 0))
    for data, says in (
        (b"", "no image"),
        (POSTSCRIPT, "cannot identify"),
        (large + chunk(b"IDAT", b"") + chunk(b"IEND", b""), "has 9000x9000 pixels; up to"),
        (larger + chunk(b"IDAT", b"") + chunk(b"IEND", b""), "no image that can be read"),
    ):
        with pytest.raises(TilewrightError, match=says):
            decode(data)
