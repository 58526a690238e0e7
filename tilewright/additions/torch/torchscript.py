"""TorchScript as ONNX: what `torch.jit.trace` and `torch.jit.script` make, and the files that hold it."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from tilewright.common.installation import require
from tilewright.common.quiet import quiet
from tilewright.common.text import one_line
from tilewright.errors import UsageError
from tilewright.store.files import check_readable

if TYPE_CHECKING:
    import torch


def load(path: str | Path) -> torch.jit.ScriptModule:
    """The TorchScript of a file.

    Raises:
        UsageError: the file cannot be read, or has no TorchScript: `torch.save` writes pickles, which are not opened.
    """
    torch = require("torch")
    check_readable(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated
            return torch.jit.load(str(path), map_location="cpu")
    except RuntimeError as error:
        raise UsageError(
            f"{path} has no TorchScript: {one_line(str(error).splitlines()[0])}; torch.jit.save writes what is accepted"
        ) from None


def export(
    module: torch.jit.ScriptModule,
    arguments: tuple[Any, ...],
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    opset: int,
) -> onnx.ModelProto:
    """TorchScript as float ONNX.

    Args:
        arguments: of its `forward`; shapes and types of the model's inputs.
        input_names, output_names: by default those of `forward`'s parameters, and "output" ("output_0", ...).
        opset: version of ONNX's operators.

    Raises:
        UsageError: torch cannot run or export it.
    """
    torch = require("torch")
    try:
        with quiet(logging.ERROR), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter of TorchScript is deprecated, and warns of each branch
            with torch.no_grad():
                result = module(*arguments)
            count = len(result) if isinstance(result, tuple | list) else 1
            given = list(module.forward.schema.arguments)[1 : 1 + len(arguments)]
            inputs = list(input_names or (argument.name for argument in given))
            outputs = list(output_names or (["output"] if count == 1 else [f"output_{i}" for i in range(count)]))
            file = io.BytesIO()
            torch.onnx.export(
                module, arguments, file, input_names=inputs, output_names=outputs, opset_version=opset, dynamo=False
            )
    except Exception as error:  # torch raises many kinds; none of them is a fault of this package
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        what = f"{type(error).__name__}: {lines[0] if lines else ''}"
        raise UsageError(f"torch cannot export the TorchScript: {what}") from error
    model = onnx.load_from_string(file.getvalue())
    model.graph.name = getattr(module, "original_name", "") or "TorchScript"
    return model
