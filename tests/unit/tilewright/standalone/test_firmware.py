"""Programs of boards without a host: their C under an emulator, their sizes, and networks they cannot serve."""

from __future__ import annotations

import dataclasses
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.common import needs, onnx_models, standalone
from tilewright.compiler.cpu.ir import emitter
from tilewright.errors import UsageError
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.standalone.boards import ALONE
from tilewright.fpga.standalone.image import check_room
from tilewright.fpga.standalone.memory_map import BOOT_BYTES
from tilewright.standalone.build import program_of
from tilewright.standalone.client import Client
from tilewright.standalone.firmware import boot_program, compiled, firmware
from tilewright.standalone.toolchain import Linked

#: The machine `virt` of qemu.
RAM, RAM_BYTES = 0x8000_0000, 32 << 20
#: Ties, signs, integers of 24 bits and more, the largest, the smallest, and what is no number.
NUMBERS = [
    0.0, -0.0, 0.0005, 0.0015, 0.0625, 0.1875, -0.3125, 0.5, 0.9995, 0.99951, 1.0005, -2.0385, 1e-40, 1.5e-5,
    123456.789, 8388607.5, 16777216.0, 4294967296.0, -1e10, 3.4028235e38, 1.7014118e38, np.inf, -np.inf, np.nan,
]  # fmt: skip


