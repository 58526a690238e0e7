"""Answers of a board: every line is checked before it is believed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.common.paths import ROOT
from tilewright.common.native import compiler
from tilewright.errors import UsageError
from tilewright.isa.program import TensorInfo
from tilewright.standalone.client import Client

TENSORS = [TensorInfo("a", (2, 2), "int8", ""), TensorInfo("b", (1,), "float32", "")]
INFER = ["m-lap-us-4294967290", "m-lap-us-4", "m-results-[0.5,-1.000,nan]"]
OUTPUT = ["m-tensor-0-int8-a", "m-output-01-02", "m-output-03-FF", "m-tensor-1-float32-b", "m-output-00-00-80-3f"]


class Says:
    """A board that says this, whatever it is asked, in pieces."""

    def __init__(self, *lines: str, end: bytes = b"m-ready\r\n") -> None:
        self.rest = "".join(f"{line}\r\n" for line in lines).encode("latin-1") + end

    def send(self, data: bytes) -> None:
        pass

    def receive(self) -> bytes:
        if not self.rest:
            raise UsageError("the board says nothing")
        piece, self.rest = self.rest[:4096], self.rest[4096:]
        return piece


def test_answers() -> None:
    assert Client(Says(*INFER)).infer().microseconds == 10
    assert Client(Says(*INFER)).infer().results[:2] == (0.5, -1.0)
    found = Client(Says(*OUTPUT)).outputs(TENSORS)
    np.testing.assert_array_equal(found["a"], np.array([[1, 2], [3, -1]], np.int8))
    assert found["b"] == 1.0 and found["b"].dtype == np.float32


@pytest.mark.parametrize(
    "lines",
    [
        [], INFER[:2], [*INFER, INFER[0]], [*INFER, INFER[2]], ["m-lap-us-x", *INFER[1:]], ["m-lap-us--1", *INFER[1:]],
        ["m-lap-us-" + "9" * 5000, *INFER[1:]], ["m-lap-us-\xb2", *INFER[1:]], [*INFER[:2], "m-results-[]"],
        [*INFER[:2], "m-results-[1,,2]"], [*INFER[:2], "m-results-[a]"], [*INFER[:2], "m-results-1"],
    ],
)  # fmt: skip
def test_answers_to_infer_that_are_none(lines: list[str]) -> None:
    with pytest.raises(UsageError, match="answer to infer must have two laps and one line of numbers") as found:
        Client(Says(*lines)).infer()
    assert len(str(found.value)) < 400


@pytest.mark.parametrize(
    "lines",
    [
        [], OUTPUT[1:], OUTPUT[:-1], OUTPUT[:3], [*OUTPUT, "m-output-00"], [*OUTPUT, "m-tensor-2-int8-c"],
        [*OUTPUT[:-1], "m-output-0-00-80-3f"], [*OUTPUT[:-1], "m-output-zz"], [*OUTPUT[:-1], "m-output-"],
        [*OUTPUT[:-1], "m-output-00 00 80 3f"], [*OUTPUT, "hello"],
    ],
)  # fmt: skip
def test_answers_to_output_that_are_none(lines: list[str]) -> None:
    with pytest.raises(UsageError, match=r"the board's (answer to output|outputs) must have"):
        Client(Says(*lines)).outputs(TENSORS)


@pytest.mark.medium
@pytest.mark.parametrize("noise", [b"\0" * (1 << 18), b"\xff\n" * (1 << 21)])
def test_a_board_that_never_is_ready(noise: bytes) -> None:
    with pytest.raises(UsageError, match="is it another program"):
        Client(Says(end=noise)).wait()


def test_lines_are_shown_as_text() -> None:
    said: list[str] = []
    Client(Says("\x1b[2Jm-x\x07"), said.append).wait()
    assert said == ["?[2Jm-x?", "m-ready"]


def test_numbers_in_commands_do_not_overflow(tmp_path: Path) -> None:
    """`count_of` of the board's program, under a compiler that ends the process when an int overflows."""
    source = (ROOT / "driver" / "c" / "standalone" / "monitor.c").read_text()
    function = re.search(r"^static int32_t count_of.*?^}", source, re.MULTILINE | re.DOTALL)
    assert function is not None
    file, program = tmp_path / "count.cpp", tmp_path / "count"
    file.write_text(
        f"#include <cstdint>\n#include <cstdio>\n{function[0]}\n"
        'int main(int n, char **words) { for (int i = 1; i < n; i++) printf("%d\\n", count_of(words[i])); }\n'
    )
    subprocess.run([compiler(), "-ftrapv", "-O0", str(file), "-o", str(program)], check=True)
    wanted = {
        "": 0, "0": 0, "17": 17, "2147483639": 2147483639, "2147483640": -1, "2147483647": -1, "2147483648": -1,
        "4294967296": -1, "99999999999999999999": -1, "-1": -1, "1x": -1,
    }  # fmt: skip
    found = subprocess.run([str(program), *wanted], capture_output=True, text=True, check=True)
    assert [int(line) for line in found.stdout.split()] == list(wanted.values())
