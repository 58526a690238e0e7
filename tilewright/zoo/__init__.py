"""Model zoo: well-known networks as ONNX with seeded weights, float or quantised.

`build("resnet18", size=224)` gives the float model, `build_quantized("resnet18", form="qdq")` the int8 one;
`ZOO` lists the networks and their parameters.
"""

from tilewright.zoo.catalogue import ZOO, ZooEntry, build, build_quantized
from tilewright.zoo.facts import count_macs, count_parameters, with_batch
from tilewright.zoo.quantization import quantize, random_inputs

__all__ = [
    "ZOO",
    "ZooEntry",
    "build",
    "build_quantized",
    "count_macs",
    "count_parameters",
    "quantize",
    "random_inputs",
    "with_batch",
]
