"""Mutated files of every kind work or are refused with one line; `make fuzz-files N=100000` tries more of them."""

import contextlib
import json
import multiprocessing
import os
import signal
import sqlite3
import time
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from PIL import Image

import tilewright as tw
from tests.common import onnx_models
from tilewright.cli.fixed_values import parse
from tilewright.cli.group import one_line
from tilewright.cli.input_files import InputFiles
from tilewright.dynamic.signature import signatures
from tilewright.errors import InputError, UsageError
from tilewright.isa.config import ConfigError, NpuConfig
from tilewright.isa.program import Program, ProgramError
from tilewright.quantize.metric import read_labels
from tilewright.quantize.model_inputs import Input
from tilewright.quantize.samples import samples_of
from tilewright.runtime.images import fitted
from tilewright.store.files import MAX_EXPANDED, read_arrays
from tilewright.sweep.database import FILE, Database
from verification.fuzz.files.attempt import REFUSED, WORKS, attempt
from verification.fuzz.files.kinds import KINDS
from verification.fuzz.files.run import HANG, kill_timed_out

CASES = {"onnx": 12, "tflite": 12}


@pytest.mark.medium
@pytest.mark.parametrize("kind", KINDS)
def test_mutated(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for seed in range(CASES.get(kind, 40)):
        outcome, text = attempt(kind, seed, tmp_path)
        again = f"python -m verification.fuzz.files --kinds {kind} --seed {seed} --count 1"
        assert outcome in (WORKS, REFUSED), f"{outcome}: {text}; again with: {again}"


@pytest.mark.parametrize("kind, seed", [("program", 100122), ("program", 101037), ("database", 101757)])
def test_once_not_refused(kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert attempt(kind, seed, tmp_path)[0] == REFUSED


def test_a_process_that_hears_no_alarm_is_ended(tmp_path: Path) -> None:
    """Only the process that has been at its file for too long is killed, as in C code that never returns."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=time.sleep, args=(1000,), daemon=True) for _ in range(2)]
    for process, age in zip(processes, (0, HANG + 60), strict=True):
        process.start()
        at = tmp_path / str(process.pid) / "at"
        at.parent.mkdir()
        at.write_text("onnx 7")
        os.utime(at, (time.time() - age,) * 2)
    kill_timed_out(processes, tmp_path)
    processes[1].join()
    assert processes[1].exitcode == -signal.SIGKILL and processes[0].is_alive()
    processes[0].kill()
    processes[0].join()


def test_names_in_a_database_that_are_no_text(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.execute("create table aaaa (bbbb)")
        database.commit()
    data = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(data.replace(b"TABLE aaaa (", b"TABLE aa\xf2\xf2(("))
    with pytest.raises(UsageError, match="cannot use"):
        Database(tmp_path)


@pytest.mark.parametrize("limits", [(1.0, -1.0), (float("-inf"), 1.0), (0.0, float("nan")), (-1e300, 1e300)])
def test_a_program_whose_inputs_have_no_range(limits: tuple[float, float]) -> None:
    model = onnx_models.model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, 4)}, {"y": (1, 4)})
    program = tw.compile(model, "tiny", cache=False)
    assert isinstance(program, Program)
    program.input_ranges = {"x": limits}
    with pytest.raises(ProgramError, match="the values of input 'x' range from"):
        Program.from_bytes(program.to_bytes())


def test_an_archive_that_expands(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"")
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02") + 24  # the expanded size, in the directory
    data[at : at + 4] = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(UsageError, match="is no valid"):
        read_arrays(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"")
        archive.writestr("y.npy", b"")
    data = bytearray(path.read_bytes())
    at = -1
    for _ in range(2):
        at = data.index(b"PK\x01\x02", at + 1)
        data[at + 24 : at + 28] = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(UsageError, match=f"expands to {2 * 0xFFFFFFF0} bytes; up to {MAX_EXPANDED} are accepted"):
        read_arrays(path)


def bomb(path: Path, shape: str, name: str = "x", descr: str = "<f4") -> Path:
    """An .npz whose array has a header alone: who reads more of it than that finds it damaged. By its directory it
    expands to a gigabyte."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02") + 24
    data[at : at + 4] = (1 << 30).to_bytes(4, "little")
    path.write_bytes(data)
    return path


def relu(*shape: int | str) -> onnx.ModelProto:
    return onnx_models.model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": shape}, {"y": shape})


def test_inputs_that_do_not_fit_are_not_expanded(tmp_path: Path) -> None:
    program = tw.compile_program(relu(1, 4), "tiny", cache=False)
    files = InputFiles(inputs=(str(bomb(tmp_path / "x.npz", "(200000000,)")),))
    with pytest.raises(InputError, match="'x' must have shape 1x4, not 200000000"):
        files.of_program(program)
    with pytest.raises(InputError, match="'x' float32 Nx4 cannot have shape 200000000"):
        files.of_model(signatures(relu("N", 4)))
    files = InputFiles(inputs=(str(bomb(tmp_path / "x.npz", "(1, 4)")),))
    with pytest.raises(UsageError, match=r"x\.npz is no valid \.npz file"):
        files.of_program(program)  # fits, and is read


def test_fixed_values_that_do_not_fit_are_not_expanded(tmp_path: Path) -> None:
    onnx.save(relu(1, 4), tmp_path / "m.onnx")
    path = bomb(tmp_path / "x.npz", "(200000000,)")
    with pytest.raises(InputError, match="cannot have shape 200000000"):
        parse(tmp_path / "m.onnx", (("x", str(path)),))
    with zipfile.ZipFile(path, "w"):
        pass
    with pytest.raises(UsageError, match="has no arrays"):
        parse(tmp_path / "m.onnx", (("x", str(path)),))


@pytest.mark.parametrize(
    ("shape", "says"),
    [("(200000000,)", "has 200000000 labels; there are 100"), ("(100, 2000000)", "bytes of labels"), ("()", "100")],
)
def test_labels_that_do_not_fit_are_not_expanded(shape: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says):
        read_labels(bomb(tmp_path / "labels.npz", shape), 100)


def test_calibration_that_does_not_fit_is_not_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    inputs = {"x": Input(np.dtype(np.float32), (1, 4))}
    with pytest.raises(UsageError, match=r"is float32\[200000000\]; the model takes float32"):
        samples_of(bomb(tmp_path / "x.npz", "(200000000,)"), inputs)


@pytest.mark.parametrize("shape", ["(1099511627776,)", "(-1,)", "(1 << 60, 1 << 60)", "[4]", "(True,)"])
def test_an_array_that_claims_more_than_it_has(shape: str, tmp_path: Path) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))
    with pytest.raises(UsageError, match=r"is no valid \.npy file"):
        read_arrays(path)


