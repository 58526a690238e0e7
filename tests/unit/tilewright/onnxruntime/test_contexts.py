"""Contexts: programs in models. What is damaged or foreign is refused with one line."""

import random

import pytest

from tests.common.quantized_chain import quantized_chain
from tilewright import compile_program
from tilewright.isa.program import ProgramError
from tilewright.onnxruntime import contexts


@pytest.fixture(scope="module")
def context() -> bytes:
    return contexts.to_bytes(compile_program(quantized_chain(1)), ["x"], ["y"])


@pytest.mark.medium
def test_round_trip(context: bytes) -> None:
    program, inputs, outputs = contexts.from_bytes(context)
    assert (inputs, outputs) == (["x"], ["y"])
    assert program == compile_program(quantized_chain(1)) or program.inputs[0].name == "x"


@pytest.mark.parametrize("data", [b"", b"TWCONTX\n", b"somebody else's" * 9, b"TWCONTX\n\xff\xff\xff\xff"])
def test_foreign(data: bytes) -> None:
    with pytest.raises(ProgramError, match=r"^the context is damaged or foreign: [^\n]*$"):
        contexts.from_bytes(data)


@pytest.mark.medium
def test_other_names(context: bytes) -> None:
    program, _, _ = contexts.from_bytes(context)
    for inputs, outputs in ((["z"], ["y"]), (["x"], []), (["x", 1], ["y"])):
        with pytest.raises(ProgramError, match="has other inputs or outputs"):
            contexts.from_bytes(contexts.to_bytes(program, inputs, outputs))  # type: ignore[arg-type]


def test_any_damaged_byte_is_seen(context: bytes) -> None:
    rng = random.Random(1)
    for _ in range(60):
        data = bytearray(context)
        place = rng.randrange(len(data))
        data[place] ^= rng.randrange(1, 256)
        try:
            _, inputs, outputs = contexts.from_bytes(bytes(data))
            assert (inputs, outputs) == (["x"], ["y"]), "only white space of the names may change unseen"
        except ProgramError as error:
            assert "\n" not in str(error)
    for cut in (0, 1, 7, 20, len(context) // 2, len(context) - 1):
        with pytest.raises(ProgramError):
            contexts.from_bytes(context[:cut])
