"""Quantises float models after training: int8 weights and activations in QDQ form.

>>> import tilewright as tw
>>> result = tw.quantize("float.onnx", "photos/")
>>> result.save("int8.onnx")

`tilewright.quantize` is this package, and calling it calls `quantize` in it. Its names are imported on first use: onnx
and onnxruntime take a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright.api.callable_module import make_callable

if TYPE_CHECKING:
    from tilewright.quantize.accuracy import Accuracy
    from tilewright.quantize.image_samples import ImageOptions
    from tilewright.quantize.model import Quantized, quantize, quantize_onnx
    from tilewright.quantize.tflite import QuantizedTflite, quantize_tflite

_HOMES = {
    "Accuracy": "accuracy",
    "ImageOptions": "image_samples",
    "Quantized": "model",
    "QuantizedTflite": "tflite",
    "quantize": "model",
    "quantize_onnx": "model",
    "quantize_tflite": "tflite",
}

__all__ = [
    "Accuracy",
    "ImageOptions",
    "Quantized",
    "QuantizedTflite",
    "quantize",
    "quantize_onnx",
    "quantize_tflite",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A name of `_HOMES`."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found


make_callable(__name__)
