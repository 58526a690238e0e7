"""Compiled programs as onnxruntime keeps them in models: a context is a program and the order of its tensors."""

from __future__ import annotations

import json
import struct

from tilewright.isa.program import Program, ProgramError

_MAGIC = b"TWCONTX\n"
_HEAD = struct.Struct("<8sI")


def to_bytes(program: Program, inputs: list[str], outputs: list[str]) -> bytes:
    """A context.

    Args:
        inputs, outputs: names of the program's tensors in the order of the node.
    """
    text = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    return _HEAD.pack(_MAGIC, len(text)) + text + program.to_bytes()


def from_bytes(data: bytes | memoryview) -> tuple[Program, list[str], list[str]]:
    """Program, inputs and outputs of a context. Raises `ProgramError` for one that is damaged or somebody else's."""
    data = memoryview(data)
    try:
        magic, length = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("it is not Tilewright's")
        order = json.loads(bytes(data[_HEAD.size : _HEAD.size + length]))
        inputs, outputs = order["inputs"], order["outputs"]
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProgramError(f"the context is damaged or foreign: {error}") from None
    program = Program.from_bytes(data[_HEAD.size + length :], "the context")
    for names, infos in ((inputs, program.inputs), (outputs, program.outputs)):
        if not isinstance(names, list) or names != list(map(str, names)) or set(names) != {t.name for t in infos}:
            raise ProgramError("the context is damaged: its program has other inputs or outputs")
    return program, inputs, outputs
