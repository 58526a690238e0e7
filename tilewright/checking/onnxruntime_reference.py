"""onnxruntime as the reference: final outputs, and intermediate tensors that are shown to be those of the same run.

Asking onnxruntime for an intermediate tensor can change how it fuses the graph, and with it the very values one wants
to see. So a session with added outputs is only believed if its final outputs equal the unmodified model's to the byte
and its optimised graph has the same ops, data movement aside; otherwise the list of tensors is halved until the
culprits are alone, and those are reported as not observable. Of the results of DynamicQuantizeLinear, which onnxruntime
fuses with the products behind them, it is enough that final outputs are equal but for rounding: a step more or less in
one of them would show as much more.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from tilewright.checking.saturation import int8_activations, saturates
from tilewright.checking.tolerance import Roundings, onnx_roundings
from tilewright.common import temporary
from tilewright.common.installation import require
from tilewright.compiler.onnx.external_data import read_model
from tilewright.compiler.onnx.onnx_graphs import all_nodes, reads_of, sort_model, subgraphs
from tilewright.compiler.onnx.onnx_ops import RANDOM
from tilewright.errors import UsageError
from tilewright.store.files import check_readable, is_mlir, is_tflite

if TYPE_CHECKING:
    from tilewright.checking.iree_reference import IreeReference
    from tilewright.checking.litert_reference import LiteRtReference

_SEVERITY_FATAL = 4  # errors are raised, too
NEAR = 1e-6
"""Error allowed to the fusion of scales and biases, relative to a tensor's largest magnitude."""
#: What an added output may change in the optimised graph: ops that compute nothing.
_MOVES = frozenset(
    ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "QuantizeLinear", "DequantizeLinear")
)


def load_model(model: str | Path | bytes | onnx.ModelProto) -> onnx.ModelProto:
    """The ONNX model; external data included. Raises `UsageError`."""
    if isinstance(model, onnx.ModelProto):
        return model
    try:
        if isinstance(model, bytes):
            return onnx.load_model_from_string(model)
        check_readable(model)
        return read_model(model)
    except UsageError:
        raise
    except Exception as error:
        where = "model" if isinstance(model, bytes) else str(model)
        raise UsageError(f"{where}: the reference cannot read it: {_first_line(error)}") from None


