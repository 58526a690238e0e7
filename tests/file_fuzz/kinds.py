"""The kinds of files: valid ones to begin with, mutations that keep the outside of the format whole, and their readers.

A mutation that only changes bytes mostly ends at a checksum or a magic number. So half of the files are changed inside
of their structure, and put together again with the right sums.
"""

from __future__ import annotations

import functools
import io
import json
import os
import random
import shutil
import sqlite3
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from isa.config import NpuConfig
from isa.program import MAGIC, Program
from tests.common.program_files import sealed
from tests.common.tflite_models import Model, Op, T, unary
from tests.file_fuzz import mutations as m
from tests.file_fuzz import requests
from tilewright.api.compilation import compile_program
from tilewright.cli.input_files import InputFiles
from tilewright.dynamic.model import DynamicModel
from tilewright.runtime.devices import Device
from tilewright.runtime.inputs import check_inputs, random_inputs
from tilewright.sweep.database import FILE, Database
from tilewright.sweep.report.data import load
from tilewright.sweep.report.page import render
from tilewright.sweep.space import load_space

#: Limits of what a mutated model may make the harness itself run or compile.
_RUN_BYTES = 1 << 22


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        mutated: a file drawn from the generator.
        read: gives the file to what reads it; raises what that raises.
    """

    mutated: Callable[[random.Random], bytes]
    read: Callable[[bytes, random.Random, Path], None]


def _placed(folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


# Arrays and images: inputs of a program.


@functools.cache
def _program() -> Program:
    return compile_program(_conv_model(), "tiny", cache=False, tuning="off")


@functools.cache
def _image_program() -> Program:
    model = _onnx([helper.make_node("Relu", ["x"], ["y"])], [1, 3, 8, 8])
    return compile_program(model, "tiny", cache=False, tuning="off")


def _input(suffix: str) -> Callable[[bytes, random.Random, Path], None]:
    def read(data: bytes, rng: random.Random, folder: Path) -> None:
        program = _image_program() if suffix == ".png" else _program()
        path = _placed(folder, f"input{suffix}", data)
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


def _mutated_npy(rng: random.Random) -> bytes:
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


def _mutated_npz(rng: random.Random) -> bytes:
    buffer = io.BytesIO()
    how = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(buffer, "w", how) as archive:
        for _ in range(rng.choice((0, 1, 1, 2))):
            inner = _npy(np.asarray(rng.choice(_ARRAYS))) if rng.random() < 0.6 else _mutated_npy(rng)
            archive.writestr(rng.choice(("x.npy", "input.npy", "a", "../x.npy", "x/")), inner)
    data = buffer.getvalue()
    return data if rng.random() < 0.3 else m.mutate_bytes(rng, data)


def _png_with_sums(rng: random.Random, data: bytes) -> bytes:
    """A change in a chunk, or of its order, with the sum made right."""
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


def _mutated_image(rng: random.Random) -> bytes:
    form, data = rng.choice(_images())
    return _png_with_sums(rng, data) if form == "PNG" and rng.random() < 0.6 else m.mutate_bytes(rng, data)


# Configurations and spaces.


_SPACE = """
base = "base"
models = ["resnet8", "vww"]
family = "ecp5"
constraints = ["scratchpad_bytes <= 300_000", "lut <= 40_000", "cycles <= 2_000_000"]
[axes]
block_in = [8, 16, 32]
act_rows = { min = 1024, max = 16384, log2 = true }
acc_rows = { min = 512, max = 2048, step = 512 }
block_out = "block_in"
[memory]
read_latency = [32, 64, 128]
[search]
method = "grid"
budget = 200
[objective]
minimise = ["cycles", "lut * 2 ** 3"]
weights = { resnet8 = 2.0 }
"""


def _mutated_json(rng: random.Random) -> bytes:
    data = NpuConfig().to_json().encode()
    if rng.random() < 0.4:
        return m.mutate_bytes(rng, data)
    tree = NpuConfig().to_dict()
    for _ in range(rng.choice((1, 1, 2))):
        tree = m.mutate_tree(rng, tree)
    text = json.dumps(tree) if rng.random() < 0.95 else "[" * 100_000
    return text.encode()


def _mutated_toml(rng: random.Random) -> bytes:
    lines = rng.choice((NpuConfig().to_toml(), _SPACE)).splitlines()
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        key, equals, _ = lines[at].partition(" = ")
        value = rng.choice(
            (*map(str, m.INTEGERS), "nan", "inf", "[[1]]", "{a = 1}", '"x"', '"9**9**9"', '"1/0"', '"a."', "1" * 5000,
             "0x" + "f" * 6000, "[" * 5000, "2026-11-22", '"\\u00e9"', ".".join("a" * 300), '"__import__"', '"min(1)"',
             '"(" ', '"2 ** 0.5 ** 1e9"', '"-" ', '"1e308 * 10"', '"log2(0)"', "true", '"' + "-" * 2000 + '1"')
        )  # fmt: skip
        lines[at] = f"{key} = {value}" if equals else rng.choice((f"[{value}]", lines[at - 1], ""))
    data = "\n".join(lines).encode()
    return m.mutate_bytes(rng, data) if rng.random() < 0.4 else data


def _read_config(suffix: str) -> Callable[[bytes, random.Random, Path], None]:
    def read(data: bytes, rng: random.Random, folder: Path) -> None:
        config = NpuConfig.load(_placed(folder, f"config{suffix}", data))
        config.to_toml()

    return read


def _read_space(data: bytes, rng: random.Random, folder: Path) -> None:
    space = load_space(_placed(folder, "space.toml", data))
    for number in range(min(space.size, 5)):
        point = space.point(space.assignment(number))
        for expression in space.constraints:
            expression.violation(dict.fromkeys(expression.names, 3.0) | point.values())


# Models.


def _tensor(name: str, values: Any, dtype: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def _onnx(nodes: list[onnx.NodeProto], shape: list[int], *constants: onnx.TensorProto) -> bytes:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, shape)], [value("y", TensorProto.FLOAT, None)], list(constants)
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


@functools.cache
def _conv_model() -> bytes:
    node, weights = helper.make_node, np.arange(4 * 4 * 9).reshape(4, 4, 3, 3) % 7 - 3
    return _onnx(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
            node("QLinearConv", ["xq", "s", "z", "w", "s", "z", "s", "z"], ["cq"], pads=[1, 1, 1, 1]),
            node("DequantizeLinear", ["cq", "s", "z"], ["c"]),
            node("Add", ["c", "c"], ["d"]),
            node("QuantizeLinear", ["d", "s", "z"], ["dq"]),
            node("DequantizeLinear", ["dq", "s", "z"], ["y"]),
        ],
        [1, 4, 8, 8], _tensor("s", 0.1, np.float32), _tensor("z", 0, np.int8), _tensor("w", weights, np.int8),
    )  # fmt: skip


@functools.cache
def _onnx_models() -> tuple[bytes, ...]:
    node, f, i = helper.make_node, np.float32, np.int64
    one = lambda op, *inputs, **a: node(op, ["x", *inputs], ["y"], **a)
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Add", ["v", "v"], ["w"])], "b",
        [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("v", TensorProto.FLOAT, [4])],
        [value("c", TensorProto.BOOL, []), value("w", TensorProto.FLOAT, [4])],
    )  # fmt: skip
    shape = [1, 4, 8, 8]
    return (
        _conv_model(),
        _onnx([one("AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])], shape),
        _onnx([one("MaxPool", kernel_shape=[2, 2], dilations=[1, 2])], shape),
        _onnx([one("Conv", "w", strides=[2, 2], group=4)], shape, _tensor("w", np.ones((4, 1, 3, 3)), f)),
        _onnx([one("ConvTranspose", "w", output_padding=[1, 1], strides=[2, 2])], shape,
              _tensor("w", np.ones((4, 2, 3, 3)), f)),
        _onnx([one("Reshape", "s")], shape, _tensor("s", [0, -1, 4], i)),
        _onnx([one("Resize", "", "", "s", mode="linear")], shape, _tensor("s", [1, 4, 5, 13], i)),
        _onnx([one("Pad", "p", mode="reflect")], shape, _tensor("p", [0, 0, 1, 2, 0, 0, 1, 0], i)),
        _onnx([one("Slice", "a", "b", "c", "d")], shape, _tensor("a", [1, 7], i), _tensor("b", [3, 0], i),
              _tensor("c", [1, 2], i), _tensor("d", [1, -2], i)),
        _onnx([one("Tile", "r")], shape, _tensor("r", [1, 2, 1, 3], i)),
        _onnx([one("Transpose", perm=[0, 2, 3, 1])], shape),
        _onnx([one("Softmax", axis=1)], shape),
        _onnx([one("ReduceMean", axes=[2, 3], keepdims=0)], shape),
        _onnx([one("Gather", "k", axis=2)], shape, _tensor("k", [[0, -1]], i)),
        _onnx([node("Split", ["x", "k"], ["a", "b"], axis=1), node("Concat", ["b", "a"], ["y"], axis=2)], shape,
              _tensor("k", [2, 2], i)),
        _onnx([one("DepthToSpace", blocksize=2)], shape),
        _onnx([one("LRN", size=3)], shape),
        _onnx([one("Einsum", "x", equation="abcd,abed->ace")], shape),
        _onnx([node("Loop", ["n", "", "x"], ["y"], body=body)], [4], _tensor("n", 3, i)),
        _onnx([node("LSTM", ["x", "w", "r"], ["", "y"], hidden_size=2)], [3, 1, 4], _tensor("w", np.ones((1, 8, 4)), f),
              _tensor("r", np.ones((1, 8, 2)), f)),
        _onnx([node("TopK", ["x", "k"], ["y", "i"], axis=2)], shape, _tensor("k", [3], i)),
    )  # fmt: skip


def _mutated_onnx(rng: random.Random) -> bytes:
    data = rng.choice(_onnx_models())
    if rng.random() < 0.25:
        return m.mutate_bytes(rng, data)
    model = onnx.load_model_from_string(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        _change_message(rng, model)
    return bytes(model.SerializeToString())


def _change_message(rng: random.Random, message: Any) -> None:
    """One field somewhere below a message of protobuf."""
    fields = [(d, v) for d, v in message.ListFields()]
    if not fields:
        return
    descriptor, value = rng.choice(fields)
    several = not isinstance(value, str | bytes | int | float) and hasattr(value, "__len__")
    if descriptor.message_type is not None:
        if several and rng.random() < 0.1:
            del value[rng.randrange(len(value))]
        elif several and rng.random() < 0.1:
            value.add().CopyFrom(rng.choice(value))
        else:
            _change_message(rng, rng.choice(value) if several else value)
        return
    old = rng.choice(list(value)) if several else value
    new = _leaf(rng, old)
    try:
        if several and rng.random() < 0.15:
            value.append(new)
        elif several:
            value[rng.randrange(len(value))] = new
        else:
            setattr(message, descriptor.name, new)
    except (ValueError, TypeError, OverflowError):
        pass  # a 32-bit field, or text that is none: left as it was


def _leaf(rng: random.Random, value: Any) -> Any:
    if isinstance(value, bytes):
        return m.mutate_bytes(rng, value)
    if isinstance(value, str):
        return rng.choice((*m.TEXTS, "x", "y", "s", "Add", "MatMul", "Sigmoid", "Shape", "ConstantOfShape", "NonZero"))
    return m.another(rng, value) if rng.random() < 0.9 else value


@functools.cache
def _tflite_models() -> tuple[bytes, ...]:
    x, y = T("x", [1, 8, 8, 4], "int8", 0.1, 3), T("y", [1, 8, 8, 4], "int8", 0.2, -5)
    w = T("w", [4, 3, 3, 4], "int8", [0.1] * 4, [0] * 4, 0, np.ones((4, 3, 3, 4), np.int8))
    b = T("b", [4], "int32", [0.01] * 4, [0] * 4, 0, np.ones(4, np.int32))
    conv = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}
    pool = {"StrideH": 1, "StrideW": 1, "FilterHeight": 2, "FilterWidth": 2, "Padding": 0}
    ints = lambda name, values: T(name, [len(values)], "int32", data=np.asarray(values, np.int32))
    of = lambda op, *more, options=None: Model(
        [x, y, *more], [Op(op, ["x", *(t.name for t in more)], ["y"], options)], ["x"], ["y"]
    ).build()
    small, ones8 = T("y", [1, 4], "int8", 0.2, -5), np.ones((1, 8, 8, 4), np.int8)
    return (
        Model([x, w, b, y], [Op("CONV_2D", ["x", "w", "b"], ["y"], ("Conv2DOptions", conv))], ["x"], ["y"]).build(),
        *(of(op, options=("Pool2DOptions", pool)) for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D")),
        unary("SOFTMAX", T("x", [1, 8], "int8", 0.1, 3), T("y", [1, 8], "int8", 1 / 256, -128),
              ("SoftmaxOptions", {"Beta": 1.0})),
        unary("SOFTMAX", T("x", [1, 8], "float32"), T("y", [1, 8], "float32"), ("SoftmaxOptions", {"Beta": 1.0})),
        *(unary(op, x, y) for op in ("LOGISTIC", "TANH", "RELU", "HARD_SWISH", "ABS", "QUANTIZE", "SQRT")),
        of("ADD", T("v", [1, 8, 8, 4], "int8", 0.3, 1, data=ones8), options=("AddOptions", {})),
        of("MUL", T("v", [4], "int8", 0.3, 1, data=np.ones(4, np.int8)), options=("MulOptions", {})),
        of("RESHAPE", ints("k", [1, 8, 8, 4])),
        of("TRANSPOSE", ints("k", [0, 1, 2, 3])),
        of("PAD", T("k", [4, 2], "int32", data=np.zeros((4, 2), np.int32))),
        of("RESIZE_BILINEAR", ints("k", [8, 8]), options=("ResizeBilinearOptions", {})),
        Model([x, ints("k", [1, 2]), small], [Op("MEAN", ["x", "k"], ["y"], ("ReducerOptions", {}))],
              ["x"], ["y"]).build(),
        Model([T("x", [1, 4], "int8", 0.1, 3), T("w", [4, 4], "int8", 0.1, 0, data=np.ones((4, 4), np.int8)), b, small],
              [Op("FULLY_CONNECTED", ["x", "w", "b"], ["y"], ("FullyConnectedOptions", {}))], ["x"], ["y"]).build(),
    )  # fmt: skip


def _mutated_tflite(rng: random.Random) -> bytes:
    return m.mutate_bytes(rng, rng.choice(_tflite_models()), 12)


def _read_model(data: bytes, rng: random.Random, folder: Path) -> None:
    program = compile_program(
        data, rng.choice(("tiny", "small")), cache=False, tuning="off", cpu_only=rng.random() < 0.3
    )
    if rng.random() < 0.1 and program.arena_bytes + program.host_bytes < _RUN_BYTES:
        Device("functional", config=program.config).run(program, random_inputs(program))


def _read_onnx(data: bytes, rng: random.Random, folder: Path) -> None:
    if rng.random() < 0.2:
        DynamicModel(data, "tiny")
    _read_model(data, rng, folder)


# Programs: the manifest, with sums that are right.


@functools.cache
def _parts() -> tuple[Any, bytes]:
    data = _program().to_bytes()
    start = len(MAGIC) + 12
    (length,) = struct.unpack_from("<I", data, len(MAGIC) + 4)
    return json.loads(data[start : start + length]), data[start + length : -32]


def _mutated_program(rng: random.Random) -> bytes:
    manifest, body = _parts()
    if rng.random() < 0.1:
        return m.mutate_bytes(rng, sealed(manifest, body))
    for _ in range(rng.choice((1, 1, 2))):
        manifest = m.mutate_tree(rng, manifest)
    return sealed(manifest, m.mutate_bytes(rng, body) if rng.random() < 0.15 else body)


def _read_program(data: bytes, rng: random.Random, folder: Path) -> None:
    program = Program.load(_placed(folder, "program.twp", data))
    if program.arena_bytes + program.host_bytes < _RUN_BYTES:
        Device("functional", config=program.config).run(program, random_inputs(program), timeout=100_000)


# Databases of sweeps.


@functools.cache
def _database(folder: Path) -> Path:
    """A folder with a sweep of three points, as `tilewright sweep` leaves it."""
    made = folder / "swept"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    (made / "space.toml").write_text(
        '[axes]\nblock_in = [4, 8, 16]\n[objective]\nminimise = ["cycles", "lut"]\n', encoding="utf-8"
    )
    space = load_space(made / "space.toml", ["net"])
    with Database(made) as database:
        sweep = database.begin_sweep(space.text, {"net": "0" * 16}, 1, "model")
        for number in range(3):
            assignment = space.assignment(number)
            point = space.point(assignment)
            database.keep_point(point)
            metrics = {"cycles": 1000.0 / (number + 1), "lut": 100.0 * number + 50, "utilization": 0.5,
                       "dram_bytes": 4096, "scratchpad_bytes": 1000 + number}  # fmt: skip
            metrics |= {"objective0": metrics["cycles"], "objective1": metrics["lut"]}
            database.keep_sweep_point(sweep, number, assignment, "done", point=point.id, metrics=metrics)
            row = {"point": point.id, "network": "0" * 16, "sources": "s", "effort": 1, "state": "done",
                   "cycles": 1000 // (number + 1), "utilization": 0.5, "dram_read_bytes": 2048,
                   "dram_written_bytes": 2048, "npu_mac_fraction": 1.0}  # fmt: skip
            database.keep("cycles", f"key{number}", row)
        database.end_sweep(sweep)
    with sqlite3.connect(made / FILE) as connection:
        connection.execute("pragma journal_mode = delete")
    connection.close()
    return made / FILE


def _mutated_database(rng: random.Random) -> bytes:
    source = _database(Path(tempfile.gettempdir()) / f"tilewright-fuzz-{os.getpid()}")
    data = source.read_bytes()
    if rng.random() < 0.5:
        return m.mutate_bytes(rng, data)
    changed = source.with_name("changed.sqlite")
    changed.write_bytes(data)
    connection = sqlite3.connect(changed)
    with connection:
        for _ in range(rng.choice((1, 1, 2))):
            _change_table(rng, connection)
    connection.close()
    return changed.read_bytes()


def _change_table(rng: random.Random, connection: sqlite3.Connection) -> None:
    tables = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
    table = rng.choice(tables)
    columns = [row[1] for row in connection.execute(f"pragma table_info({table})")]
    column = rng.choice(columns)
    kind = rng.random()
    try:
        if kind < 0.06:
            connection.execute(f"drop table {table}")
        elif kind < 0.12:
            connection.execute(f"alter table {table} rename column {column} to other")
        elif kind < 0.16:
            connection.execute(f"delete from {table}")
        elif kind < 0.2:
            connection.execute(f"alter table {table} rename to moved")
            connection.execute(f"create view {table} as select * from moved")
        else:
            rows = [row[0] for row in connection.execute(f"select rowid from {table}")]
            if rows:
                at = rng.choice(rows)
                (old,) = connection.execute(f"select {column} from {table} where rowid = ?", (at,)).fetchone()
                connection.execute(f"update {table} set {column} = ? where rowid = ?", (_cell(rng, old), at))
    except (sqlite3.Error, OverflowError):
        pass  # a key that is there twice, a number beyond 64 bits: left as it was


def _cell(rng: random.Random, old: Any) -> Any:
    if isinstance(old, str) and old[:1] in ("{", "[") and old[1:2] not in ("", "[") and rng.random() < 0.7:
        return json.dumps(m.mutate_tree(rng, json.loads(old)))
    return rng.choice(
        (None, b"\xff\xfe", "text", "{}", "[" * 5000, "{", 1 << 62, -1, 1e300, float("inf"), "../../etc/passwd", "é")
    )


def _read_database(data: bytes, rng: random.Random, folder: Path) -> None:
    for old in folder.glob(f"{FILE}*"):
        old.unlink()
    _placed(folder, FILE, data)
    with Database(folder) as database:
        found = load(database)
        for digest in found.networks.values():
            database.network_content(digest)
        for x in found.quantities:
            found.front_over(x.key, found.latency.key)
        first = (found.front or [found.points[0]["number"]])[0]
        for p in found.points:
            found.machine(p["number"])
        render(found, [], [], [], list(found.networks), first, found.points[-1]["number"])


KINDS = {
    "npy": Kind(_mutated_npy, _input(".npy")),
    "npz": Kind(_mutated_npz, _input(".npz")),
    "image": Kind(_mutated_image, _input(".png")),
    "json": Kind(_mutated_json, _read_config(".json")),
    "toml": Kind(_mutated_toml, _read_config(".toml")),
    "space": Kind(_mutated_toml, _read_space),
    "tflite": Kind(_mutated_tflite, _read_model),
    "onnx": Kind(_mutated_onnx, _read_onnx),
    "program": Kind(_mutated_program, _read_program),
    "database": Kind(_mutated_database, _read_database),
    "requests": Kind(requests.mutated, requests.read),
}
