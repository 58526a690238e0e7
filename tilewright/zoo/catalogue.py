"""The zoo's networks by name: build, quantise, keep."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import onnx

from tilewright import registry
from tilewright.common.installation import require
from tilewright.common.text import suggest
from tilewright.zoo.cache import cached
from tilewright.zoo.dense_prediction import autoencoder, segmentation
from tilewright.zoo.detection import detector
from tilewright.zoo.gated import efficientnet, squeeze_excite
from tilewright.zoo.llama import micro_llama, qwen3_0_6b, smollm2_135m, tinyllama
from tilewright.zoo.mobilenet import ds_cnn, mobilenet_v1, mobilenet_v2, vww
from tilewright.zoo.quantization import quantize
from tilewright.zoo.resnet import resnet8, resnet18, resnet50
from tilewright.zoo.segformer import segformer
from tilewright.zoo.transformer import bert, deit, quantise_bert, transformer


@dataclass(frozen=True, kw_only=True)
class ZooEntry:
    """One network of the zoo."""

    make: Callable[..., onnx.ModelProto]
    """Builds the float model; keyword parameters only."""
    small: Mapping[str, object] = field(default_factory=dict)
    """Parameters that make it small enough for quick tests."""
    quantise: Callable[..., onnx.ModelProto] | None = None
    """Quantises models whose inputs are no images. Takes the float model, the type of the activations, the number of
    calibration inputs and their seed; returns the model in QDQ form. None: see `zoo.quantization.quantize`."""

    @property
    def summary(self) -> str:
        """First line of the builder's docstring."""
        return (inspect.getdoc(self.make) or "").partition("\n")[0]

    @property
    def parameters(self) -> dict[str, object]:
        """Parameter names and their defaults."""
        return {name: p.default for name, p in inspect.signature(self.make).parameters.items()}


