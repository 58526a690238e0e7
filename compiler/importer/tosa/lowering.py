"""Other dialects of MLIR: the tool that lowers each of them to TOSA."""

from __future__ import annotations

_TOOLS = {
    "stablehlo": "stablehlo-opt --stablehlo-legalize-to-tosa makes TOSA of it",
    "mhlo": "convert it to StableHLO, then stablehlo-opt --stablehlo-legalize-to-tosa",
    "vhlo": "stablehlo-translate --deserialize makes StableHLO of it, then stablehlo-opt --stablehlo-legalize-to-tosa",
    "func": "mlir-opt --inline puts the function in place of its call",
    "chlo": "stablehlo-opt --chlo-legalize-to-stablehlo --stablehlo-legalize-to-tosa makes TOSA of it",
    "torch": "torch-mlir-opt --torch-backend-to-tosa-backend-pipeline makes TOSA of it",
    "torch_c": "torch-mlir-opt --torch-backend-to-tosa-backend-pipeline makes TOSA of it",
    "tfl": "tf-opt --tfl-to-tosa-pipeline makes TOSA of it; or give the .tflite file itself",
    "tf": "tf-opt --tf-to-tosa-pipeline makes TOSA of it",
    "onnx": "onnx-mlir-opt --convert-onnx-to-tosa makes TOSA of it; or give the .onnx file itself",
    "tilewright": "Tilewright wrote it; compare with IREE or onnxruntime the model that it was written from",
    "quant": "tf-opt --tosa-convert-tfl-uint8 --tosa-strip-quant-types makes TOSA 1.0 of it",
}
_BELOW = (
    "linalg",
    "memref",
    "scf",
    "arith",
    "affine",
    "vector",
    "gpu",
    "llvm",
    "tensor",
    "cf",
    "bufferization",
    "math",
)


def advice(dialect: str) -> str:
    """Advice about operations of another dialect, for an error."""
    if dialect in _TOOLS:
        return _TOOLS[dialect]
    if dialect in _BELOW:
        return 'it is what TOSA is lowered to; export the model before that step (torch-mlir: output_type="tosa")'
    return "a module of TOSA operations is accepted; torch-mlir, stablehlo-opt and tf-opt write it"
