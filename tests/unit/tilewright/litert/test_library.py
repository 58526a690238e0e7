"""LiteRT with the delegate gives LiteRT's bytes, whatever it is asked to load, and never ends the process."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.common import needs
from tests.common.paths import ROOT
from tests.common.side_by_side import side_by_side

if find_spec("ai_edge_litert") is None:
    needs.skip(needs.LITERT, "ai-edge-litert is not installed", module=True)

from ai_edge_litert.interpreter import Interpreter, load_delegate

import tilewright as tw
from tests.unit.tilewright.litert import networks
from tilewright.litert import bridge, reports


def opened(data: bytes | Path, delegates: Sequence[Any] | None, **options: Any) -> Any:
    given = {"model_content": data} if isinstance(data, bytes) else {"model_path": str(data)}
    return Interpreter(**given, experimental_delegates=delegates, **options)


def delegate(**options: str) -> Any:
    return load_delegate(tw.litert_delegate(), {"config": "tiny", **options})


def random_inputs(interpreter: Any, seed: int = 0) -> dict[int, np.ndarray]:
    r = np.random.default_rng(seed)
    found = {}
    for detail in interpreter.get_input_details():
        info = np.iinfo(detail["dtype"])
        found[detail["index"]] = r.integers(info.min, info.max + 1, detail["shape"]).astype(detail["dtype"])
    return found


def invoked(interpreter: Any, inputs: Mapping[int, np.ndarray]) -> list[np.ndarray]:
    for index, value in inputs.items():
        interpreter.set_tensor(index, value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def compare(data: bytes, **options: str) -> None:
    plain, ours = opened(data, None), opened(data, [delegate(**options)])
    plain.allocate_tensors()
    ours.allocate_tensors()
    for seed in range(2):
        inputs = random_inputs(plain, seed)
        for expected, found in zip(invoked(plain, inputs), invoked(ours, inputs), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.medium
@pytest.mark.parametrize(("network", "taken", "parts"), [(networks.whole, 3, 1), (networks.cut, 4, 2)])
def test_bytes_of_litert(network: Any, taken: int, parts: int) -> None:
    compare(network())
    report = reports()[-1]
    assert len(report.taken) == taken and report.parts == parts and report.macs == report.npu_macs > 0
    (left,) = report.reasons.values()
    assert "NPU" in left or "must have the same scale" in left


@pytest.mark.medium
@pytest.mark.parametrize("claim", ["npu", "all"])
@pytest.mark.parametrize("seed", range(4))
def test_random_networks(seed: int, claim: str) -> None:
    compare(networks.random_network(seed), claim=claim)
    assert reports()[-1].taken


@pytest.mark.medium
def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(networks.whole())
    plain, ours = opened(path, None), opened(path, [delegate(device="cycle")])
    plain.allocate_tensors()
    ours.allocate_tensors()
    inputs = random_inputs(plain)
    np.testing.assert_array_equal(invoked(ours, inputs)[0], invoked(plain, inputs)[0])


@pytest.mark.medium
def test_everything_that_can_be_compiled() -> None:
    compare(networks.whole(), claim="all")
    assert not reports()[-1].reasons


@pytest.mark.medium
@pytest.mark.parametrize("signature", [(), (-1, -1, -1, 8)])
@pytest.mark.parametrize("network", [networks.whole, networks.cut])
def test_resized_inputs(network: Any, signature: Sequence[int]) -> None:
    """Inputs are resized before the first allocation, and again and again after it."""
    data = network(signature)
    plain, ours = opened(data, None), opened(data, [delegate()])
    for shape in ((2, 8, 8, 8), (1, 8, 8, 8), (1, 6, 9, 8), (3, 6, 9, 8)):
        for interpreter in (plain, ours):
            interpreter.resize_tensor_input(0, shape)
            interpreter.allocate_tensors()
        inputs = random_inputs(plain)
        for expected, found in zip(invoked(plain, inputs), invoked(ours, inputs), strict=True):
            assert expected.shape[0] == shape[0]
            np.testing.assert_array_equal(found, expected)


@pytest.mark.medium
@pytest.mark.parametrize("shape", [(1, 4, 16, 8), (1, 8, 8, 8), (4, 2, 8, 8)])
def test_shapes_that_are_known_when_it_runs(shape: Sequence[int]) -> None:
    """A reshape by an input: what follows gets its size when it runs. (LiteRT itself keeps the first one for ever.)"""
    data = networks.runtime_shape()
    plain, ours = opened(data, None), opened(data, [delegate()])
    plain.allocate_tensors()
    ours.allocate_tensors()
    assert len(reports()[-1].taken) == 2
    target = plain.get_input_details()[1]["index"]
    inputs = random_inputs(plain) | {target: np.array(shape, np.int32)}
    (expected,), (found,) = invoked(plain, inputs), invoked(ours, inputs)
    assert expected.shape == shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.medium
def test_one_delegate_for_several_interpreters() -> None:
    shared = delegate()
    compared = []
    for data in (networks.whole(), networks.cut()):
        plain, ours = opened(data, None), opened(data, [shared])
        plain.allocate_tensors()
        ours.allocate_tensors()
        compared.append((plain, ours))
    for plain, ours in (*compared, *compared):
        inputs = random_inputs(plain)
        np.testing.assert_array_equal(invoked(ours, inputs)[0], invoked(plain, inputs)[0])


@pytest.mark.medium
def test_several_threads() -> None:
    """Each makes, runs and drops interpreters of its own, beside one delegate that all of them use."""
    data, shared = networks.cut(), delegate()
    plain = opened(data, None)
    plain.allocate_tensors()
    wanted = {seed: invoked(plain, random_inputs(plain, seed))[0] for seed in range(3)}
    wrong: list[Any] = []

    def work(number: int) -> None:
        try:
            for seed in range(3):
                ours = opened(data, [shared if number % 2 else delegate()])
                ours.allocate_tensors()
                for again in (seed, (seed + number) % 3):
                    found = invoked(ours, random_inputs(ours, again))[0]
                    if not np.array_equal(found, wanted[again]):
                        wrong.append((number, again))
        except Exception as error:
            wrong.append(error)

    side_by_side(work)
    assert not wrong


@pytest.mark.medium
def test_nothing_is_left_behind() -> None:
    gc.collect()
    before = bridge.alive()
    kept = delegate()
    interpreter = opened(networks.cut(), [kept])
    interpreter.allocate_tensors()
    assert bridge.alive() == (before[0] + 1, before[1], before[2] + 2)
    del kept  # the interpreter still has it
    invoked(interpreter, random_inputs(interpreter))
    del interpreter
    gc.collect()
    assert bridge.alive() == before


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"speed": "high"}, "unknown option 'speed'; accepted: device, config"),
        ({"device": "toaster"}, "unknown device 'toaster'"),
        ({"config": "no.toml"}, "no.toml"),
        ({"effort": "much"}, "effort must be a number"),
        ({"effort": "9"}, "effort must be 0..3"),
        ({"claim": "some"}, "claim must be 'npu' or 'all'"),
        ({"model": "/no/such"}, "/no/such: cannot be read"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        delegate(**options)


def test_models_that_stay_with_litert() -> None:
    """Several graphs, states, floats, no constants: LiteRT's own bytes and a reason."""
    for data, reason in networks.left_to_litert():
        compare(data)
        report = reports()[-1]
        assert not report.taken
        assert reason in str(report)


