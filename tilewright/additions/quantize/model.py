"""`quantize`: a float model to a quantised one, with what decided it and what running it showed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from tilewright.common.options import collect, keywords
from tilewright.common.shown import Shown, listed
from tilewright.errors import UsageError
from tilewright.quantize import halves, recurrent, sqnr, verify, whole
from tilewright.quantize.accuracy import MOST_FLOATS, Accuracy, tune
from tilewright.quantize.batch import sentence, write_batch
from tilewright.quantize.decision import Decision
from tilewright.quantize.finite import require_single
from tilewright.quantize.layers import Kind, Network
from tilewright.quantize.masks import add_masks
from tilewright.quantize.memory import trim_heap
from tilewright.quantize.metric import Comparison, compare, read_labels, task_of
from tilewright.quantize.model_inputs import inputs_of
from tilewright.quantize.observe import runner
from tilewright.quantize.options import QuantizeOptions
from tilewright.quantize.plain import Plain
from tilewright.quantize.precision import of_kind
from tilewright.quantize.prepare import fix, infer_shapes, read, require_products, require_same, rewrite, tidy
from tilewright.quantize.qoperator import write_qoperator
from tilewright.quantize.ranges import Seen
from tilewright.quantize.recipe import Recipe
from tilewright.quantize.rounding import LIMIT, LIMIT_OF_4_BITS
from tilewright.quantize.samples import Data, samples_of, split
from tilewright.quantize.writing import write
from tilewright.store.files import is_tflite, write_bytes

if TYPE_CHECKING:
    from tilewright.quantize.tflite import QuantizedTflite


@dataclass(frozen=True, repr=False)
class Quantized(Shown):
    """A quantised model, and how it came about.

    Attributes:
        model: the result.
        recipe: what decided it; its `model` is the prepared float model.
        verified: what running it showed; None if that was not asked for.
        comparison: the metric before and after; None if that was not asked for.
        noise: SQNR of layers and outputs on the samples held back; None if the model is not run.
        target: dB that each output was to reach; None if there was no target.
        decision: the quantisations that were compared; None only of results made by hand.
        batches: size of the batch, by input, where the float model leaves it open: that of the samples, which the
            result has fixed.
        notes: what else a user should know.
        form: "qdq" or "qoperator".
    """

    model: onnx.ModelProto
    recipe: Recipe
    verified: verify.Verified | None = None
    comparison: Comparison | None = None
    noise: sqnr.Report | None = None
    target: float | None = None
    decision: Decision | None = None
    batches: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    form: str = "qdq"

    def serialized(self) -> bytes:
        """The file."""
        return bytes(self.model.SerializeToString())

    def save(self, path: str | Path) -> None:
        """Writes the file."""
        write_bytes(Path(path), self.serialized())

    def facts(self) -> dict[str, Any]:
        """Returns facts about the model, for `repr` and notebooks."""
        found: dict[str, Any] = {"model": self.model.graph.name, "form": self.form}
        found |= {"activation": self.recipe.activation, "nodes": len(self.model.graph.node)}
        if self.verified is not None:
            found["check"] = self.verified.report.summary()
        if self.noise is not None:
            found["sqnr_db"] = listed(f"{name} {decibels:.1f}" for name, decibels in self.noise.outputs.items())
        return found | ({"notes": listed(self.notes)} if self.notes else {})

    def to_dict(self) -> dict[str, Any]:
        """Returns facts for JSON, as `tilewright quantize --json` prints them."""
        nodes = self.model.graph.node
        found: dict[str, Any] = {
            "bytes": len(self.serialized()),
            "activation": self.recipe.activation,
            "form": self.form,
            "quantize_nodes": sum(n.op_type == "QuantizeLinear" or n.op_type.startswith("QLinear") for n in nodes),
        }
        if self.batches:
            found |= {"batches": dict(self.batches), "notes": list(self.notes)}
        if self.verified is not None:
            found["verified"] = self.verified.to_dict()
        if self.comparison is not None:
            found["check"] = asdict(self.comparison)
        if self.noise is not None:
            found["sqnr"] = self.noise.to_dict() | {"target": self.target, "missed": self.missed}
        if self.decision is not None:
            found["decision"] = self.decision.to_dict()
        return found

    @property
    def missed(self) -> list[str]:
        """The outputs that did not reach the target on the samples held back."""
        if self.noise is None or self.target is None:
            return []
        return [name for name, decibels in self.noise.outputs.items() if decibels < self.target]

    def lines(self) -> list[str]:
        """Returns the lines that the command prints."""
        found = [f"note: {note}" for note in self.notes]
        if self.verified is not None:
            found.append(str(self.verified))
        if self.comparison is not None:
            found.append(str(self.comparison))
        if self.noise is not None:
            found.append(str(self.noise))
        if self.missed:
            pays = self.decision is not None and self.decision.pays
            how = f"up to {MOST_FLOATS:.0%} of the MACs stay in floats, where it pays; --target and --best keep more"
            if not pays:
                how = "give more samples of the kind the model is used on, or keep what loses most with --keep-float"
            why = f" ({self.noise.losses})" if self.noise is not None and self.noise.losses else ""
            goal = f"the target of {self.target:g} dB{why}"
            found.append(f"warning: {', '.join(self.missed)} did not reach {goal}: {how}")
        if self.decision is not None:
            found.append(str(self.decision))
        return found


@keywords(QuantizeOptions)
def quantize_onnx(model: str | Path | onnx.ModelProto, data: Data, **options: Any) -> Quantized:
    """Quantises a float ONNX model.

    Args:
        model: file or ModelProto (left unchanged).
        data: calibration data; see `samples.samples_of`.
        options: fields of `QuantizeOptions`.

    Raises:
        UsageError: the model or the data cannot be used, or the model makes no finite numbers of a sample; one line
            that says what to do.
    """
    o = collect(QuantizeOptions, options, "quantize_onnx")
    given = fix(read(model), o.shapes, o.values)
    kind = require_single(given)
    if kind != "float32":
        halves.widen(given)
    inputs_of(given)
    prepared = rewrite(given)
    trim_heap()
    samples = samples_of(data, inputs_of(prepared), o.images, o.values or ())
    lengths = recurrent.lengths(prepared, samples)
    if lengths:
        fixed = fix(given, lengths)
        again = rewrite(fixed)
        if recurrent.few_steps(again):
            given, prepared = fixed, again
        else:
            lengths = {}
    calibration, held = split(samples, o.held_back)
    plain = Plain(prepared) if o.form == "qdq" and not o.whole else None  # it does not know these
    trim_heap()
    prepared = tidy(prepared)
    trim_heap()
    require_same(given, prepared, held[0])
    if o.whole:
        whole.mark(prepared)
        add_masks(prepared)
        prepared = infer_shapes(prepared)
    known = read_labels(Path(o.labels), len(samples)) if o.labels is not None else None

    before = runner(given) if o.metric is not None else None
    require_products(Network(prepared))
    limit = LIMIT_OF_4_BITS if o.weights == "int4" else LIMIT
    recipe = Recipe(prepared, activation=o.activation, per_channel=o.per_channel, limit=limit)
    shapes = {name: value.shape for name, value in held[0].items()}
    wanted = o.accuracy or Accuracy()
    if o.form == "qoperator":  # onnxruntime's quantiser rounds the weights there, and knows no recurrent steps
        wanted = replace(wanted, fit=False)
        recipe = recipe.with_precision(of_kind(recipe, Kind.RECURRENT))
    del given, prepared  # memory: large models stand here several times
    seen = Seen()
    beside = recipe.network, seen, o.progress
    made = None if plain is None else plain.network(samples, o.activation, o.per_channel, beside)
    trim_heap()
    task = task_of(o.metric, known, calibration)
    decision = tune(recipe, calibration, wanted, o.progress, task, samples, made, seen)
    recipe = decision.chosen.measured.recipe

    written = write(recipe) if o.form == "qdq" else write_qoperator(recipe)
    whole.unmark(written)
    batches = write_batch(written, samples)
    said = (halves.note(kind) if kind != "float32" else "", recurrent.sentence(lengths) if lengths else "")
    notes = tuple(filter(None, (*said, sentence(batches, shapes) if batches else "")))
    verified = verify.verify(written, held[0], o.progress) if o.check else None
    noise = sqnr.measure(recipe, written, held, o.progress) if o.check else None
    comparison = None
    if o.metric is not None and before is not None:
        comparison = compare(o.metric, before, runner(written), held, known, o.progress)
    return Quantized(written, recipe, verified, comparison, noise, wanted.target, decision, batches, notes, o.form)


@keywords(QuantizeOptions)
def quantize_as_onnx(raw: bytes, data: Data, **options: Any) -> Quantized:
    """Quantises a float TFLite model, given as the bytes of its file, as an ONNX model.

    Args:
        data, options: as for `quantize_onnx`.

    Raises:
        CompileError, UsageError: see `tflite_floats.as_onnx` and `quantize_onnx`.
    """
    from tilewright.quantize.tflite import float_model
    from tilewright.quantize.tflite_floats import as_onnx, require_same

    o = collect(QuantizeOptions, options, "quantize_as_onnx")
    float_model(raw)
    made = as_onnx(raw, o.shapes)
    require_same(raw, made, samples_of(data, inputs_of(made), o.images)[0])
    return quantize_onnx(made, data, **options)


@keywords(QuantizeOptions)
def quantize(model: str | Path | bytes | onnx.ModelProto, data: Data, **options: Any) -> Quantized | QuantizedTflite:
    """Quantises a float ONNX or TFLite model to 8 bits, as `tilewright quantize` does.

    Args:
        model: ONNX or TFLite file, the bytes of a TFLite file, or a ModelProto (left unchanged).
        data: calibration data: a file or folder of samples or images, an array (models of one input) or arrays by
            name, whose first axes count samples, or the inputs of single runs; see `samples.samples_of`.
        options: fields of `tilewright.quantize.options.QuantizeOptions`, such as `held_back`, `metric` or `accuracy`.

    Returns:
        The model, and how it came about: `save(path)`, `serialized()`, `to_dict()`.

    Raises:
        UsageError: the model or the data cannot be used; one line that says what to do.
    """
    is_file = isinstance(model, str | Path) and Path(model).is_file()
    if not isinstance(model, onnx.ModelProto) and (is_file or isinstance(model, bytes)) and is_tflite(model):
        from tilewright.quantize.tflite import quantize_tflite, read_bytes  # the compiler: not needed for ONNX models

        if not options.get("as_onnx"):
            return quantize_tflite(model, data, **options)
        return quantize_as_onnx(model if isinstance(model, bytes) else read_bytes(Path(model)), data, **options)
    if isinstance(model, bytes):
        raise UsageError("bytes must be those of a TFLite file; give an ONNX model as a file or a ModelProto")
    return quantize_onnx(model, data, **options)
