"""What `run` does with models that are no single program: inputs decide the shapes, values what is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tilewright as tw
from compiler.errors import OpenShapeError, StagingError
from isa.program import Program, TensorInfo
from tilewright.cli import programs, terminal
from tilewright.dynamic.signature import Signature
from tilewright.errors import UsageError
from tilewright.files import IMAGE_SUFFIXES, read_arrays
from tilewright.runtime.inputs import random_input

if TYPE_CHECKING:
    from tilewright.dynamic.model import DynamicModel


def resolve(
    model: Path,
    config: str | None,
    shapes: dict[str, list[int]],
    constants: dict[str, np.ndarray],
    effort: int,
    files: list[str],
    seed: int | None,
    reason: OpenShapeError | StagingError,
    json_path: str | None,
) -> tuple[Program | DynamicModel, dict[str, np.ndarray]]:
    """The model and its inputs: one program if the inputs' shapes are all it lacked, else a dynamic model.

    Args:
        reason: why there is no program without inputs.
    """
    dynamic = tw.DynamicModel(model, config or "base", shapes, constants=constants, effort=effort)
    arrays = _inputs(dynamic, files, seed, reason)
    if isinstance(reason, OpenShapeError):
        given = {name: list(array.shape) for name, array in arrays.items()}
        try:
            with terminal.Working(f"compiling {model.name}") as working, terminal.stdout_for_json(json_path):
                program = tw.compile_program(
                    model, config or "base", given, constants=constants, effort=effort, progress=working.fraction
                )
            return program, arrays
        except StagingError:
            pass
    return dynamic, arrays


def _inputs(model: DynamicModel, files: list[str], seed: int | None, reason: Exception) -> dict[str, np.ndarray]:
    signatures = {s.name: s for s in model.inputs}
    arrays: dict[str, np.ndarray] = {}
    for text in files:
        for name, array in _read(text, signatures).items():
            if name in arrays:
                raise UsageError(f"input {name!r} is given twice")
            arrays[name] = array
    random = np.random.default_rng(seed or 0)
    for name, signature in signatures.items() if not files or seed is not None else ():
        drawn = _random(signature, random)
        if name not in arrays:
            if drawn is None:
                raise reason if isinstance(reason, OpenShapeError) else UsageError(f"give input {signature} by --input")
            arrays[name] = drawn
    return arrays


def _read(text: str, signatures: dict[str, Signature]) -> dict[str, np.ndarray]:
    name, equals, path = text.partition("=")
    if not equals or (name not in signatures and Path(text).is_file()):
        name, path = "", text
    if name and name not in signatures:
        raise UsageError(f"unknown input {name!r}; inputs: {', '.join(signatures)}")
    if Path(path).suffix.lower() in IMAGE_SUFFIXES:
        raise UsageError(f"{path}: an image is fitted to the input's size; set it with --shape")
    found = read_arrays(path)
    if not name and set(found) <= set(signatures):
        return found
    if not name and len(signatures) == 1:
        name = next(iter(signatures))
    if not name:
        raise UsageError(f"{path}: which input? there are {', '.join(signatures)}; write NAME={path}")
    if name not in found and len(found) != 1:
        raise UsageError(f"{path} holds {', '.join(found) or 'no arrays'}; input {name!r} needs an array of its name")
    return {name: found[name] if name in found else next(iter(found.values()))}


def _random(signature: Signature, random: np.random.Generator) -> np.ndarray | None:
    """A seeded value, None where shape or type leave open what it could be."""
    sizes = signature.shape
    if signature.kind != "tensor" or signature.dtype == "string" or sizes is None:
        return None
    shape = tuple(d for d in sizes if isinstance(d, int))
    if len(shape) != len(sizes):
        return None
    return random_input(TensorInfo(signature.name, shape, signature.dtype, ""), None, random)


def totals(model: DynamicModel) -> dict[str, Any]:
    """As `programs.totals`, of the programs of the last run together."""
    parts = [programs.totals(program) for program in model.ran]
    summed = ("macs", "npu_macs", "cpu_ops", "instructions", "constant_bytes", "compile_seconds")
    found: dict[str, Any] = {"model": model.name, "config": model.config.name, "programs": len(parts)}
    for key in summed:
        found[key] = sum((part[key] for part in parts), [] if key == "cpu_ops" else 0)
    found["npu_mac_fraction"] = found["npu_macs"] / found["macs"] if found["macs"] else 0.0
    return found
