"""The command line as a real process: exit codes, streams, interruption, what is imported."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.common import needs
from tests.common.waiting import HANG

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


def test_success(program_file):
    result = tilewright("run", program_file, "--json", "-")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["outputs"]["x2"]["dtype"] == "int8"
    assert result.stderr == ""


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


def test_running_needs_neither_onnx_nor_onnxruntime(program_file):
    code = (
        "import sys, tilewright as tw\n"
        "p = tw.load(sys.argv[1])\n"
        "tw.Device('functional').run(p, tw.random_inputs(p))\n"
        "print([m for m in ('onnxruntime', 'onnx', 'torch', 'click') if m in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", code, str(program_file)], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