ZOO: dict[str, ZooEntry] = {
    "resnet18": ZooEntry(make=resnet18, small={"size": 32, "classes": 20}),
    "resnet50": ZooEntry(make=resnet50, small={"size": 32, "classes": 20}),
    "resnet8": ZooEntry(make=resnet8),
    "mobilenet_v1": ZooEntry(make=mobilenet_v1, small={"alpha": 0.25, "size": 64, "classes": 20}),
    "mobilenet_v2": ZooEntry(make=mobilenet_v2, small={"alpha": 0.35, "size": 64, "classes": 20}),
    "vww": ZooEntry(make=vww),
    "ds_cnn": ZooEntry(make=ds_cnn),
    "autoencoder": ZooEntry(make=autoencoder),
    "transformer": ZooEntry(
        make=transformer, small={"size": 32, "patch": 8, "width": 48, "heads": 3, "layers": 2, "classes": 20}
    ),
    "deit": ZooEntry(make=deit, small={"size": 32, "patch": 8, "width": 48, "layers": 2, "classes": 20}),
    "bert": ZooEntry(
        make=bert, quantise=quantise_bert, small={"tokens": 24, "width": 32, "layers": 2, "vocabulary": 100}
    ),
    "segformer": ZooEntry(make=segformer, small={"size": 64, "width": 16, "layers": 1, "joined": 32, "classes": 10}),
    "squeeze_excite": ZooEntry(make=squeeze_excite, small={"alpha": 0.5, "size": 64, "classes": 20}),
    "efficientnet": ZooEntry(make=efficientnet, small={"width": 0.5, "depth": 0.5, "size": 64, "classes": 20}),
    "detector": ZooEntry(make=detector, small={"size": 64, "width": 8, "classes": 5}),
    "segmentation": ZooEntry(make=segmentation, small={"size": 32, "width": 8}),
    "micro_llama": ZooEntry(
        make=micro_llama,
        quantise=registry.calling("quantise decoder"),
        small={"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "hidden": 48, "window": 16, "context": 64},
    ),
    "smollm2_135m": ZooEntry(
        make=smollm2_135m,
        quantise=registry.calling("quantise decoder"),
        small={"layers": 1, "window": 32, "context": 64, "vocabulary": 200},
    ),
    "tinyllama": ZooEntry(
        make=tinyllama,
        quantise=registry.calling("quantise decoder"),
        small={"layers": 1, "window": 16, "context": 32, "vocabulary": 200},
    ),
    "qwen3_0_6b": ZooEntry(
        make=qwen3_0_6b,
        quantise=registry.calling("quantise decoder"),
        small={"layers": 1, "window": 16, "context": 32, "vocabulary": 200},
    ),
}


def entry(name: str) -> ZooEntry:
    """The entry of that name; ValueError lists the names there are."""
    if name not in ZOO:
        raise ValueError(f"no network {name!r} in the zoo{suggest(name, ZOO)}; there are {', '.join(sorted(ZOO))}")
    return ZOO[name]


def build(name: str, *, cache: bool = True, **params: object) -> onnx.ModelProto:
    """The float model `name` with the given parameters (see `ZOO[name].parameters`), kept on disk by content."""
    found = entry(name)
    unknown = params.keys() - found.parameters.keys()
    if unknown:
        known, wrong = ", ".join(found.parameters), sorted(unknown)
        hint = suggest(wrong[0], found.parameters)
        raise ValueError(f"{name} has no parameter {', '.join(wrong)}{hint}; it has {known}")
    for parameter, value in params.items():
        accepted = _accepted(parameter, found.parameters[parameter], value)
        if accepted:
            raise ValueError(f"{name}: {parameter} must be {accepted}, not {value!r}")
    if not cache:
        return found.make(**params)
    key = json.dumps([name, found.parameters | params], sort_keys=True).encode()
    return cached(name, [key], lambda: found.make(**params))


def _accepted(key: str, default: object, value: object) -> str:
    """Values accepted for a parameter with this default, as text; "" if the value is one of them."""
    whole = lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= (0 if key == "seed" else 1)
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "True or False"
    if isinstance(default, str):
        return "" if isinstance(value, str) else "a word"
    if isinstance(default, float):
        number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
        return "" if number else "a number above 0"
    if key == "size":
        pair = isinstance(value, tuple | list) and len(value) == 2 and all(map(whole, value))
        return "" if pair or whole(value) else "a whole number from 1, or two of them: height,width"
    return "" if whole(value) else f"a whole number from {0 if key == 'seed' else 1}"


def build_quantized(
    name: str,
    *,
    form: str = "qdq",
    activation: str = "int8",
    per_channel: bool = True,
    calibration: int = 4,
    calibration_seed: int = 0,
    weights: str = "int8",
    cache: bool = True,
    network: Mapping[str, object] | None = None,
    **params: object,
) -> onnx.ModelProto:
    """`quantize(build(name, **params), ...)`, kept on disk by content.

    Args:
        network: more parameters of the network, such as its own `activation`.
    """
    onnxruntime = require("onnxruntime")

    model = build(name, cache=cache, **params, **(network or {}))
    options = {
        "form": form,
        "activation": activation,
        "per_channel": per_channel,
        "calibration": calibration,
        "seed": calibration_seed,
    }
    if weights != "int8":  # networks kept before there was a choice keep their place
        options["weights"] = weights

    own = entry(name).quantise
    if own is not None and (form != "qdq" or weights != "int8" or not per_channel):
        raise ValueError(f"{name} is quantised as qdq with int8 weights per channel only")

    def make() -> onnx.ModelProto:
        if own is not None:
            return own(model, activation=activation, calibration=calibration, seed=calibration_seed)
        return quantize(model, **options)  # type: ignore[arg-type]

    if not cache:
        return make()
    key = json.dumps([options, onnxruntime.__version__], sort_keys=True).encode()
    # Protobuf orders the fields of these messages deterministically: equal models have equal bytes.
    return cached(f"{name}-{form}-{activation}", [key, model.SerializeToString()], make)