def _unrounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every MatMulNBits that allows coarser activations (`accuracy_level` above 1) computing in float32:
    how coarse is onnxruntime's choice, and differs between processors."""
    coarse = lambda a: a.name == "accuracy_level" and a.i > 1
    if not any(n.op_type == "MatMulNBits" and any(map(coarse, n.attribute)) for n in all_nodes(model.graph.node)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in all_nodes(copy.graph.node):
        for attribute in node.attribute if node.op_type == "MatMulNBits" else ():
            attribute.i = 1 if coarse(attribute) else attribute.i
    return copy


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


#: Why an integer may be off by a step where onnxruntime computes nothing in integers.
UNOPTIMISED = "onnxruntime runs this model without its graph optimisations only, in floats between quantised tensors"


class Reference:
    """A model in onnxruntime: default optimisation level, CPU provider, one thread, exact integer kernels.

    Where onnxruntime itself makes a graph of the model that it cannot run, the setting for exact kernels goes first, if
    the processor's own are exact: it breaks weights that two ops share. Else it runs the model as it is: without graph
    optimisations. The name says so.

    Args:
        model: what `tilewright.compile` takes.
        int8: run QDQ models with int8 activations as integers (`session.qdqisint8allowed`); by default where the
            model has such activations.

    Attributes:
        unoptimised: "", or why onnxruntime cannot run the graph it makes of the model; known after a run.
    """

    def __init__(self, model: str | Path | bytes | onnx.ModelProto, int8: bool | None = None) -> None:
        loaded = load_model(model)
        if loaded is model:
            loaded = onnx.ModelProto()
            loaded.CopyFrom(model)
        sort_model(loaded)
        self.proto = _unrounded(loaded)
        self.int8 = int8_activations(self.proto) if int8 is None else int8
        self._session: Any = None
        self._expected: list[np.ndarray] = []
        self._ops: Counter[str] | None = None
        self.unoptimised = ""
        self._exact_kernels = not self.int8

    @property
    def name(self) -> str:
        onnxruntime = require("onnxruntime")

        how = " without graph optimisations" if self.unoptimised else ""
        return f"onnxruntime {onnxruntime.__version__}{how}"

    @property
    def reason(self) -> str:
        """Why any integer may be off by a step, "" if none may: the reference computes in floats between them."""
        return UNOPTIMISED if self.unoptimised else ""

    def quantised_tensors(self) -> list[str]:
        """Names of the 8-bit tensors the model computes: results of (Dynamic)QuantizeLinear and of quantised ops."""
        constant = {i.name for i in self.proto.graph.initializer}
        names = []
        for node in self.proto.graph.node:
            if all(i in constant for i in node.input if i):
                constant.update(node.output)
                continue
            floats = node.op_type == "QGemm" and len(node.input) <= 8  # one without an output scale
            kinds = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinear", "QGemm")
            if node.op_type.startswith(kinds) and not floats:
                names.append(node.output[0])
        return names

    @functools.cached_property
    def _dynamic(self) -> set[str]:
        """Bytes quantised with a scale that is known only when the model runs. To look at them ends the fusion of what
        follows, which rounds floats elsewhere; another integer would show in the outputs as much more than that."""
        nodes = all_nodes(self.proto.graph.node)
        return {node.output[0] for node in nodes if node.op_type == "DynamicQuantizeLinear"}

    def rounded_twice(self, name: str) -> float:
        """The share of a tensor's elements that a second rounding may change: onnxruntime rounds once."""
        return 0.0

    def floats_of(self, name: str) -> list[str]:
        """The float tensors a quantised tensor is rounded from, nearest first: also those before a Relu or Clip."""
        producers = {o: node for node in self.proto.graph.node for o in node.output if o}
        found: list[str] = []
        node = producers.get(name)
        while node is not None and node.op_type in (("Relu", "Clip") if found else ("QuantizeLinear",)):
            found.append(node.input[0])
            node = producers.get(node.input[0])
        return found

    def floats_only(self) -> bool:
        """Whether no operator of the model quantises or computes with quantised integers."""
        ops = {node.op_type for node in all_nodes(self.proto.graph.node)}
        return not any(word in op for op in ops for word in ("Quant", "QLinear", "Integer"))

    def roundings(self) -> Roundings:
        """The float roundings of the model."""
        return onnx_roundings(self.proto)

    def downstream(self, sources: Mapping[str, str]) -> dict[str, list[str]]:
        """Maps every tensor that depends on one of `sources` to the sources it depends on, itself included."""
        return downstream(self.proto, sources)

    def session(self, proto: onnx.ModelProto, optimised: Path | None = None) -> Any:
        """A session as the contract of the numerics wants it.

        Args:
            optimised: its graph after optimisation goes there, and it keeps no memory for further runs.
        """
        onnxruntime = require("onnxruntime")

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = _SEVERITY_FATAL
        if optimised is not None:  # one that runs once: memory goes back at once
            options.enable_cpu_mem_arena = False
            options.enable_mem_pattern = False
        if self.int8:
            options.add_session_config_entry("session.qdqisint8allowed", "1")
        elif self._exact_kernels:
            # uint8 activations: without it sums of pairs saturate in 16 bits on x86 processors that have no VNNI
            options.add_session_config_entry("session.x64quantprecision", "1")
        # By default it rounds the activations of products with 4-bit weights to 8 bits, which the model does not say.
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        if self.unoptimised:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if optimised is not None:
            options.optimized_model_filepath = str(optimised)
        return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def feeds(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The values that sessions are given for inputs of the model."""
        return dict(inputs)

    def release(self) -> None:
        """Frees the session's memory; the next run makes another."""
        self._session = None

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The model's outputs by name. Raises `UsageError` if onnxruntime cannot run it."""
        try:
            self._run(inputs)
        except Exception as error:
            if self.unoptimised or not self._retry(inputs, _first_line(error)):
                raise UsageError(f"{self.name} cannot run the model: {_first_line(error)}") from None
        return {o.name: v for o, v in zip(self._session.get_outputs(), self._expected)}

    def _run(self, inputs: Mapping[str, np.ndarray]) -> None:
        if self._session is None:
            self._session = self.session(self.proto)
        self._expected = self._session.run(None, self.feeds(inputs))

    def _retry(self, inputs: Mapping[str, np.ndarray], why: str) -> bool:
        """Whether the model runs without the setting for exact kernels, or without graph optimisations."""
        exact_kernels = self._exact_kernels
        ways = [(False, "")] if exact_kernels and not saturates() else []
        for self._exact_kernels, self.unoptimised in (*ways, (exact_kernels, why)):
            self._session = None
            try:
                self._run(inputs)
                return True
            except Exception:  # the next way, or the error of the first
                continue
        self._session, self.unoptimised = None, ""
        return False

    def intermediates(
        self, names: Sequence[str], inputs: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """Values of tensors inside the model.

        Returns:
            Values by name, and for every tensor without one the reason.
        """
        outputs = self.run(inputs)
        values = {n: inputs[n] for n in names if n in inputs} | {n: outputs[n] for n in names if n in outputs}
        made = {o for node in self.proto.graph.node for o in node.output if o}
        missing = {n: "not a tensor of the model" for n in names if n not in made and n not in values}
        self._observe([n for n in names if n in made and n not in values], inputs, values, missing)
        return values, missing

    def _with_ops(self, proto: onnx.ModelProto) -> tuple[Any, Counter[str]]:
        """A session and the ops it really runs."""
        with temporary.Folder(prefix="tilewright-reference-") as folder:
            path = Path(folder) / "optimised.onnx"
            session = self.session(proto, path)
            nodes = onnx.load(str(path), load_external_data=False).graph.node
        return session, Counter(n.op_type for n in nodes if n.op_type not in _MOVES)

    def _observe(
        self, names: list[str], inputs: Mapping[str, np.ndarray], values: dict[str, np.ndarray], missing: dict[str, str]
    ) -> None:
        if not names:
            return
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
        self.release()  # two sessions at a time take much memory
        try:
            session, ops = self._with_ops(proto)
            found = session.run(None, self.feeds(inputs))
            del session
            why = "observing it changes what the reference computes"
        except Exception as error:
            found, ops, why = None, None, f"onnxruntime does not give it: {_first_line(error)}"
        count = len(self._expected)
        if self._ops is None:
            self._ops = self._with_ops(self.proto)[1]
        if found is not None and (
            (ops == self._ops and all(same_bytes(a, b) for a, b in zip(found[:count], self._expected)))
            or (self._dynamic.issuperset(names) and all(near(a, b) for a, b in zip(found[:count], self._expected)))
        ):
            values.update(zip(names, found[count:]))
        elif len(names) == 1:
            missing[names[0]] = why
        else:
            self._observe(names[: len(names) // 2], inputs, values, missing)
            self._observe(names[len(names) // 2 :], inputs, values, missing)


def reference_of(model: str | Path | bytes | onnx.ModelProto) -> Reference | LiteRtReference | IreeReference:
    """The reference runtime of a model: LiteRT for TFLite, IREE for TOSA, else onnxruntime."""
    if is_mlir(model):
        assert isinstance(model, str | Path | bytes)
        from tilewright.checking.iree_reference import IreeReference  # the importer of TOSA

        return IreeReference(model)
    if is_tflite(model):
        assert not isinstance(model, onnx.ModelProto)
        from tilewright.checking.litert_reference import LiteRtReference  # the importer of TFLite

        return LiteRtReference(model, float_weights=True)
    return Reference(model)


def near(a: np.ndarray, b: np.ndarray) -> bool:
    """True for tensors of the same type and shape whose floats are equal but for rounding."""
    if a.dtype.kind != "f" or a.dtype != b.dtype or a.shape != b.shape:
        return same_bytes(a, b)
    largest = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
    return bool(np.allclose(a, b, rtol=0, atol=NEAR * largest, equal_nan=True))


def same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    """True for tensors of the same type, shape and bytes."""
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(_bytes(a), _bytes(b))


def _bytes(a: np.ndarray) -> np.ndarray:
    if a.dtype == object:
        return np.array([str(x) for x in a.reshape(-1)])
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8)


def downstream(proto: onnx.ModelProto, sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Maps every tensor of the model that depends on one of `sources` to the sources it depends on, itself included.

    Nodes that compute the same of the same stand for each other: the compiler keeps one of them, so that what reads
    the other one depends on it, too.
    """
    same = _equal_tensors(proto)
    found: dict[str, dict[str, None]] = {}
    for name in sources:
        found.setdefault(same.get(name, name), {})[name] = None
    own = {name: dict(some) for name, some in found.items()}
    for node in proto.graph.node:
        merged: dict[str, None] = {}
        for name in reads_of([node]):
            merged |= found.get(same.get(name, name), {})
        for name in node.output:
            if name and merged:
                found[same.get(name, name)] = merged | own.get(same.get(name, name), {})
    made = {name: same.get(name, name) for name in (*sources, *(n for node in proto.graph.node for n in node.output))}
    return {name: list(found[first]) for name, first in made.items() if first in found}


def _equal_tensors(proto: onnx.ModelProto) -> dict[str, str]:
    """Maps every constant, and every result of a node, that repeats an earlier one to the name of that one."""
    same: dict[str, str] = {}
    seen: dict[object, Sequence[str]] = {}
    for value in proto.graph.initializer:
        plain = onnx.TensorProto()
        plain.CopyFrom(value)
        plain.ClearField("name")
        content = hashlib.sha256(plain.SerializeToString(deterministic=True)).digest()
        same[value.name] = seen.setdefault(content, [value.name])[0]
    for node in proto.graph.node:
        if node.op_type in RANDOM or subgraphs(node):
            continue
        attributes = sorted(a.SerializeToString(deterministic=True) for a in node.attribute)
        inputs = tuple(same.get(name, name) for name in node.input)
        key = (node.domain, node.op_type, inputs, tuple(attributes), len(node.output))
        same.update(zip(node.output, seen.setdefault(key, node.output), strict=True))
    return same