def test_a_model_without_constants_by_its_file(tmp_path: Path) -> None:
    """A model without constants is found by its file, which the user names: no tensor leads to its memory."""
    data = networks.without_constants()
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    compare(data, model=str(path))
    assert len(reports()[-1].taken) == 2
    path.write_bytes(networks.cut())  # another model than the one LiteRT runs
    compare(data, model=str(path))
    assert not reports()[-1].taken and "another node" in str(reports()[-1])
    path.write_bytes(data[:-200])
    compare(data, model=str(path))
    assert "damaged" in reports()[-1].problem


@pytest.mark.medium
def test_damaged_files_are_no_harm(tmp_path: Path) -> None:
    """Named as the model; what is read of them may be anything, and is believed where it fits LiteRT's graph."""
    data, r = networks.without_constants(), np.random.default_rng(0)
    path = tmp_path / "model.tflite"
    for _ in range(60):
        damaged = bytearray(data)
        for place in r.integers(0, len(data), int(r.integers(1, 8))):
            damaged[place] = int(r.integers(256))
        path.write_bytes(bytes(damaged[: int(r.choice([len(data), r.integers(1, len(data))]))]))
        ours = opened(data, [delegate(model=str(path))])
        ours.allocate_tensors()
        invoked(ours, random_inputs(ours))