class Emulator:
    """A program in qemu-system-riscv32, its serial line in pipes."""

    def __init__(self, linked: Linked, folder: Path) -> None:
        command = needs.program(needs.EMULATOR, "qemu-system-riscv32")
        file = folder / "program.bin"
        file.write_bytes(linked.payload)
        assert linked.entry == RAM
        arguments = ["-M", "virt", "-m", "64", "-display", "none", "-monitor", "none", "-bios", str(file)]
        self._process = subprocess.Popen(
            [command, *arguments, "-serial", "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._timer = threading.Timer(120, self._process.kill)  # ends what hangs
        self._timer.start()

    def send(self, data: bytes) -> None:
        assert self._process.stdin
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def receive(self) -> bytes:
        assert self._process.stdout
        got = self._process.stdout.read1(4096)  # type: ignore[attr-defined]
        if not got:
            raise UsageError("the emulator has ended")
        return bytes(got)

    def close(self) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()


def emulated(program: tw.Program, folder: Path) -> Iterator[Client]:
    needs.program(needs.EMULATOR, "qemu-system-riscv32")
    emulator = Emulator(compiled(program, RAM, "board_virt.c", end=RAM + RAM_BYTES), folder)
    try:
        yield Client(emulator)
    finally:
        emulator.close()


def identity(count: int) -> tw.Program:
    """A program whose output is its input, negated twice at run time."""
    nodes = [helper.make_node("Neg", ["x"], ["m"]), helper.make_node("Identity", ["m"], ["y"])]
    model = onnx_models.model_of(nodes, {"x": [count]}, {"y": [count]}, opset=20)
    return tw.compile_program(model, "tiny", host="riscv32-none", cpu_only=True)


@pytest.mark.slow
def test_numbers_are_printed_as_by_printf(tmp_path: Path) -> None:
    standalone.require("ziglang")
    values = np.array(NUMBERS, np.float32)
    for client in emulated(identity(len(values)), tmp_path):
        assert client.wait()[-2:] == ["m-init-done", "m-ready"]
        client.load((-values).tobytes())
        printed = client.command("infer 1 0")[-1]
        assert printed == f"m-results-[{','.join(f'{v:.3f}' for v in values)}]"
        assert client.command("db print")[0].startswith("m-buffer-")


@pytest.mark.slow
def test_kernels_in_soft_float(tmp_path: Path) -> None:
    """Functions of floats by calls, with the bytes of the same kernels on this machine."""
    standalone.require("ziglang")
    unary = ["Exp", "Log", "Tanh", "Erf", "Sigmoid", "Sqrt", "Round", "Floor", "Ceil", "Softplus"]
    nodes = [helper.make_node(op, ["x"], [op]) for op in unary]
    nodes += [helper.make_node("Softmax", ["x"], ["Softmax"]), helper.make_node("Max", ["x", "half"], ["Max"])]
    nodes += [
        helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
        helper.make_node("Round", ["d"], ["Round64"]),
    ]
    shape = [4, 12]
    constants = {"half": np.float32(0.5)}
    kinds = dict.fromkeys((*unary, "Softmax", "Max"), (TensorProto.FLOAT, shape))
    kinds["Round64"] = (TensorProto.DOUBLE, shape)
    model = onnx_models.model_of(nodes, {"x": shape}, kinds, constants, opset=20)
    value = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 4
    value[0, :8] = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, np.inf, 8388609.0]
    here = tw.Device("functional").run(tw.compile(model, cpu_only=True), {"x": value})
    program = tw.compile_program(model, "tiny", host="riscv32-none", cpu_only=True)
    for client in emulated(program, tmp_path):
        client.wait()
        client.load(value.tobytes())
        client.command("infer 1 0")
        for name, found in client.outputs(program.outputs).items():
            if name == "Softmax":  # its sum has another order
                np.testing.assert_allclose(found, here[name], rtol=5e-7)
            else:
                np.testing.assert_array_equal(found, here[name], err_msg=name)


@pytest.mark.slow
def test_sizes() -> None:
    """The boot program leaves room for its stack; an image's needs are those of its parts."""
    standalone.require("ziglang")
    place = ALONE[standalone.BOARD].place
    assert len(boot_program(place)) < BOOT_BYTES - 2048
    program = identity(1000)
    made = firmware(program)
    assert made.needed > len(made.image) + 2 * 4000
    check_room(len(made.image), made.needed, place, made.needed, "net")
    with pytest.raises(FpgaError, match=rf"net needs {made.needed} bytes of memory with its program; the board has"):
        check_room(len(made.image), made.needed, place, 4096, "net")
    with pytest.raises(FpgaError, match=r"net makes an image of 14680065 bytes; the flash memory has 16777216"):
        check_room(place.room + 1, made.needed, place, 1 << 30, "net")


@pytest.mark.slow
def test_ops_that_want_what_the_core_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler calls functions that no library has if its expansions are switched off."""
    standalone.require("ziglang")
    monkeypatch.setattr(emitter, "expand", lambda *arguments: None)
    nodes = [helper.make_node("Max", ["x", "half"], ["y"])]
    model = onnx_models.model_of(nodes, {"x": [5]}, {"y": [5]}, {"half": np.float32(0.5)}, opset=20)
    program = tw.compile_program(model, "tiny", host="riscv32-none", cpu_only=True, cache=False)
    with pytest.raises(UsageError, match=r"CPU ops .* want fmaximumf, which the core's library lacks"):
        firmware(program)


def test_networks_that_cannot_be_served(tmp_path: Path) -> None:
    program = identity(4)
    with pytest.raises(UsageError, match=r"the network's name must have 1..80 letters, digits, .*, not 'a%'"):
        firmware(program, model="a%")
    halves = dataclasses.replace(program, outputs=[dataclasses.replace(program.outputs[0], dtype="float16")])
    with pytest.raises(UsageError, match=r"output y must have one of float32, int8, .* int64, not float16"):
        firmware(halves)
    here = dataclasses.replace(program, host=dataclasses.replace(program.host, triple="x86_64-unknown-linux-gnu"))
    with pytest.raises(UsageError, match=r"must be compiled with --host riscv32-none, not for x86_64"):
        firmware(here)
    program.save(tmp_path / "net.twp")
    with pytest.raises(UsageError, match=r"net.twp is compiled for tiny \(.*\), the bitstream has base"):
        program_of(tmp_path / "net.twp", tw.NpuConfig.load("base"))
