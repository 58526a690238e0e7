"""LiteRT as the reference for TFLite models: the default interpreter, one thread.

Networks of 16-bit activations are run by its reference kernels: there its others round some steps otherwise. Where the
XNNPACK delegate of the default interpreter cannot be prepared, the built-in kernels run alone.

Tensors inside the model are looked at by making them outputs of a copy of the file; that copy is only believed if its
real outputs equal the unmodified model's to the byte.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.checking.float_weights import litert_module, with_float_weights
from tilewright.checking.tolerance import Roundings, tflite_roundings
from tilewright.common import store
from tilewright.compiler.importer.tflite import plane_tensors
from tilewright.compiler.importer.tflite.kernels import by_reference_kernels
from tilewright.compiler.importer.tflite.schema import FileOp, read
from tilewright.errors import UsageError
from tilewright.isa.numerics import litert_multiplier

_OUTPUTS_FIELD = 8  # of the graph's table in the schema
_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


class LiteRtReference:
    """A TFLite model as LiteRT runs it.

    Args:
        model: file or bytes.
        float_weights: True to give LiteRT the integer weights of float layers as floats (`with_float_weights`).
    """

    def __init__(self, model: str | Path | bytes, float_weights: bool = False) -> None:
        self.data = bytes(model) if isinstance(model, bytes) else store.read(model)
        self.file = read(self.data)
        self._in_floats = 0
        if float_weights:
            self.data, self._in_floats = with_float_weights(self.data, self.file)
        self._index = {t.name: t.index for t in self.file.tensors}
        self._interpreter: Any = None
        self._without_delegate = False

    @functools.cached_property
    def _planes(self) -> dict[str, str]:
        return plane_tensors(self.data)

    @property
    def name(self) -> str:
        return f"LiteRT {version('ai-edge-litert')}" + self._kernels

    @property
    def _kernels(self) -> str:
        """Differences from LiteRT's defaults, for messages; known after the first run."""
        if self._in_floats:
            layers = "layer" if self._in_floats == 1 else f"{self._in_floats} layers"
            return f", activations of the {layers} with 8-bit weights in floats (LiteRT alone rounds them to 8 bits)"
        if self.by_reference_kernels:
            return ", reference kernels"
        return ", without XNNPACK, which cannot be prepared" if self._without_delegate else ""

    @functools.cached_property
    def by_reference_kernels(self) -> bool:
        """Whether the reference kernels run the file: `kernels.by_reference_kernels`."""
        return by_reference_kernels(self.file)

    @property
    def reason(self) -> str:
        """Why any integer may be off by a step: none may."""
        return ""

    def quantised_tensors(self) -> list[str]:
        """Names of the 8-bit and 16-bit tensors the model computes."""
        tensors = [self.file.tensors[i] for op in self.file.ops for i in op.outputs]
        kinds = (*_BYTES, np.dtype(np.int16))
        return [t.name for t in tensors if t.dtype in kinds and t.quant is not None]

    def floats_of(self, name: str) -> list[str]:
        """None: LiteRT's integer operators have no floats inside that could be looked at."""
        return []

    def rounded_twice(self, name: str) -> float:
        """The largest share of a tensor's elements that a second rounding may change, 0 where its op has none.

        The first rounding is to 2^s parts of a step. Of these, the one just below the middle becomes another step: one
        of 2^(s + 1) values is next to it. Values of few factors may meet it four times as often.
        """
        wanted = self._planes.get(name, name)
        for op in self.file.ops:
            if op.name == "BATCH_MATMUL" and self.file.tensors[op.outputs[0]].name == wanted:
                quants = [self.file.tensors[i].quant for i in (*op.inputs[:2], op.outputs[0])]
                a, b, y = (0.0 if quant is None else float(np.ravel(quant.scale)[0]) for quant in quants)
                return 2.0 ** (litert_multiplier(a * b / y)[1] + 1) if y else 0.0
        return 0.0

    def floats_only(self) -> bool:
        """Whether the model computes no quantised tensor."""
        return not any(self.file.tensors[i].quant is not None for op in self.file.ops for i in op.outputs)

    def roundings(self) -> Roundings:
        """The float roundings of the model."""
        return tflite_roundings(self.file)

    def downstream(self, sources: Mapping[str, str]) -> dict[str, list[str]]:
        """Maps every tensor that depends on one of `sources` to the sources it depends on, itself included.

        A tensor with the bytes of another stands for it: the compiler keeps one of them, and what reads the other one
        depends on it, too.
        """
        found: dict[str, dict[str, None]] = {}
        names = [t.name for t in self.file.tensors]
        copied = {names[op.outputs[0]]: names[op.inputs[0]] for op in self.file.ops if _copies(op)}
        for name in sources:
            first = self._planes.get(name, name)
            while first in copied:
                first = copied[first]
            found.setdefault(first, {})[name] = None
            found.setdefault(name, {})[name] = None
        for op in self.file.ops:
            merged: dict[str, None] = {}
            for i in op.inputs:
                merged |= found.get(names[i], {}) if i >= 0 else {}
            for i in op.outputs:
                if merged:
                    found[names[i]] = merged | found.get(names[i], {})
        turned = {planes: found[name] for planes, name in self._planes.items() if name in found}
        return {name: list(some) for name, some in (turned | found).items()}

    def _start(self, data: bytes, inputs: Mapping[str, np.ndarray]) -> Any:
        litert = litert_module("interpreter")
        resolvers = litert.OpResolverType
        default = resolvers.BUILTIN_REF if self.by_reference_kernels else resolvers.AUTO

        def started(kernels: Any) -> Any:
            interpreter = litert.Interpreter(model_content=data, num_threads=1, experimental_op_resolver_type=kernels)
            for name, value in inputs.items():
                if tuple(value.shape) != self.file.tensors[self._index[name]].shape:
                    interpreter.resize_tensor_input(self._index[name], list(value.shape))
            interpreter.allocate_tensors()
            return interpreter

        if not self._without_delegate:
            try:
                return started(default)
            except (ValueError, RuntimeError) as error:
                if "XNNPack" not in str(error):
                    raise
        found = started(resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
        self._without_delegate = True
        return found

    def _invoke(self, interpreter: Any, inputs: Mapping[str, np.ndarray], wanted: Sequence[int]) -> list[np.ndarray]:
        for name, value in inputs.items():
            interpreter.set_tensor(self._index[name], value)
        interpreter.reset_all_variables()
        interpreter.invoke()
        return [np.array(interpreter.get_tensor(i)) for i in wanted]

    def release(self) -> None:
        """Frees the interpreter's memory; the next run makes another."""
        self._interpreter = None

    def run(self, inputs: Mapping[str, np.ndarray], steps: int = 1) -> dict[str, np.ndarray]:
        """The model's outputs by name, those of a first run.

        Args:
            steps: runs one after the other; with more than one, those of every run along a new first axis.

        Raises:
            UsageError: LiteRT cannot run it.
        """
        try:
            if self._interpreter is None or self.file.has_variables:  # variables outlive reset_all_variables
                self._interpreter = self._start(self.data, inputs)
            runs = [self._invoke(self._interpreter, inputs, self.file.outputs) for _ in range(steps)]
            found = runs[0] if steps == 1 else [np.stack(values) for values in zip(*runs)]
        except (ValueError, RuntimeError, LookupError) as error:
            raise UsageError(f"{self.name} cannot run the model: {str(error).strip().splitlines()[0]}") from None
        return {self.file.tensors[i].name: v for i, v in zip(self.file.outputs, found)}

    def intermediates(
        self, names: Sequence[str], inputs: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """Values of tensors inside the model in the shapes of the compiler's graph, and why others have none."""
        outputs = self.run(inputs)
        made = {i for op in self.file.ops for i in op.outputs}
        wanted = {n: self._planes.get(n, n) for n in names}
        values = {n: v for some in (inputs, outputs) for n, v in some.items() if n in wanted.values()}
        asked = [n for n in dict.fromkeys(wanted.values()) if self._index.get(n) in made and n not in values]
        missing = {n: "not a tensor of the model" for n in wanted.values() if n not in asked and n not in values}
        self._observe(asked, inputs, outputs, values, missing)
        found = {n: values[own] for n, own in wanted.items() if own in values}
        for name in self._planes.keys() & found.keys():
            found[name] = np.ascontiguousarray(found[name].transpose(0, 3, 1, 2))
        return found, {n: missing[own] for n, own in wanted.items() if own in missing}

    def _observe(
        self,
        names: list[str],
        inputs: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray],
        values: dict[str, np.ndarray],
        missing: dict[str, str],
    ) -> None:
        if not names:
            return
        indices = [self._index[n] for n in names]
        try:
            interpreter = self._start(with_outputs(self.data, [*self.file.outputs, *indices]), inputs)
            found = self._invoke(interpreter, inputs, [*self.file.outputs, *indices])
            real = [outputs[self.file.tensors[i].name] for i in self.file.outputs]
            same = all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(found, real))
        except (ValueError, RuntimeError):
            same, found = False, []
        if same:
            values.update(zip(names, found[len(self.file.outputs) :]))
        elif len(names) == 1:
            missing[names[0]] = "observing it changes what the reference computes"
        else:
            self._observe(names[: len(names) // 2], inputs, outputs, values, missing)
            self._observe(names[len(names) // 2 :], inputs, outputs, values, missing)


def with_outputs(data: bytes, indices: Sequence[int]) -> bytes:
    """Copies a TFLite file with other outputs of its graph, in a new list at the end of the file."""
    import tflite

    table = tflite.Model.GetRootAs(data, 0).Subgraphs(0)._tab
    place = table.Pos + table.Offset(_OUTPUTS_FIELD)
    copy = bytearray(data) + bytes(-len(data) % 4)
    end = len(copy)
    copy[place : place + 4] = int(end - place).to_bytes(4, "little")
    for value in (len(indices), *indices):
        copy += int(value).to_bytes(4, "little")
    return bytes(copy)


def _copies(op: FileOp) -> bool:
    """Whether an operator's result has the bytes of its first input, in their order."""
    return op.name in ("RESHAPE", "SQUEEZE", "EXPAND_DIMS") or (op.name == "CONCATENATION" and len(op.inputs) == 1)
