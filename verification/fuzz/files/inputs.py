"""Arrays and images that are inputs of a program: .npy, .npz and .png."""

from __future__ import annotations

import functools
import io
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import helper
from PIL import Image

from tilewright.api.compilation import compile_program
from tilewright.cli.input_files import InputFiles
from tilewright.isa.program import Program
from tilewright.runtime.inputs import check_inputs
from verification.fuzz.files import mutations as m
from verification.fuzz.files.files import placed
from verification.fuzz.files.models import onnx_bytes
from verification.fuzz.files.programs import small_program


@functools.cache
def _image_program() -> Program:
    model = onnx_bytes([helper.make_node("Relu", ["x"], ["y"])], [1, 3, 8, 8])
    return compile_program(model, "tiny", cache=False, tuning="off")


def read_input(suffix: str) -> Callable[[bytes, random.Random, Path], None]:
    def read(data: bytes, rng: random.Random, folder: Path) -> None:
        program = _image_program() if suffix == ".png" else small_program()
        path = placed(folder, f"input{suffix}", data)
        fit = rng.choice(("crop", "stretch", "pad"))
        check_inputs(program, InputFiles(inputs=(path,), image_fit=fit).of_program(program))

    return read


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


_ARRAYS = (
    np.zeros((1, 4, 8, 8), np.float32),
    np.asfortranarray(np.ones((4, 8), ">i8")),
    np.array(["a", "bc"]),
    np.zeros(3, [("x", "<f4"), ("y", "u1", 2)]),
    np.float64(3.5),
    np.array(["2026-11-22"], "datetime64[D]"),
    np.zeros((0, 4), bool),
)


def mutated_npy(rng: random.Random) -> bytes:
    data = _npy(np.asarray(rng.choice(_ARRAYS)))
    if rng.random() < 0.5:
        return m.mutate_bytes(rng, data)
    shape = tuple(rng.choice((1, 4, 8, *m.INTEGERS)) for _ in range(rng.choice((0, 1, 2, 4, 4, 40))))
    kind = rng.choice(
        ("<f4", "|i1", "<f8", "|O", "<U5", "|V0", "<M8[s]", ">i2", "<c16", "[('a', '<f4')]", "x", "|S99999")
    )
    text = rng.choice((repr(shape), "()", "[1]", "(True,)", "(1.5,)", "(-1,)", "None", "(" * 200 + ")" * 200))
    quoted = kind if kind.startswith("[") else repr(kind)
    header = f"{{'descr': {quoted}, 'fortran_order': {rng.choice(('False', 'True', '3'))}, 'shape': {text}, }}"
    if rng.random() < 0.2:
        header = m.mutate_bytes(rng, header.encode()).decode("latin1")
    version = rng.choice(((1, 0), (1, 0), (2, 0), (3, 0), (9, 9)))
    size = struct.pack("<H" if version == (1, 0) else "<I", min(len(header.encode()), 65535))
    return b"\x93NUMPY" + bytes(version) + size + header.encode() + bytes(rng.choice((0, 3, 1024)))


def mutated_npz(rng: random.Random) -> bytes:
    buffer = io.BytesIO()
    how = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(buffer, "w", how) as archive:
        for _ in range(rng.choice((0, 1, 1, 2))):
            inner = _npy(np.asarray(rng.choice(_ARRAYS))) if rng.random() < 0.6 else mutated_npy(rng)
            archive.writestr(rng.choice(("x.npy", "input.npy", "a", "../x.npy", "x/")), inner)
    data = buffer.getvalue()
    return data if rng.random() < 0.3 else m.mutate_bytes(rng, data)


def _png_with_sums(rng: random.Random, data: bytes) -> bytes:
    """Returns a change in a chunk, or of its order, with the sum made right."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    for _ in range(rng.choice((1, 1, 2))):
        k = rng.randrange(len(chunks))
        name, content = chunks[k]
        if rng.random() < 0.2:
            chunks.insert(rng.randrange(len(chunks)), (rng.choice((name, b"tRNS", b"iCCP", b"eXIf", b"zTXt")), content))
        else:
            chunks[k] = name, m.mutate_bytes(rng, content)
    made = b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )
    return data[:8] + made


@functools.cache
def _images() -> tuple[tuple[str, bytes], ...]:
    random_pixels = np.random.default_rng(0).integers(0, 256, (9, 11, 3), np.uint8)
    found = []
    for mode in ("RGB", "L", "P", "RGBA", "1", "I;16", "CMYK"):
        if mode == "I;16":
            image = Image.fromarray(random_pixels[..., 0].astype(np.uint16) * 200)
        else:
            image = Image.fromarray(random_pixels).convert(mode)
        for form in ("PNG", "BMP", "JPEG", "GIF", "TIFF"):
            buffer = io.BytesIO()
            try:
                image.save(buffer, form)
            except (OSError, KeyError, ValueError):
                continue
            found.append((form, buffer.getvalue()))
    return tuple(found)


def mutated_image(rng: random.Random) -> bytes:
    form, data = rng.choice(_images())
    return _png_with_sums(rng, data) if form == "PNG" and rng.random() < 0.6 else m.mutate_bytes(rng, data)
