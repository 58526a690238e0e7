"""A model small enough to follow by hand, as ONNX and as a hand-made program with kernels written in Python.

    x int8 [1, 4, 16] --NPU copy--> x2 --f1: x+1 (float border)--> b --NPU copy--> b2 --f2: -b--> c --f3--> y float

The kernels are looked up by symbol, so a test can damage any one of them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.common.onnx_models import model_of
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.encoding import op, to_bytes
from tilewright.isa.instructions import Memory
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION, Buffer, CpuStep, Layer, NpuStep, Program, TensorInfo
from tilewright.runtime import backends, executor
from tilewright.store import program_cache, trust

SHAPE = (1, 4, 16)
SIZE = 64  # bytes of an int8 tensor
ROWS = 4
SCALE = 0.5
ADDED = 1.0
Kernels = dict[str, Callable[..., None]]


def copy_ops(source: int, target: int, region: int = ARENA_REGION) -> list:
    """Instructions that copy `SIZE` bytes of memory through ACT."""
    return [
        op("LOAD_DIM", level=0, count=1),
        op("LOAD", region=region, offset=source, target=Memory.ACT, row=0, count=ROWS, signal0=1),
        op("STORE", region=ARENA_REGION, offset=target, row=0, count=ROWS, wait0=1),
        op("END"),
    ]


def make_program(keep: str = "outputs", config: NpuConfig = PRESETS["base"]) -> Program:
    """The program; tensors x2, b, b2, c are known, and kept in memory with keep="all"."""
    steps = [copy_ops(0, 64), copy_ops(128, 192), copy_ops(0, 384, CONSTANT_REGION)]
    image = to_bytes([o for part in steps for o in part])
    names = ["x", "x2", "b", "b2", "c", "table", "k"]
    buffers = [Buffer(n, "arena", 64 * i, SIZE) for i, n in enumerate(names)]
    buffers += [Buffer("y", "host", 64, 4 * SIZE), Buffer("one", "host", 0, 4, "one"), Buffer("t", "constant", 0, SIZE)]

    def int8(name: str, where: str = "npu", reason: str = "") -> TensorInfo:
        buffer = name if keep == "all" or name == "x" else ""
        return TensorInfo(name, SHAPE, "int8", buffer, SCALE, 0, where=where, reason=reason)

    program = Program(
        name="hand",
        config=config,
        instructions=image,
        constants=bytes(range(SIZE)),
        arena_bytes=64 * len(names),
        host_bytes=64 + 4 * SIZE,
        buffers=buffers,
        inputs=[int8("x")],
        outputs=[TensorInfo("y", SHAPE, "float32", "y", where="cpu")],
        tensors=[int8("b", "cpu", "float Add"), int8("c")],
        steps=[
            NpuStep(0, 4),
            CpuStep("f1", "code", ["x2", "one", "b"], 64, ["Add add"]),
            NpuStep(4, 4),
            CpuStep("f2", "code", ["b2", "c"], 0, ["Neg neg"]),
            CpuStep("f3", "code", ["c", "y"], 0, ["DequantizeLinear dq"]),
            NpuStep(8, 4),
        ],
        layers=[
            Layer("copy x", "Copy", "npu", 0, 4, macs=300, tile="4 rows"),
            Layer("add", "Add", "cpu", macs=100),
            Layer("copy b", "Copy", "npu", 4, 4),
        ],
        sections={"code": b"", "one": np.float32(ADDED).tobytes()},
        notes=["made by hand"],
    )
    trust.sign(program)
    return program


def good_kernels() -> Kernels:
    """Kernels of the steps, on numpy views of their buffers."""

    def f1(x: np.ndarray, one: np.ndarray, b: np.ndarray) -> None:
        real = x.view(np.int8) * np.float32(SCALE) + one[:4].view(np.float32)
        b[...] = np.clip(np.rint(real / np.float32(SCALE)), -128, 127).astype(np.int8).view(np.uint8)

    def f2(b: np.ndarray, c: np.ndarray) -> None:
        c[...] = np.clip(-b.view(np.int8).astype(np.int32), -128, 127).astype(np.int8).view(np.uint8)

    def f3(c: np.ndarray, y: np.ndarray) -> None:
        y[...] = (c.view(np.int8) * np.float32(SCALE)).astype(np.float32).view(np.uint8)

    return {"f1": f1, "f2": f2, "f3": f3}


def make_model() -> onnx.ModelProto:
    """The same network for onnxruntime. The float Add has no quantised operand, so it stays float."""
    constants = {"s": np.float32(SCALE), "z": np.int8(0), "one": np.float32(ADDED)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("Add", ["xf", "one"], ["bf"]),
        helper.make_node("QuantizeLinear", ["bf", "s", "z"], ["b"]),
        helper.make_node("DequantizeLinear", ["b", "s", "z"], ["bd"]),
        helper.make_node("Neg", ["bd"], ["cf"]),
        helper.make_node("QuantizeLinear", ["cf", "s", "z"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    return model_of(nodes, {"x": (TensorProto.INT8, SHAPE)}, {"y": SHAPE}, constants, opset=18)


class LinkedDevice:
    """A device whose memory the host does not share; counts what crosses the link."""

    def __init__(self, inner) -> None:
        self._inner = inner
        self.name, self.config = "linked", inner.config
        self.written: list[int] = []

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def view(self, address: int, nbytes: int) -> None:
        return None

    def write(self, address: int, data) -> None:
        self.written.append(address)
        self._inner.write(address, data)


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs compiled before in a test file, with the same options, are taken from a program cache of its own."""
    folder = tmp_path_factory.mktemp("programs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_PROGRAM_CACHE", "on")
        patch.setattr(program_cache, "directory", lambda: folder)
        yield


