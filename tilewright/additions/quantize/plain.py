"""The network that onnxruntime's plain quantiser, `quantize_static`, makes of the same samples: the candidate to beat.

QDQ, a scale for each output channel of weights, extremes as ranges. The quantiser is given the extremes, which are
looked at piece by piece: its own calibration keeps every tensor of a run in memory. All else is what it writes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from tilewright.common import temporary
from tilewright.common.quiet import quiet
from tilewright.errors import UsageError
from tilewright.quantize.layers import PRODUCTS, SCATTERS, Kind, Network
from tilewright.quantize.names import MADE, READ
from tilewright.quantize.observe import copied, observe
from tilewright.quantize.ranges import Seen, look_along
from tilewright.quantize.recipe import Progress, Samples
from tilewright.quantize.recurrent_ops import GATES

Beside = tuple[Network, Seen, Progress | None]
"""A network, what is seen of it, and what is called with the progress."""


class Plain:
    """The plain quantiser, which has read a model.

    Args:
        model: the float model, optimised, with the sizes of its inputs; left unchanged.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        from onnxruntime.quantization.shape_inference import quant_pre_process

        self._folder = temporary.Folder(prefix="tilewright-quantize-")
        self._path = Path(self._folder.name) / "float.onnx"
        onnx.save(model, self._path)
        try:
            with quiet():
                quant_pre_process(self._path, self._path, skip_symbolic_shape=True)
        except Exception:  # it knows not every model
            self._path.unlink(missing_ok=True)

    def network(
        self, samples: Samples, activation: str = "int8", per_channel: bool = True, beside: Beside | None = None
    ) -> onnx.ModelProto | None:
        """Returns the plain quantiser's network, with tensors named as by `writing`; None where the quantiser fails.

        Args:
            samples: that ranges have to hold.
            activation: "int8" or "uint8".
            per_channel: whether weights have a scale for each channel.
            beside: a prepared network, whose tensors are seen while these are looked at.

        Raises:
            UsageError: onnxruntime cannot run the model on a sample, or it overflows there.
        """
        from onnxruntime.quantization import CalibrationMethod, QuantType
        from onnxruntime.quantization.calibrate import TensorData, TensorsData
        from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
        from onnxruntime.quantization.quant_utils import load_model_with_shape_infer
        from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

        kind = QuantType.QInt8 if activation == "int8" else QuantType.QUInt8
        try:
            with quiet():
                given = load_model_with_shape_infer(self._path)
                self._folder.cleanup()
                found = _extremes(given, samples, beside)
                ranges = {k: TensorData(lowest=v[:1], highest=v[1:]) for k, v in found.items()}
                quantizer = QDQQuantizer(
                    given, per_channel, False, QuantType.QInt8, kind,
                    TensorsData(CalibrationMethod.MinMax, ranges), [], [], [*QLinearOpsRegistry, *QDQRegistry], {},
                )  # fmt: skip
                quantizer.quantize_model()
                quantizer.model.topological_sort()
        except UsageError:
            raise
        except Exception:  # as above
            return None
        return copied(_renamed(quantizer.model.model))


def with_outputs(written: onnx.ModelProto | None, model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The plain quantiser's network with all outputs of the float model, added in place; None if it lacks one."""
    if written is None:
        return None
    made, count = {name for node in written.graph.node for name in node.output}, len(written.graph.output)
    more = model.graph.output[count:]
    written.graph.output.extend(onnx.ValueInfoProto(name=x.name, type=x.type) for x in more)
    return written if all(x.name in made for x in more) else None


def quantises_all(written: onnx.ModelProto) -> bool:
    """Whether the plain quantiser's network leaves nothing that multiplies, and no cache, in floats."""
    integers = {node.output[0] for node in written.graph.node if node.op_type == "DequantizeLinear"}
    floats = (node for node in written.graph.node if not integers.issuperset(node.input[:2]))
    return not any(node.op_type in PRODUCTS or node.op_type in GATES or node.op_type in SCATTERS for node in floats)


def left_in_floats(written: onnx.ModelProto, network: Network) -> list[str]:
    """Layers between products that the plain quantiser's network has not as the NPU has them: without a quantised
    result, or a linear Resize, the scale of which is no power of two."""
    made = {name for node in written.graph.node for name in node.output}
    found = []
    for layer in network.layers:
        inner = not layer.multiplies and all(network.readers.get(name) for name in layer.outputs)
        unlike = not all(f"{name}{MADE}" in made for name in layer.outputs)
        if (inner and unlike and layer.kind is not Kind.MOVE) or network.interpolates(layer.nodes[0]):
            found.append(layer.name)
    return found


def _extremes(model: onnx.ModelProto, samples: Samples, beside: Beside | None) -> dict[str, np.ndarray]:
    """Least and greatest value of every float tensor over all samples, float32[2]."""
    infos = [*model.graph.value_info, *model.graph.input, *model.graph.output]
    real = {x.name for x in infos if x.type.tensor_type.elem_type == TensorProto.FLOAT}
    real -= {x.name for x in model.graph.initializer}
    found: dict[str, np.ndarray] = {}

    def take(name: str, value: np.ndarray) -> None:
        if value.size:
            both = np.array([np.nanmin(value), np.nanmax(value)], np.float32)
            before = found.get(name, both)
            found[name] = np.array([np.fmin(before[0], both[0]), np.fmax(before[1], both[1])], np.float32)

    if beside is None:
        observe(model, samples, sorted(real), take)
    else:
        network, seen, progress = beside
        look_along(network, model, samples, sorted(real), seen, take, progress)
    return found


def _renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, changed in place: the value that a node writes and the dequantised one exchange names."""
    made = {name for node in model.graph.node for name in node.output}
    pairs = [name for name in made if f"{name}{READ}" in made]
    names = {name: f"{name}{MADE}" for name in pairs} | {f"{name}{READ}": name for name in pairs}
    for node in model.graph.node:
        for tensors in (node.input, node.output):
            for at, name in enumerate(tensors):
                tensors[at] = names.get(name, name)
    infos = [x for x in model.graph.value_info if x.name not in names]
    del model.graph.value_info[:]
    model.graph.value_info.extend(infos)
    return model
