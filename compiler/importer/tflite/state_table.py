"""The variables of a model, and their known values while the model is read."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tilewright.compiler.importer.tflite.schema import FileModel, FileOp, FileTensor

Key = tuple[str, str]
"""Container and name of a variable in the file."""


class Variable(Struct):
    """A variable during import.

    Attributes:
        label: text for names and messages.
        initial: its value before the first run, None where the file sets none.
        assigned: True if a run changes it.
        value: the tensor of the file that it holds now, None as long as nothing was read or assigned.
        begin: the graph's input with the value it begins a run with, "" if that is not read.
    """

    label: str
    initial: np.ndarray | None = None
    assigned: bool = False
    value: FileTensor | None = None
    begin: str = ""


class Variables:
    """The variables of a model.

    Args:
        initial: values that CALL_ONCE gives them.
        model: the model, whose operators show the assigned variables.
    """

    def __init__(self, initial: dict[Key, np.ndarray], model: FileModel) -> None:
        self.by_key: dict[Key, Variable] = {}
        self.by_handle: dict[int, Variable] = {}
        handles = {op.outputs[0]: _key(op) for op in model.ops if op.name == "VAR_HANDLE" and op.outputs}
        for index, key in handles.items():
            label = key[1] or f"variable{len(self.by_key)}"
            self.by_handle[index] = self.by_key.setdefault(key, Variable(label, initial.get(key)))
        for op in model.ops:
            if op.name == "ASSIGN_VARIABLE" and op.inputs and op.inputs[0] in self.by_handle:
                self.by_handle[op.inputs[0]].assigned = True


def _key(op: FileOp) -> Key:
    texts = (op.option("Container", b""), op.option("SharedName", b""))
    container, name = ((text or b"").decode("utf-8", "replace") for text in texts)
    return container, name
