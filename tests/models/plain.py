"""onnxruntime's plain quantiser: what `tilewright quantize` is compared with.

python -m tests.models.plain FLOAT SAMPLES RESULT     FLOAT.onnx by the .npz files in SAMPLES: QDQ, int8, per channel
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from tilewright.quantize.opset import upgrade


class _Samples(CalibrationDataReader):
    """The samples one after the other."""

    def __init__(self, folder: Path) -> None:
        self._left = iter(sorted(folder.glob("*.npz")))

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next sample, None behind the last one."""
        path = next(self._left, None)
        return None if path is None else dict(np.load(path))


def main(path: Path, samples: Path, result: Path) -> None:
    """Quantises a model whose inputs get the sizes of the first sample, in an operator set with scales per channel."""
    model = upgrade(onnx.load(path))
    for name, value in dict(np.load(sorted(samples.glob("*.npz"))[0])).items():
        kind = next(x for x in model.graph.input if x.name == name).type.tensor_type
        kind.shape.CopyFrom(onnx.TensorShapeProto(dim=[{"dim_value": size} for size in value.shape]))
    prepared = result.with_suffix(".prepared.onnx")
    onnx.save(model, prepared)
    quant_pre_process(prepared, prepared, skip_symbolic_shape=True)
    quantize_static(
        prepared, result, _Samples(samples), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
