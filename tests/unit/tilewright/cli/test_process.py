"""The command line as a real process: exit codes, streams, interruption, what is imported."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.common import needs
from tests.common.waiting import HANG
from tilewright.cli import cli

COMMAND = [sys.executable, "-m", "tilewright"]


def tilewright(*args, cwd=None, env=None):
    environment = os.environ | (env or {})
    return subprocess.run([*COMMAND, *map(str, args)], capture_output=True, text=True, cwd=cwd, env=environment)


@pytest.fixture
def program_file(hand, tmp_path):
    """A program without CPU steps, so that it runs in any process."""
    program = hand.make_program()
    program.steps = [s for s in program.steps if s.kind == "npu"]
    program.outputs = [program.tensors[0]]
    program.outputs[0].name, program.outputs[0].buffer = "x2", "x2"
    path = tmp_path / "hand.twp"
    program.save(path)
    return path


@pytest.mark.medium
def test_success(program_file):
    result = tilewright("run", program_file, "--json", "-")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["outputs"]["x2"]["dtype"] == "int8"
    assert result.stderr == ""


@pytest.mark.medium
def test_a_warning_is_one_line(program_file, tmp_path):
    """A warning is one line; Python's own would be two, with a place in the code."""
    result = tilewright("run", program_file, env={"CXX": "no-such-compiler", "TILEWRIGHT_CACHE": str(tmp_path / "new")})
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith("warning: no C++ compiler: no-such-compiler not found")
    assert result.stderr.endswith("; using the slow reference path\n") and result.stderr.count("\n") == 1


@pytest.mark.medium
@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"], ["run"], ["run", "none.twp"], ["--bad"], ["compile", "none.onnx", "-o", "x"],
        ["config", "show", "nope"], pytest.param(["compile", __file__, "-o", "x.twp"], marks=pytest.mark.slow),
        pytest.param(["run", __file__], marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_mistakes(arguments, tmp_path):
    result = tilewright(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("tilewright: error: ") and result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_script_is_installed():
    script = os.path.join(os.path.dirname(sys.executable), "tilewright")
    if not os.path.exists(script):
        needs.skip(needs.INSTALLED, f"no {script}")
    result = subprocess.run([script, "--version"], capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.startswith("tilewright ")


@pytest.mark.medium
def test_interrupt(tmp_path):
    fifo = tmp_path / "slow.s"
    os.mkfifo(fifo)  # reading it blocks
    process = subprocess.Popen(
        [*COMMAND, "asm", str(fifo), "-o", str(tmp_path / "out.bin")],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell hands down "ignore"
    )
    with fifo.open("wb"):  # opens as soon as the process reads
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=HANG)  # a reader at the end of its file would go on
    assert process.returncode == 130
    assert "Traceback" not in stderr and not (tmp_path / "out.bin").exists()


@pytest.mark.medium
def test_running_needs_neither_onnx_nor_onnxruntime(program_file):
    code = (
        "import sys, tilewright as tw\n"
        "p = tw.load(sys.argv[1])\n"
        "tw.Device('functional').run(p, tw.random_inputs(p))\n"
        "print([m for m in ('onnxruntime', 'onnx', 'torch', 'click') if m in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", code, str(program_file)], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.medium
@pytest.mark.parametrize("closed", ["stdout", "all three"])
def test_streams_that_are_closed(closed, program_file, tmp_path):
    """Files that are opened next do not get the descriptors of closed streams, and so none of what is printed."""
    output = tmp_path / "result.json"

    def close():
        for number in (1,) if closed == "stdout" else (0, 1, 2):
            os.close(number)

    found = subprocess.run(
        [*COMMAND, "run", str(program_file), "--json", str(output)], stderr=subprocess.PIPE, preexec_fn=close
    )
    assert (found.returncode, found.stderr) == (0, b"")
    assert json.loads(output.read_text())["outputs"]["x2"]["dtype"] == "int8"


@pytest.mark.medium
@pytest.mark.parametrize("arguments", [["--help"], ["info", "FILE"], ["info", "FILE", "--json", "-"]])
def test_a_pipe_that_nobody_reads(arguments, program_file):
    reader, writer = os.pipe()
    os.close(reader)
    found = subprocess.run(
        [*COMMAND, *(str(program_file) if a == "FILE" else a for a in arguments)], stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert (found.returncode, found.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.medium
def test_standard_output_that_is_full(program_file):
    with open("/dev/full", "wb") as full:
        found = subprocess.run([*COMMAND, "info", str(program_file)], stdout=full, stderr=subprocess.PIPE, text=True)
    assert found.returncode == 2 and "No space left on device" in found.stderr and found.stderr.count("\n") == 1


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["file", "below a file"])
def test_a_cache_that_cannot_be(kind, program_file, tmp_path):
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / ("" if kind == "file" else "x")
    result = tilewright("run", program_file, "--device", "reference", env={"TILEWRIGHT_CACHE": str(cache)})
    assert result.returncode in (0, 2), result.stderr
    compiled = tilewright(
        "compile", "examples/digits/digits_int8.onnx", "--config", "tiny", "-o", str(tmp_path / "x.twp"),
        env={"TILEWRIGHT_CACHE": str(cache)}, cwd=Path(__file__).parents[4],
    )  # fmt: skip
    assert compiled.returncode == 0, compiled.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile", "FIFO", "-o", "x.twp"], ["info", "FIFO"], ["run", "FIFO"], ["disasm", "FIFO"],
        ["quantize", "FIFO", "--calibration", "FIFO", "-o", "x.onnx"], ["explain", "FIFO"], ["tune", "FIFO"],
        ["compile", "MODEL", "--config", "FIFO.toml", "-o", "x.twp"], ["run", "MODEL", "--input", "FIFO.npy"],
        ["run", "MODEL", "--input", "FIFO.png"], ["trust", "add", "FIFO"], ["sweep", "FIFO.toml", "-o", "x"],
    ],
)  # fmt: skip
def test_a_fifo_is_no_file(arguments, tmp_path, monkeypatch):
    """Nothing waits for somebody to write to it."""
    monkeypatch.chdir(tmp_path)
    for name in ("FIFO", "FIFO.toml", "FIFO.npy", "FIFO.png"):
        os.mkfifo(name)
    model = Path(__file__).parents[4] / "examples" / "digits" / "digits_int8.onnx"
    result = CliRunner().invoke(cli, [str(model) if a == "MODEL" else a for a in arguments])
    assert result.exit_code == 2, result.output
    assert "is a FIFO" in result.stderr and result.stderr.count("\n") == 1
