"""Batches that the float model leaves open: the quantised model has the size it was calibrated and run with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from tilewright.compiler.importer.onnx.inputs import open_batches, size_of
from tilewright.compiler.stages.note_forms import OPEN_BATCH
from tilewright.quantize.recipe import Samples


def write_batch(model: onnx.ModelProto, samples: Samples) -> Mapping[str, int]:
    """Gives open batches of the inputs the size they have in the samples, in place; also other tensors that name them.

    Returns:
        The size by input; nothing where no batch is open, or where it differs from sample to sample.
    """
    inputs = {x.name: x for x in model.graph.input}
    batches = open_batches(list(inputs.values()), {})
    if not batches:
        return {}
    sizes = {tuple(sample[name].shape[k] for name, axes in batches.items() for k in axes) for sample in samples}
    if len(sizes) != 1:
        return {}
    found: dict[str, int] = {}
    named: dict[int | str | None, int] = {}
    left = list(sizes.pop())
    for name, axes in batches.items():
        dims = inputs[name].type.tensor_type.shape.dim
        for axis in axes:
            found[name] = named[size_of(dims[axis])] = left.pop(0)
            dims[axis].dim_value = found[name]
    for x in [*model.graph.input, *model.graph.value_info, *model.graph.output]:
        for dim in x.type.tensor_type.shape.dim:
            size_name = size_of(dim)
            if isinstance(size_name, str) and size_name in named:
                dim.dim_value = named[size_name]
    return found


def sentence(batches: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> str:
    """The note on open batch sizes for the user; `shapes` are those of the inputs of a sample."""
    sizes = ", ".join(f"{size} for input {name!r}" for name, size in batches.items())
    flags = " ".join(f"--shape {name}={','.join(['N', *map(str, shapes[name][1:])])}" for name in batches)
    return f"{OPEN_BATCH}the model leaves it open, the result has that of the samples, {sizes}; {flags} gives another"
