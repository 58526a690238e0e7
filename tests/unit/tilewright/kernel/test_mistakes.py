"""Mistakes in kernels: the message names the line that causes them."""

import inspect
from pathlib import Path

import numpy as np
import pytest

from tests.unit.tilewright.kernel.mistakes import MISTAKES
from tilewright import kernel as tk


@pytest.mark.parametrize("name", MISTAKES)
def test_messages_name_the_line(name: str) -> None:
    kernel, shapes, text = MISTAKES[name]
    source, first = inspect.getsourcelines(kernel.function)
    (line,) = [first + i for i, code in enumerate(source) if code.endswith("# HERE\n")]
    with pytest.raises(tk.KernelError) as raised:
        kernel.build(*shapes)
    assert text in str(raised.value)
    assert str(raised.value).startswith(f"mistakes.py:{line}: ")
    assert raised.value.line is not None and Path(raised.value.line.file).name == "mistakes.py"


def test_there_are_twenty() -> None:
    assert len(MISTAKES) >= 20


@tk.kernel
def copy(k, x, *, rows=4):
    y = k.tensor(x.shape)
    for part in tk.chunks(x.rows, rows):
        k.store(k.load(x.at(rows=part)), y.at(rows=part))
    return y


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: copy.build((4, 4), (4, 4)), r"copy takes 1 tensors \(x\), not 2"),
        (lambda: copy.build((4, 4), lines=3), r"copy has no lines: its constants are rows"),
        (lambda: copy.build((4, 4, 4)), r"x must be \[N, C, H, W\] or \[rows, channels\]"),
        (lambda: copy(np.zeros((4, 4), np.uint8)), "x must be int8, not uint8"),
        (lambda: copy.check((4, 4)), "copy has no reference"),
        (lambda: copy.tune((4, 4), rows=tk.Choices(0)), "chunks must have a size of 1 or more"),
    ],
)
def test_calls_that_cannot_be_right(call, text) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(tk.KernelError, match=text):
        call()


def test_kernels_need_a_chip() -> None:
    with pytest.raises(tk.KernelError, match="a kernel takes the chip, tensors"):
        tk.kernel(lambda: None)
    with pytest.raises(tk.KernelError, match="config is what a call names the machine by"):
        tk.kernel(lambda k, x, *, config: None)


def test_a_reference_that_differs_says_where() -> None:
    shown = tk.kernel(copy.function)
    shown.reference(lambda x: x + (np.arange(16).reshape(4, 4) == 6))
    with pytest.raises(tk.KernelError, match=r"1 of 16 values of t0 differ, with all values -128 on functional"):
        shown.check((4, 4))
