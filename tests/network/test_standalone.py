"""Networks on a board without a host: the SoC with a core, Verilated, starts from its flash memory and answers over its
serial line. Bytes are those of onnxruntime and LiteRT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.common import onnx_models, standalone
from tests.common.paths import ROOT
from tilewright import zoo
from tilewright.errors import UsageError
from tilewright.fpga.board import SDRAM, Point
from tilewright.fpga.standalone.image import make
from tilewright.fpga.standalone.record import Exchange
from tilewright.isa.config import preset
from tilewright.standalone.client import Client
from tilewright.standalone.firmware import firmware
from tilewright.zoo.catalogue import ZOO

pytestmark = [pytest.mark.slow, pytest.mark.network]
DIGITS = ROOT / "examples" / "digits"
TINY = preset("tiny")
#: As many cycles for a byte as the bridge of other boards has.
BLOCK_RAM = Point(clock_mhz=25, memory_kib=256, baud=2_500_000)
IN_SDRAM = Point(clock_mhz=50, memory=SDRAM, memory_kib=32 << 10, baud=3_000_000)


def test_digits() -> None:
    """A picture, and what the board says to commands that are wrong; then images that are."""
    board = standalone.board()
    program = standalone.compiled(DIGITS / "digits_int8.onnx", "tiny")
    image = firmware(program, model="digits").image
    line = standalone.started(board, TINY, BLOCK_RAM, image)
    said: list[str] = []
    client = Client(line, said.append)
    assert client.wait()[-2:] == ["m-init-done", "m-ready"]
    assert client.command("name") == ["m-name-dut-[tilewright]"]
    assert client.command("profile") == ["m-profile-[ULPMark for tinyML Firmware V0.0.1]", "m-model-[digits]"]
    picture = np.load(DIGITS / "digits_test.npz")["images"][:1].astype(np.float32) / np.float32(16)
    want = onnx_models.run(onnx.load(DIGITS / "digits_int8.onnx"), {"input": picture})["output"]
    client.load(picture.tobytes())
    timed = client.infer(2, 1)
    assert client.outputs(program.outputs)["output"].tobytes() == want.tobytes()
    assert [f"{v:.3f}" for v in timed.results] == [f"{v:.3f}" for v in want[0]]
    assert "m-warmup-start-1" in said and "m-infer-start-2" in said
    everything, npu = map(int, client.command("cycles")[0].removeprefix("m-cycles-").split("-"))
    assert 40_000 < npu < everything  # docs/boards.md: 47,290 from the bridge
    assert 2 * everything * 0.99 < timed.microseconds * BLOCK_RAM.clock_mhz < 2.2 * everything
    for wrong, answer in {
        "bogus": "e-[Unknown command: bogus]",
        "db": "e-[Command 'db' requires a subcommand]",
        "db load 257": "e-[The input has 256 bytes, not 257]",
        "db 00": "e-[No more bytes are expected: 'db load' first]",
        "infer 0": "e-[Inference iterations must be >0]",
        "infer 1 x": "e-[Inference warmup must be >=0]",
        "x" * 2000: "e-[The command has more than 1024 characters, or came too fast]",
    }.items():
        with pytest.raises(UsageError, match="the board says e-") as info:
            client.command(wrong)
        assert str(info.value).endswith(answer), wrong
    client.command("db load 4")
    for wrong, answer in {
        "db 0": "e-[Insufficent number of hex digits]",
        "db 0g": "e-[Invalid hex digit '0g']",
    }.items():
        with pytest.raises(UsageError) as info:
            client.command(wrong)
        assert str(info.value).endswith(answer)
    with pytest.raises(UsageError, match=r"e-\[The input has 256 bytes, 0 are loaded\]"):
        client.command("infer 1")
    line.close()

    base, none = preset("base").fingerprint, "0" * 16
    other = make(bytes(64), entry=0, needed=64, fingerprint=base)
    large = make(bytes(64), entry=0, needed=(256 << 10) + 4, fingerprint=none)
    damaged = bytearray(make(bytes(64), entry=0, needed=64, fingerprint=none))
    damaged[-20] ^= 1
    header = bytearray(image)
    header[4] ^= 4
    asked = (
        (b"", "e-[no image in the flash memory at 0x00200000]"),
        (bytes(header), "e-[the image's header is damaged]"),
        (large, "e-[the image needs 262148 bytes of memory, there are 262144]"),
        (other, f"e-[the image is for configuration {base}, the bitstream has {TINY.fingerprint}]"),
        (bytes(damaged), "e-[the image is damaged, in the flash memory or in RAM]"),
    )
    for wrong_image, answer in asked:
        line = standalone.started(board, TINY, BLOCK_RAM, wrong_image)
        with pytest.raises(UsageError) as info:
            Client(line).wait()
        assert str(info.value) == f"the board says {answer}"
        line.send(b"name%")  # whoever comes later is told again
        with pytest.raises(UsageError) as info:
            Client(line).wait()
        assert str(info.value) == f"the board says {answer}"
        line.close()


def litert(path: str, value: np.ndarray) -> bytes:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
    interpreter.invoke()
    result: np.ndarray = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return result.tobytes()


@pytest.mark.long
@pytest.mark.parametrize("name", ["kws_dscnn", "resnet8"])
def test_mlperf_tiny(name: str, models_dir: Path) -> None:
    """Boot, constants, activations, code and data of the core all lie in the SDRAM of the board."""
    path = models_dir / "mlperf_tiny" / f"{name}_int8.tflite"
    program = standalone.compiled(path, "tiny")
    (info,) = program.inputs
    value = np.random.default_rng(1).integers(-128, 128, info.shape).astype(np.int8)
    found, _ = standalone.outputs(program, IN_SDRAM, {info.name: value}, TINY)
    (output,) = found.values()
    assert output.tobytes() == litert(str(path), value)


@pytest.mark.long
def test_floats_in_and_an_error_out(models_dir: Path) -> None:
    """Anomaly detection as the benchmark has it: the board quantises floats and says the reconstruction's error."""
    path = models_dir / "mlperf_tiny" / "ad_autoencoder_int8.tflite"
    program = standalone.compiled(path, "tiny")
    (given,), (output,) = program.inputs, program.outputs
    image = firmware(program, exchange=Exchange("floats", "error")).image
    line = standalone.started(standalone.board(), TINY, IN_SDRAM, image)
    client = Client(line)
    client.wait()
    plain = np.random.default_rng(1).uniform(-130, 130, given.shape).astype(np.float32)
    extreme = plain.copy()
    extreme.flat[:4] = np.nan, 1e30, -1e30, -0.0
    for floats in (extreme, plain):
        steps = np.nan_to_num(floats / np.float32(given.scale), nan=-1e30)
        away = np.trunc(steps) + np.sign(steps) * (np.abs(steps - np.trunc(steps)) >= 0.5)
        client.load(floats.tobytes())
        (result,) = client.infer(1).results
        found = client.outputs(program.outputs)[output.name]
        assert found.tobytes() == litert(str(path), np.clip(away + given.zero_point, -128, 127).astype(np.int8))
        real = (found.astype(np.float32) - np.float32(output.zero_point)) * np.float32(output.scale)
        error = np.float32(0)
        with np.errstate(over="ignore", invalid="ignore"):
            for difference in (real - floats).ravel():
                error += difference * difference
        assert f"{result:.3f}" == f"{error / np.float32(floats.size):.3f}"
    line.close()


@pytest.mark.long
def test_cpu_ops() -> None:
    """Softmax, GELU, LayerNormalization and conversions, in soft float, between steps of the NPU."""
    model = zoo.build_quantized("transformer", **ZOO["transformer"].small | {"size": 16, "layers": 1})
    picture = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
    inputs = {model.graph.input[0].name: picture}
    program = standalone.compiled(model, "tiny")
    assert sum(step.kind == "cpu" for step in program.steps) > 2
    found, _ = standalone.outputs(program, IN_SDRAM, inputs, TINY)
    want = onnx_models.run(model, inputs)
    assert {name: v.tobytes() for name, v in found.items()} == {name: v.tobytes() for name, v in want.items()}
