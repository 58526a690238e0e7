"""Notes for the user about a whole program, beside the reasons of single nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from tilewright.compiler.graph.ops.wide import QConv16, Wide
from tilewright.compiler.graph.quantization import AS_LITERT, is_activation
from tilewright.compiler.graph.states import SCATTERS
from tilewright.compiler.stages.note_forms import CONSTANT_CHANNELS, SIXTEEN_BITS, UNUSED, notes_of

if TYPE_CHECKING:
    from tilewright.compiler.graph.graph import DroppedChannels, Graph, Node
    from tilewright.isa.config import NpuConfig
    from tilewright.isa.program import Layer

_DYNAMIC = "DynamicQuantize"
_PRODUCTS = ("MatMulInteger", "ConvInteger", "DynamicQuantizedLSTM", "IntegerLSTM")
_ON_CPU = "on the CPU, in the integers of LiteRT's reference kernels"
_WITH_UNIT = "With `wide_results` in its configuration the NPU makes the convolutions among them"
_NO_INTEGERS = {
    "Div": "a quotient of two tensors has 65,536 values, tables of the NPU 256, and it divides only by one number for "
    "each row",
    "CumSum": "onnxruntime rounds every one of its float sums before it adds the next, which decides ties; the NPU's "
    "sums are exact and are rounded once",
    "ArgMax": "its results are places of 64 bits, those of the NPU are bytes",
}
_NO_INTEGERS["ArgMin"] = _NO_INTEGERS["ArgMax"]
_IN_FILE = "the file has it in floats, between DEQUANTIZE and QUANTIZE"
_MOVED = ("Concat", "Expand", "Gather", "GatherElements", "GatherND", "Pad", "Reshape", "Slice", "Split", "Tile",
          "Transpose", *SCATTERS)  # fmt: skip
"""Ops that stand between DequantizeLinear and QuantizeLinear only where onnxruntime keeps them in floats."""
_QUANTISE = "`tilewright quantize` makes an 8-bit model of a float one, from samples of its inputs"


def notes_on(graph: Graph, layers: list[Layer], config: NpuConfig, cpu_only: bool) -> list[str]:
    """The notes about a program of this graph: channels that are not computed, 16-bit activations, and
    why the NPU has nothing to do.
    """
    wide = [
        name for node in graph.nodes if node.op == "QuantizeLinear"
        for name in node.outputs if graph.tensor(name).dtype.name in ("int16", "uint16")
    ]  # fmt: skip
    found = []
    if graph.dropped is not None:
        found.append(f"{CONSTANT_CHANNELS}{_dropped(graph.dropped)}")
    sixteen = [node for node in graph.nodes if isinstance(node.quantized, Wide)]
    if sixteen:
        found.append(f"{SIXTEEN_BITS}{_sixteen(sixteen, layers, config)}")
    if wide:
        found.append(
            f"{SIXTEEN_BITS}{len(wide)} tensors (the first is {wide[0]!r}); the NPU computes with 8 bits, so what "
            "makes and reads them is compiled for the CPU, in floats as onnxruntime runs it. Sums of floats round in "
            "an order of their own, so such a tensor may differ from onnxruntime's by single steps"
        )
    if not cpu_only:
        singles = _interpolations(graph) | _by_channel(graph) | _of_passes(graph)
        found += notes_of(singles | _floats(graph, singles))
    products = [node for node in graph.nodes if node.op in _PRODUCTS]
    if products and not cpu_only:
        found.append(f"{_counted(products)} run on the CPU: {_why_not_products(graph, config)}")
    if any(layer.where != "cpu" for layer in layers) or not any(layer.macs for layer in layers):
        return found
    return [*found, UNUSED + _why_unused(graph, config, bool(wide or sixteen), cpu_only)]


def _dropped(channels: DroppedChannels) -> str:
    """Returns a note on channels that are not computed."""
    unread = f" and {channels.unread:,} not read" if channels.unread else ""
    share = 1 - channels.macs / max(channels.macs_before, 1)
    return (
        f"{channels.constant:,} of {channels.channels:,} channels are constant{unread}: "
        f"{100 * share:.0f} % of the MACs dropped"
    )


def _sixteen(nodes: list[Node], layers: list[Layer], config: NpuConfig) -> str:
    """Returns notes on where the products of 16-bit activations run, and why."""
    what = f"{_counted(nodes)} multiply them with 8-bit weights (the first makes {nodes[0].outputs[0]!r}); "
    on_npu = sum(layer.where == "npu" and layer.op == QConv16.__name__ for layer in layers)
    if on_npu:
        return f"{what}{on_npu} of them run on the NPU, in twice the steps of bytes, and all else {_ON_CPU}"
    if config.wide_results:
        return f"{what}they and what is between them run {_ON_CPU}"
    return f"{what}every sum leaves this NPU as 8 bits, so they and what is between them run {_ON_CPU}. {_WITH_UNIT}"


def _sums(config: NpuConfig) -> str:
    """Why results of 16 bits are not left to the NPU."""
    if config.wide_results:
        return "the NPU rounds sums to 16 bits as the convolutions of 16-bit activations do, and in no other way"
    return "every sum of the NPU leaves it as 8 bits"


def _interpolations(graph: Graph) -> dict[str, str]:
    """Why a linear Resize between quantised tensors stays on the CPU, by its name."""
    makers = graph.producers()
    found = {}
    for node in graph.nodes:
        before = makers.get(node.inputs[0]) if node.op == "Resize" else None
        if before is None or before.op != "DequantizeLinear" or node.attrs.get("mode") != "linear":
            continue
        found[node.name or node.outputs[0]] = (
            f"a linear {node.op} is the same in the NPU's integers where its scale is a power of two, stays, and rows "
            "and columns become 2, 4 or 8 times as many; else the rounding of floats decides many ties"
        )
    return found


def _by_channel(graph: Graph) -> dict[str, str]:
    """Why a function of one quantised tensor and several constants stays on the CPU, by its name."""
    makers, readers = graph.producers(), graph.consumers()
    found = {}
    for node in graph.nodes:
        if node.op not in ("Add", "Sub", "Mul", "Div", "PRelu") or len(node.inputs) != 2:
            continue
        tensors = [name for name in node.inputs if not graph.tensor(name).is_const]
        constants = [name for name in node.inputs if graph.tensor(name).is_const and graph.tensor(name).size > 1]
        if len(tensors) != 1 or not constants or tensors[0] not in makers:
            continue
        after = readers.get(node.outputs[0], [])
        if makers[tensors[0]].op == "DequantizeLinear" and _quantised(after) and not _in_file(after):
            found[node.name or node.outputs[0]] = (
                f"{node.op} with several constants is the NPU's between its layers, where a scale for each channel of "
                "planes gives the model's bytes for every value"
            )
    return found


def _of_passes(graph: Graph) -> dict[str, str]:
    """Reasons of passes for ops that they leave in floats, by name of the op."""
    found = {}
    for node in graph.nodes if graph.floats else ():
        reason = next((graph.floats[name] for name in node.origin if name in graph.floats), "")
        if reason and node.quantized is None:
            found[node.name or node.outputs[0]] = reason
    return found


def _floats(graph: Graph, known: Container[str]) -> dict[str, str]:
    """Why any other op that reads quantised tensors alone stays on the CPU: what makes no quantised one is left out,
    but for places."""
    makers, readers = graph.producers(), graph.consumers()
    found = {}
    for node in graph.nodes:
        name = node.name or node.outputs[0]
        if node.quantized is not None or node.op in ("DequantizeLinear", *_MOVED) or name in known:
            continue
        tensors = [graph.tensor(n) for n in node.inputs if n and not graph.tensor(n).is_const]
        before = [makers[t.name].op if t.name in makers else "" for t in tensors]
        after = [reader for output in node.outputs for reader in _behind(readers, output)]
        places = node.op in ("ArgMax", "ArgMin") and all(is_activation(t) for t in tensors)
        if places or (set(before) == {"DequantizeLinear"} and _quantised(after)):
            none = "no rule is known by which integers give its bytes, so it is computed in floats as by onnxruntime"
            found[name] = _IN_FILE if _in_file(after) else _NO_INTEGERS.get(node.op, none)
    return found


def _quantised(readers: list[Node]) -> bool:
    return {reader.op for reader in readers} == {"QuantizeLinear"}


def _in_file(readers: list[Node]) -> bool:
    """True if a TFLite file quantises the floats that these nodes read."""
    return any(reader.attrs.get(AS_LITERT) for reader in readers)


def _behind(readers: Mapping[str, list[Node]], name: str) -> list[Node]:
    """The nodes that read a tensor, be it through Relu and Clip, which become a clamp of the integers."""
    found = []
    for reader in readers.get(name, []):
        found += _behind(readers, reader.outputs[0]) if reader.op in ("Relu", "Clip") else [reader]
    return found


def _counted(nodes: list[Node]) -> str:
    counts = Counter(node.op for node in nodes)
    return ", ".join(f"{n} {op}" for op, n in counts.items())


def _why_not_products(graph: Graph, config: NpuConfig) -> str:
    """Why sums of 8-bit products are not left to the array."""
    if any(node.op.startswith(_DYNAMIC) for node in graph.nodes):
        return (
            "their factors are found while the model runs. The NPU has the factors of its sums in the program and "
            "hands on bytes; no instruction hands on the sums themselves"
        )
    return f"results of 16 bits or more (the gates of an LSTM) are asked for, and {_sums(config)}, rounded once"


def _why_unused(graph: Graph, config: NpuConfig, wide: bool, cpu_only: bool) -> str:
    if cpu_only:
        return "it is left out"
    if wide:
        return f"the activations have 16 bits; quantise the float model with 8-bit activations. {_QUANTISE}"
    dynamic = next((node.op for node in graph.nodes if node.op.startswith(_DYNAMIC)), "")
    if not dynamic and any(node.op in _PRODUCTS for node in graph.nodes):
        return _why_not_products(graph, config)
    if dynamic:
        return (
            f"the model is quantised while it runs ({dynamic}), and the NPU needs scales that are known before. "
            f"Quantise the float model instead: {_QUANTISE}"
        )
    bytes_ = any(t.dtype.name in ("int8", "uint8") and t.quant is not None and not t.is_const
                 for t in graph.tensors.values())  # fmt: skip
    if bytes_:
        return "no multiplying operator could be placed there; the notes on single nodes say why"
    return f"the model computes in floats, and the NPU multiplies 8-bit integers. {_QUANTISE}"
