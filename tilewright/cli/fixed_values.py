"""The option --value: values of inputs that are fixed when compiling."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from tilewright.cli.input_files import read_value
from tilewright.common.text import suggest
from tilewright.errors import UsageError
from tilewright.store.files import open_arrays

if TYPE_CHECKING:
    from tilewright.dynamic.signature import Signature


class FixedValue(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """The type of --value: NAME=1,2,3 or NAME=FILE.npy."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not name or not text:
            self.fail(f"{value!r} must be a name and a value, such as axes=0,1", param, ctx)
        return name, text


option = click.option(
    "--value",
    "values",
    multiple=True,
    type=FixedValue(),
    help="Value of an input, fixed when compiling, such as axes or sizes: NAME=1,2,3 or NAME=FILE.npy; repeatable.",
)


def parse(model: Path, values: tuple[tuple[str, str], ...]) -> dict[str, np.ndarray]:
    """The values as arrays of the inputs' types.

    Raises:
        UsageError: an unknown input, a doubled one, or a value that does not fit.
    """
    if not values:
        return {}
    # onnx and the importer take 0.3 s to import, which a run of a program that is there need not wait for.
    from tilewright.dynamic.signature import signatures

    known = {s.name: s for s in signatures(model)}
    found: dict[str, np.ndarray] = {}
    for name, text in values:
        if name not in known:
            raise UsageError(f"--value {name}: no such input{suggest(name, known)}; inputs: {', '.join(known)}")
        if name in found:
            raise UsageError(f"--value {name} is given twice")
        found[name] = _array(known[name], text)
    return found


def _array(signature: Signature, text: str) -> np.ndarray:
    if Path(text).suffix in (".npy", ".npz"):
        arrays = open_arrays(text)
        if not arrays:
            raise UsageError(f"--value {signature.name}: {text} has no arrays")
        return read_value(
            signature, arrays[signature.name] if signature.name in arrays else next(iter(arrays.values()))
        )
    if signature.kind != "tensor" or signature.dtype == "string":
        raise UsageError(f"--value {signature.name}: only tensors of numbers can be fixed")
    dtype = np.dtype(signature.dtype)
    try:
        numbers = [float(x) if dtype.kind == "f" else int(x) for x in text.split(",")]
        array = np.array(numbers, dtype)
    except (ValueError, OverflowError):
        raise UsageError(f"--value {signature.name}={text}: must be {dtype} numbers, or a .npy file") from None
    rank = 1 if signature.shape is None else len(signature.shape)
    if rank > 1 or (rank == 0 and array.size != 1):
        raise UsageError(f"--value {signature.name}={text}: the input is {signature}; give a .npy file")
    return array.reshape(()) if rank == 0 else array
