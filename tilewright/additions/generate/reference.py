"""The same model in onnxruntime, its cache handed back to it after every run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from tilewright.checking.onnxruntime_reference import Reference
from tilewright.compiler.graph.states import paired_by_name
from tilewright.generate.feed import cache_size, mask, token_inputs


class GreedyReference:
    """Greedy decoding by onnxruntime, token by token.

    Args:
        model: as for `LanguageModel.load`.
    """

    def __init__(self, model: str | Path | onnx.ModelProto) -> None:
        reference = Reference(model)
        self.name = reference.name
        self._session = reference.session(reference.proto)
        inputs = {x.name: x for x in self._session.get_inputs()}
        self._outputs = [x.name for x in self._session.get_outputs()]
        self._pairs = paired_by_name(list(inputs), self._outputs)
        self._named = token_inputs(self.name, [n for n in inputs if n not in self._pairs])
        self._types = {x.name: onnx.helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type)
                       for x in reference.proto.graph.input}  # fmt: skip
        single = (inputs[self._named.ids].shape or [1])[-1] == 1
        shapes = {n: [d if isinstance(d, int) else 1 for d in inputs[n].shape] for n in self._pairs}
        self._rows = cache_size(shapes.values())
        self._whole = 1 if single else self._rows  # positions without going round
        self._cache = {n: np.zeros(shape, self._types[n]) for n, shape in shapes.items()}
        self._ranks = {n: len(x.shape) for n, x in inputs.items()}
        self._position = 0

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits after these tokens, which follow those of earlier calls, float32 [vocabulary]."""
        many = max(self._whole - self._position, 0)
        for piece in [list(tokens[:many])] * (many > 0) + [[token] for token in tokens[many:]]:
            places = self._position + np.arange(len(piece))
            given = {self._named.ids: np.array(piece)}
            if self._named.positions is not None:
                given[self._named.positions] = places
            if self._named.mask is not None:
                given[self._named.mask] = mask([self._rows], "int64", int(places[-1]) + 1)
            shaped = {n: v.astype(self._types[n]).reshape((1,) * (self._ranks[n] - 1) + (-1,) if self._ranks[n] else ())
                      for n, v in given.items()}  # fmt: skip
            found = dict(zip(self._outputs, self._session.run(None, shaped | self._cache), strict=True))
            self._cache = {past: found.pop(present) for past, present in self._pairs.items()}
            self._position += len(piece)
        (logits,) = found.values()
        return np.asarray(logits.reshape(-1, logits.shape[-1])[-1])
