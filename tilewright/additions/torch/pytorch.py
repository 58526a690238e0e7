"""PyTorch modules: exported to ONNX by torch, quantised, compiled. Needs the `torch` extra.

>>> program = tw.from_torch(module, (image,), calibration=images)
>>> scores = tw.Device("functional").run(program, {"x": image.numpy()})
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.api.compilation import compile
from tilewright.cli.heartbeat import Heartbeat
from tilewright.common.installation import install_extra
from tilewright.common.quiet import quiet
from tilewright.dynamic.model import DynamicModel
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.quantization import quantize_model
from tilewright.torch import torchscript
from tilewright.torch.custom_ops import translations

if TYPE_CHECKING:
    import onnx
    import torch

OPSET = 20
#: Which argument of an operator of torch's exported graphs says that it is in training mode.
_TRAINING = {"aten.dropout.default": 2, "aten.batch_norm.default": 5}


def export(
    module: torch.nn.Module | torch.export.ExportedProgram | str | Path,
    example_inputs: Sequence[Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> onnx.ModelProto:
    """A module as float ONNX, by `torch.export` and torch's ONNX exporter; TorchScript by the exporter it had.

    Args:
        module: in evaluation mode; or already exported, as one that `torchao.quantization.pt2e` has quantised; or
            TorchScript, by `torch.jit.trace` or `torch.jit.script`, or the file that `torch.jit.save` made of it.
        example_inputs: arguments of its `forward`; shapes and types of the model's inputs. An exported program has
            its own.
        dynamic_shapes: dimensions to leave open, as `torch.export.export` takes them.
        input_names, output_names: by default those of `forward`'s parameters, and "output" ("output_0", ...).

    Raises:
        UsageError: torch is not installed, the module is in training mode, or torch cannot export it.
    """
    torch = _torch()
    if isinstance(module, str | Path):
        module = torchscript.load(module)
    if isinstance(module, torch.jit.ScriptModule):
        _check_script(module, example_inputs, dynamic_shapes)
        return torchscript.export(module, tuple(example_inputs or ()), input_names, output_names, OPSET)
    title = type(module).__name__
    if not isinstance(module, torch.nn.Module | torch.export.ExportedProgram):
        raise UsageError(
            f"a torch.nn.Module, TorchScript or what torch.export.export makes of a module is expected, not {title}"
        )
    if isinstance(module, torch.nn.Module):
        if example_inputs is None:
            raise UsageError("a module needs example_inputs: arguments of its forward; an exported program has its own")
        _check_evaluation(module)
    else:
        _check_nodes(module.graph)
        if dynamic_shapes is not None:
            raise UsageError("dynamic_shapes= has no effect: the program is exported already")
    arguments = tuple(example_inputs or ())
    try:
        with quiet(logging.WARNING):
            if isinstance(module, torch.nn.Module):
                module = torch.export.export(module, arguments, dynamic_shapes=dynamic_shapes)
            count = len(module.graph_signature.user_outputs)
            outputs = list(output_names or (["output"] if count == 1 else [f"output_{i}" for i in range(count)]))
            found = torch.onnx.export(
                module,
                input_names=list(input_names) if input_names else None,
                output_names=outputs,
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
                custom_translation_table=translations(module.graph),
            )
    except Exception as error:  # torch raises many kinds; none of them is a fault of this package
        raise UsageError(f"torch cannot export the module: {_first_line(error)}") from error
    assert found is not None
    found.model_proto.graph.name = title
    return found.model_proto


def from_torch(
    module: torch.nn.Module | torch.export.ExportedProgram | str | Path,
    example_inputs: Sequence[Any] | None = None,
    *,
    calibration: Any = None,
    quantize: bool = True,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    activation: str = "int8",
    config: NpuConfig | str | Path = "base",
    progress: Callable[[str, float], None] | None = None,
    **options: Any,
) -> Program | DynamicModel:
    """A module, ready to run on a `Device`.

    Args:
        module, example_inputs, dynamic_shapes, input_names, output_names: as for `export`.
        calibration: what the module will see, to choose the ranges of the activations: a tensor or array whose first
            axis counts samples, or an iterable of the arguments of single calls (tensors, tuples or dicts by name).
            None where the module is quantised already.
        quantize: False keeps floats: the whole model runs on the CPU. A module that is quantised already (PT2E) stays
            as it is.
        activation: "int8" or "uint8".
        config, options: as for `tilewright.compile`.
        progress: called with what is being done and the fraction of it that is done; by default a line on standard
            error every 30 s says it.

    Raises:
        UsageError: as `export`; or no calibration to quantise with, or one that does not fit or has no effect.
    """
    if progress is None:
        with Heartbeat("exporting the module") as heart:
            return from_torch(
                module, example_inputs, calibration=calibration, quantize=quantize, dynamic_shapes=dynamic_shapes,
                input_names=input_names, output_names=output_names, activation=activation, config=config,
                progress=heart.progress, **options,
            )  # fmt: skip
    progress("exporting the module", 0.0)
    model = export(
        module, example_inputs, dynamic_shapes=dynamic_shapes, input_names=input_names, output_names=output_names
    )
    if any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        if calibration is not None:
            raise UsageError("calibration= has no effect: the module is quantised already")
    elif quantize:
        if calibration is None:
            raise UsageError("quantising needs calibration= (samples of the input); quantize=False keeps floats")
        names = [x.name for x in model.graph.input]
        progress("quantising", 0.0)
        model = quantize_model(model, _samples(calibration, names), activation=activation)
    elif calibration is not None:
        raise UsageError("calibration= has no effect with quantize=False")
    return compile(model, config, progress=progress, **options)


def _check_script(module: torch.jit.ScriptModule, example_inputs: Any, dynamic_shapes: Any) -> None:
    """Raises UsageError for TorchScript without example inputs, with open shapes, or in training mode."""
    if example_inputs is None:
        raise UsageError("TorchScript needs example_inputs: arguments of its forward")
    if dynamic_shapes is not None:
        raise UsageError("dynamic_shapes= is not accepted for TorchScript: its exporter fixes the shapes")
    if any(m.training for m in module.modules()):
        raise UsageError("the module is in training mode, in which batch norm and dropout differ; call module.eval()")


def _check_evaluation(module: torch.nn.Module) -> None:
    """Raises UsageError for a module in training mode.

    A module that `torch.export` made says that it is in training mode, whatever its graph does, and forbids `eval`: of
    such a one the nodes show.
    """
    if not any(m.training for m in module.modules()):
        return
    graph = getattr(module, "graph", None)
    if graph is None or "eval" not in vars(module):  # exported modules have an `eval` of their own, which raises
        raise UsageError("the module is in training mode, in which batch norm and dropout differ; call module.eval()")
    _check_nodes(graph)


def _check_nodes(graph: torch.fx.Graph) -> None:
    """Raises UsageError for what was exported in training mode."""
    for node in graph.nodes:
        position = _TRAINING.get(str(node.target))
        if position is not None and len(node.args) > position and node.args[position] is True:
            raise UsageError(
                f"the module was exported in training mode: {node.name} is {node.target}; call "
                "torchao.quantization.pt2e.move_exported_model_to_eval(module), or export it after module.eval()"
            )


def _torch() -> Any:
    try:
        import onnxscript  # noqa: F401  (torch's exporter needs it)
        import torch
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed: {install_extra('torch')}") from None
    return torch


def _samples(calibration: Any, names: Sequence[str]) -> Any:
    """Tensors as arrays, calls as dicts by input name."""
    if hasattr(calibration, "detach") or isinstance(calibration, np.ndarray):
        return _array(calibration)
    if not isinstance(calibration, Iterable):
        raise UsageError(f"calibration must be a tensor or an iterable of calls, not {type(calibration).__name__}")
    return (_call(arguments, names) for arguments in calibration)


def _call(arguments: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    if isinstance(arguments, Mapping):
        return {name: _array(value) for name, value in arguments.items()}
    if not isinstance(arguments, tuple | list):
        arguments = (arguments,)
    return dict(zip(names, map(_array, arguments)))


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def _first_line(error: Exception) -> str:
    """Type and first line of the root cause; torch's exporter wraps it in pages of advice."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = [line.strip() for line in inspect.cleandoc(str(cause)).splitlines() if line.strip()]
    return f"{type(cause).__name__}: {lines[0] if lines else ''}"