@pytest.fixture
def kernels(monkeypatch) -> Kernels:
    """The kernels the runtime finds; a test replaces entries. Sizes of buffers are those of `make_program`."""
    table = good_kernels()
    sizes = {b.name: b.nbytes for b in make_program().buffers}
    signatures = {s.symbol: s.buffers for s in make_program().steps if isinstance(s, CpuStep)}

    def load_kernel(object_code: bytes, symbol: str, threads: int = 1) -> Callable[..., None]:
        def call(addresses: Sequence[int], workspace: int | None = None) -> None:
            views = [
                np.ctypeslib.as_array(ctypes.cast(a, ctypes.POINTER(ctypes.c_uint8)), (sizes[name],))
                for a, name in zip(addresses, signatures[symbol], strict=True)
            ]
            assert all(a % 64 == 0 for a in addresses)
            assert symbol != "f1" or (workspace and workspace % 64 == 0)
            table[symbol](*views)

        return call

    monkeypatch.setattr(executor, "load_kernel", load_kernel)
    return table


@pytest.fixture
def linked(monkeypatch) -> str:
    """Name of a registered backend without shared memory."""
    from tilewright.simulator.functional import FunctionalDevice

    def make(config: NpuConfig, address: str, **options) -> LinkedDevice:
        return LinkedDevice(FunctionalDevice(config, path="reference"))

    backend = backends.Backend("linked", "test", make, "tilewright.simulator.functional")
    monkeypatch.setitem(backends.BACKENDS, "linked", backend)
    return "linked"


@pytest.fixture
def hand(kernels):
    """The helpers of this file, for tests (which cannot import it)."""
    return sys.modules[__name__]


class HandCompiler:
    """Compiles any model to the hand-made program.

    Attributes:
        changes: made to every program, in this order.
    """

    def __init__(self) -> None:
        self.changes: list[Callable[[Program], None]] = []

    def __call__(self, model, config="base", shapes=None, keep="outputs", **options) -> Program:
        program = make_program(keep, config if isinstance(config, NpuConfig) else NpuConfig.load(config))
        for change in self.changes:
            change(program)
        return program


@pytest.fixture
def hand_compiler(monkeypatch, hand) -> HandCompiler:
    """`compile_program` gives the hand-made program, whatever the model."""
    compiler = HandCompiler()
    for module in ("tilewright", "tilewright.checking.model", "tilewright.measure.speed"):
        monkeypatch.setattr(f"{module}.compile_program", compiler)
    return compiler


@pytest.fixture
def model_file(tmp_path):
    """The model as a file."""
    path = tmp_path / "hand.onnx"
    path.write_bytes(make_model().SerializeToString())
    return path


@pytest.fixture
def x() -> np.ndarray:
    """An input."""
    return np.random.default_rng(1).integers(-120, 120, SHAPE).astype(np.int8)