@pytest.mark.parametrize("fill", [0, 1, 8, 0x7FFF_FFFF_FFFF])
def test_structures_laid_out_in_another_way(fill: int) -> None:
    """A LiteRT that has another context than the one we know keeps its graph, and we do not follow its pointers."""
    ours = delegate()
    address = ours._get_native_delegate_pointer()
    prepare_at = ctypes.c_void_p.from_address(address + ctypes.sizeof(ctypes.c_void_p)).value
    assert prepare_at
    prepare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(prepare_at)
    for first in (0, 1, 5, 1 << 60):
        context = (ctypes.c_uint64 * 64)(first, *[fill] * 63)
        assert prepare(ctypes.addressof(context), address) == 0
        assert "in another way" in reports()[-1].problem


def test_a_failing_device_is_litert_s_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.simulator.functional import FunctionalDevice

    data = networks.whole()
    ours = opened(data, [delegate()])
    ours.allocate_tensors()
    inputs = random_inputs(ours)
    expected = invoked(ours, inputs)[0]

    def unplugged(*_: Any, **__: Any) -> Any:
        raise OSError("the cable is out")

    with monkeypatch.context() as patch:
        patch.setattr(FunctionalDevice, "run", unplugged)
        with pytest.raises(RuntimeError, match="Tilewright: OSError: the cable is out"):
            invoked(ours, inputs)
    np.testing.assert_array_equal(invoked(ours, inputs)[0], expected)


def test_errors_of_ours_and_interruptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the planner leaves the graph to LiteRT; Ctrl-C ends what the user has called."""

    def raising(kind: type[BaseException]) -> Any:
        def make_plan(*_: Any) -> Any:
            raise kind("here")

        return make_plan

    monkeypatch.setattr(bridge, "make_plan", raising(ZeroDivisionError))
    compare(networks.whole())
    assert reports()[-1].problem == "ZeroDivisionError: here"
    monkeypatch.setattr(bridge, "make_plan", raising(KeyboardInterrupt))
    with pytest.raises(RuntimeError, match="Tilewright: interrupted"):
        opened(networks.whole(), [delegate()])


@pytest.mark.slow
def test_left_open_at_the_end_of_a_process(tmp_path: Path) -> None:
    """Interpreters that live until Python shuts down, in any order; and a library that nobody has connected."""
    path = tmp_path / "model.tflite"
    path.write_bytes(networks.cut())
    script = f"""
import sys, ctypes, threading
import tilewright
from ai_edge_litert.interpreter import Interpreter, load_delegate
library = tilewright.litert_delegate()
if "unconnected" in sys.argv:
    ctypes.CDLL(library).tilewright_litert_connect(None)
delegate = load_delegate(library, {{"config": "tiny"}})
interpreter = Interpreter({str(path)!r}, experimental_delegates=[delegate])
interpreter.allocate_tensors()
interpreter.invoke()
sys.interpreter = interpreter
sys.modules["kept"] = delegate
print("done")
"""
    run = [sys.executable, "-c", script]
    fine = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (fine.returncode, fine.stdout) == (0, "done\n"), fine.stderr
    alone = subprocess.run([*run, "unconnected"], capture_output=True, text=True, check=False)
    assert alone.returncode == 1 and "call tilewright.litert_delegate() in this process first" in alone.stderr


def growth() -> int:
    """Returns the bytes by which the process grows with nine hundred interpreters that are made, run and dropped; a
    hundred before bring it to its size."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    data, sizes = networks.cut(), []
    for count in range(1000):
        ours = opened(data, [delegate()])
        ours.allocate_tensors()
        invoked(ours, random_inputs(ours))
        if count in (99, 999):
            sizes.append(resident())
    del ours
    return sizes[1] - sizes[0]


@pytest.mark.long
def test_a_thousand_interpreters_leave_no_memory() -> None:
    """Measured in a process of its own, whose heap no other test has filled."""
    script = f"from {__name__} import growth; print('grown by', growth())"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 4 << 20
