"""Model files of others, told by their first bytes, and how a network in one of them becomes ONNX or TFLite."""

from __future__ import annotations

_TORCH = "a PyTorch file; `tilewright.from_torch` takes a module or TorchScript, torch.onnx.export writes ONNX"
_KERAS = "a Keras model; tf.lite.TFLiteConverter writes TFLite, tf2onnx ONNX"
_WEIGHTS = "{} has weights without a network; export the model as ONNX (optimum, torch.onnx.export)"


def foreign_format(data: bytes) -> str:
    """The format of a file that is not ONNX, and what writes ONNX or TFLite of it; "" for bytes that are not known."""
    start = data[:4096]
    if start[4:8] == b"ORTM":
        return "a model in onnxruntime's own format; give the ONNX file that it was made from"
    if start.startswith(b"GGUF"):
        return _WEIGHTS.format("a GGUF file")
    if start[8:10] == b'{"' and int.from_bytes(start[:8], "little") < len(data):
        return _WEIGHTS.format("a safetensors file")
    if start.startswith(b"\x89HDF"):
        return _KERAS
    if start.startswith(b"PK\3\4"):
        return _KERAS if b"config.json" in data or b"metadata.json" in start else _TORCH
    if start.startswith(b"\x80\x02"):
        return _TORCH  # a pickle, as PyTorch wrote it before 1.6
    if start.lstrip().startswith(b"<?xml") and b"<net" in start:
        return "a network of OpenVINO; give the ONNX or TFLite file that it was made from"
    return ""
