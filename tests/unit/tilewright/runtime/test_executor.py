"""The runtime on hand-made programs: memory, CPU steps, switching, forcing, errors."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.isa.config import PRESETS
from tilewright.isa.device import Counters, DeviceError, EngineCounters
from tilewright.isa.encoding import op, to_bytes
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.program import NpuStep
from tilewright.runtime.counters import add_counters


def expected(x: np.ndarray) -> np.ndarray:
    b = np.clip(x.astype(np.int32) + 2, -128, 127)
    return (np.clip(-b, -128, 127) * np.float32(0.5)).astype(np.float32)


@pytest.fixture(params=["functional", "linked"])
def device(request, linked):
    options = {"path": "reference"} if request.param == "functional" else {}
    return tw.Device(request.param, **options)


def test_runs_and_runs_again(hand, device, x):
    program = hand.make_program()
    for shift in (0, 1, 2):
        outputs = device.run(program, {"x": x + np.int8(shift)})
        assert list(outputs) == ["y"]
        np.testing.assert_array_equal(outputs["y"], expected(x + np.int8(shift)))
    assert device.counters.instructions == 12
    assert device.counters.cycles is None


def test_outputs_are_fresh(hand, device, x):
    program = hand.make_program()
    first = device.run(program, {"x": x})["y"]
    kept = first.copy()
    device.run(program, {"x": -x})
    np.testing.assert_array_equal(first, kept)


def test_program_stays_loaded_and_switching_works(hand, device, x, kernels):
    one, two = hand.make_program("all"), hand.make_program()
    executor = device.load(one)
    device.run(one, {"x": x})
    assert device.load(one) is executor
    np.testing.assert_array_equal(device.run(two, {"x": -x})["y"], expected(-x))
    np.testing.assert_array_equal(device.run(one, {"x": x})["y"], expected(x))


def test_only_what_changed_crosses_the_link(hand, linked, x):
    device = tw.Device(linked)
    program = hand.make_program()
    executor = device.load(program)
    executor.device.written.clear()
    device.run(program, {"x": x})
    base = executor.bases["arena"]
    assert executor.device.written == [base + executor.buffers[n].offset for n in ("x", "b", "c")]


def test_constants_and_device_constants(hand, device, x):
    program = hand.make_program("all")
    executor = device.load(program)
    device.run(program, {"x": x})
    found = executor.read_buffer(executor.buffers["k"])
    np.testing.assert_array_equal(found, np.arange(64, dtype=np.uint8))


def test_non_contiguous_input(hand, device, x):
    turned = np.asfortranarray(np.swapaxes(x, 1, 2)).swapaxes(1, 2)
    np.testing.assert_array_equal(device.run(hand.make_program(), {"x": turned})["y"], expected(x))
    np.testing.assert_array_equal(device.run(hand.make_program(), x)["y"], expected(x))


def test_tensors(hand, device, x):
    with pytest.raises(tw.UsageError, match="no program has run"):
        device.tensors()
    program = hand.make_program("all")
    device.run(program, {"x": x})
    np.testing.assert_array_equal(device.tensors(["b"])["b"], np.clip(x + 2, -128, 127))
    assert set(device.tensors()) == {"x", "y", "b", "c"}
    with pytest.raises(tw.UsageError, match="'q' is not in the program"):
        device.tensors(["q"])
    device.run(hand.make_program(), {"x": x})
    with pytest.raises(tw.UsageError, match="'b' is not kept"):
        device.tensors("b")


class TestForcing:
    def test_value_goes_on_and_computed_is_observed(self, hand, device, x):
        program = hand.make_program("all")
        forced = np.arange(64, dtype=np.int8).reshape(x.shape)
        result = device.run_detailed(program, {"x": x}, force={"b": forced})
        np.testing.assert_array_equal(result.outputs["y"], -forced * np.float32(0.5))
        np.testing.assert_array_equal(result.observed["b"], x + 2)
        np.testing.assert_array_equal(device.tensors(["b"])["b"], forced)
        assert result.unwritten == {"b": 0}
        assert result.step_of == {"b": 1}
        np.testing.assert_array_equal(device.run(program, {"x": x})["y"], expected(x))  # and nothing stays forced

    def test_equal_value_is_seen_as_written(self, hand, device, x):
        result = device.run_detailed(hand.make_program("all"), {"x": x}, force={"b": x + 2})
        assert result.unwritten == {"b": 0}
        np.testing.assert_array_equal(result.observed["b"], x + 2)

    @pytest.mark.parametrize("by", [-1, 1, 2])
    def test_near_values_are_seen_as_written(self, hand, device, by):
        x = np.arange(-32, 32, dtype=np.int8).reshape(1, 4, 16)
        result = device.run_detailed(hand.make_program("all"), {"x": x}, force={"b": x + 2 + by})
        assert result.unwritten == {"b": 0}
        np.testing.assert_array_equal(result.observed["b"], x + 2)

    @pytest.mark.parametrize("value", [0, 85, -128, 127])
    def test_any_value_can_be_forced_on_any_other(self, hand, device, kernels, value):
        x = np.full((1, 4, 16), 40, np.int8)
        forced = np.full_like(x, value)
        program = hand.make_program("all")
        outputs = device.run(program, {"x": x}, force={"b": forced})
        np.testing.assert_array_equal(device.tensors(["b"])["b"], forced)
        expected = np.clip(-forced.astype(np.float32), -128, 127) * np.float32(0.5)
        np.testing.assert_array_equal(outputs["y"], expected)

    def test_unwritten_bytes_are_reported(self, hand, device, x, kernels):
        kernels["f1"] = lambda a, one, b: b[:10].fill(7)
        result = device.run_detailed(hand.make_program("all"), {"x": x}, force={"b": x})
        assert result.unwritten == {"b": 54}

    @pytest.mark.parametrize(
        "name, value, message",
        [
            ("q", np.zeros((1, 4, 16), np.int8), "'q' is not kept in memory"),
            ("b", np.zeros((1, 4, 15), np.int8), r"int8\[1, 4, 16\], not int8\[1, 4, 15\]"),
            ("b", np.zeros((1, 4, 16), np.uint8), "not uint8"),
        ],
    )
    def test_errors(self, hand, device, x, name, value, message):
        with pytest.raises(tw.UsageError, match=message):
            device.run(hand.make_program("all"), {"x": x}, force={name: value})

    def test_shared_memory_cannot_be_forced(self, hand, device, x):
        program = hand.make_program("all")
        program.buffer("k").offset = program.buffer("b").offset + 32
        with pytest.raises(tw.UsageError, match="shares its memory with buffer 'k'"):
            device.run(program, {"x": x}, force={"b": x})


class TestErrors:
    def test_configuration(self, hand, x):
        device = tw.Device("functional", config="small", path="reference")
        with pytest.raises(tw.ConfigMismatchError, match=r"hand was compiled for .*'base'.*'small'.*block_in 16 / 8"):
            device.run(hand.make_program(), {"x": x})
        free = tw.Device("functional", path="reference")  # takes each program's configuration
        free.run(hand.make_program(), {"x": x})
        assert free.config.name == "base"
        assert free.load(hand.make_program(config=PRESETS["large"])).device.config.name == "large"

    @pytest.mark.parametrize(
        "inputs, message",
        [
            ({}, "missing input 'x' int8 1x4x16"),
            ({"x": np.zeros((1, 4, 16), np.int8), "w": 1}, r"unknown input 'w' \(inputs: 'x' int8 1x4x16\)"),
            ({"x": np.zeros((4, 16), np.int8)}, "must have shape 1x4x16, not 4x16"),
            ({"x": np.zeros((1, 4, 16), np.float32)}, "must be int8, not float32"),
            ({"x": [[1, 2], [3]]}, "is no array"),
            ([1], "must be a dict"),
        ],
    )
    def test_inputs(self, hand, inputs, message):
        with pytest.raises(tw.InputError, match=message) as caught:
            tw.Device("functional", path="reference").run(hand.make_program(), inputs)
        assert "\n" not in str(caught.value)

    def test_unknown_device(self):
        with pytest.raises(tw.UsageError, match=r"unknown device 'nope'; available: functional"):
            tw.Device("nope")
        with pytest.raises(tw.UsageError, match="'functional' takes no address"):
            tw.Device("functional://x")

    def test_device_error_names_layer_and_instruction(self, hand, device, x):
        program = hand.make_program()
        ops = program.ops()
        ops[5].values["offset"] = 1 << 30  # the LOAD of the second NPU step
        program.instructions = to_bytes(ops)
        with pytest.raises(
            DeviceError, match=r"hand: layer 'copy b' \(Copy\): WINDOW: .*instruction 5 `LOAD "
        ) as caught:
            device.run(program, {"x": x})
        assert caught.value.pc == 5 and caught.value.code == ErrorCode.WINDOW

    def test_constants_are_read_only(self, hand, device, x):
        program = hand.make_program()
        ops = program.ops()
        ops[2].values["region"] = 1
        program.instructions = to_bytes(ops)
        with pytest.raises(DeviceError, match="copy x"):
            device.run(program, {"x": x})

    def test_deadlock_is_an_error(self, hand, device, x):
        program = hand.make_program()
        program.instructions = to_bytes([op("STORE", region=2, count=1, wait0=3), op("END")])
        program.steps = [NpuStep(0, 2)]
        with pytest.raises(DeviceError, match="hand"):
            device.run(program, {"x": x})

    @pytest.mark.parametrize(
        "damage, message",
        [
            (lambda p: setattr(p, "arena_bytes", 64), "lies outside of the 64 bytes of 'arena'"),
            (lambda p: p.buffers.pop(2), "'b'"),
            (
                lambda p: setattr(p.outputs[0], "shape", (1, 4, 17)),
                "does not fit the 256 of its buffer",
            ),
            (lambda p: p.sections.pop("code"), "section 'code'"),
        ],
    )
    def test_inconsistent_program(self, hand, device, x, damage, message):
        program = hand.make_program("all")
        damage(program)
        with pytest.raises(tw.TilewrightError, match=message):
            device.run(program, {"x": x})


def test_add_counters():
    a = Counters(cycles=5, macs=1, bytes_read=2, engines={"GEMM": EngineCounters(busy=3)})
    b = Counters(cycles=7, macs=10, bytes_written=4, engines={"GEMM": EngineCounters(busy=1, wait_memory=2)})
    total = add_counters([a, b])
    assert (total.cycles, total.macs, total.bytes_read, total.bytes_written) == (12, 11, 2, 4)
    assert total.engines["GEMM"] == EngineCounters(busy=4, wait_memory=2)
    assert add_counters([a, Counters()]).cycles is None
    assert add_counters([]).cycles is None


def test_close(hand, x):
    with tw.Device("functional", path="reference") as device:
        device.run(hand.make_program(), {"x": x})
    np.testing.assert_array_equal(device.run(hand.make_program(), {"x": x})["y"], expected(x))