def test_arrays_that_are_whole(tmp_path: Path) -> None:
    array = np.arange(24, dtype=">i2").reshape(2, 3, 4)
    np.save(tmp_path / "x.npy", np.asfortranarray(array))
    np.savez_compressed(tmp_path / "x.npz", a=array, b=np.float32(1.5))
    assert np.array_equal(read_arrays(tmp_path / "x.npy")[""], array)
    found = read_arrays(tmp_path / "x.npz")
    assert np.array_equal(found["a"], array) and found["b"] == np.float32(1.5)


@pytest.mark.parametrize(
    ("suffix", "text", "says"),
    [
        (".json", "[" * 100_000, "nested"),
        (".json", '{"a": ' * 20 + "1" + "}" * 20, "nested deeper"),
        (".toml", "x = " + "[" * 100_000, "nested"),
        (".toml", ".".join("a" * 30_000) + " = 1", "dots"),
        (".toml", "block_in = 0x" + "f" * 5000, "64 bits"),
        (".json", json.dumps({"name": "\ud800"}), "no Unicode"),
        (".json", " " * (1 << 19), "longer than"),
    ],
)
def test_configurations_that_are_too_much(suffix: str, text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / f"c{suffix}"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        NpuConfig.load(path)


def test_messages_are_one_printable_line() -> None:
    assert one_line("a\nb\x1b[31m\ud800c") == "a b [31m c"
    assert len(one_line("x" * 100_000)) == 4000


def test_an_image_says_its_format_by_its_content(tmp_path: Path) -> None:
    """Decoders other than those of the accepted formats are not started: one of Pillow's runs Ghostscript."""
    path = tmp_path / "x.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")
    with pytest.raises(OSError, match="cannot identify"):
        fitted(path, 3, (4, 4), "crop")
    Image.new("1", (9000, 9000)).save(path)
    with pytest.raises(ValueError, match="9000x9000 pixels"):
        fitted(path, 3, (4, 4), "crop")
