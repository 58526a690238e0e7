"""`tilewright quantize`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.markup import escape
from rich.table import Table

from tilewright.cli import arguments, fixed_values, terminal
from tilewright.common import store
from tilewright.errors import UsageError
from tilewright.runtime.images import FITS
from tilewright.store.files import check_readable, is_tflite, write_bytes

_METHODS = ("mse", "minmax", "percentile", "entropy")
_ROWS = 10
_RANGES = ("0..1", "-1..1", "0..255", "imagenet")


class Numbers(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """The type of --mean and --std: numbers with commas."""

    name = "X[,X,X]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(float(x) for x in value.split(","))
        except ValueError:
            self.fail(f"{value!r} must be one number, or one for each channel, such as 0.485,0.456,0.406", param, ctx)


class Size(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """The type of --resize: HxW, with ? for a size that follows the image."""

    name = "HxW"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, int | None]:
        if isinstance(value, tuple):
            return value
        parts = value.lower().split("x")
        try:
            sizes = [None if x == "?" else int(x) for x in parts]
        except ValueError:
            sizes = []
        if len(sizes) != 2 or sizes == [None, None] or any(x is not None and x < 1 for x in sizes):
            self.fail(f"{value!r} must be height and width, such as 480x640 or 48x?", param, ctx)
        return sizes[0], sizes[1]


@dataclass(frozen=True)
class Pictures:
    """Options for image files; see `ImageOptions`."""

    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    image_range: str | None
    resize: tuple[int | None, int | None] | None
    image_fit: str | None
    layout: str | None
    bgr: bool

    @property
    def options(self) -> Any:
        """Options for images, None if no option was given."""
        from tilewright.quantize.image_samples import ImageOptions

        if (self.mean or self.std) and self.image_range:
            raise UsageError("give --image-range, or --mean and --std")
        given: dict[str, Any] = {"mean": self.mean, "std": self.std, "range": self.image_range, "size": self.resize}
        given |= {"fit": self.image_fit, "layout": self.layout, "bgr": self.bgr or None}
        chosen = {name: value for name, value in given.items() if value is not None}
        return ImageOptions(**chosen) if chosen else None


@dataclass(frozen=True)
class AccuracyOptions:
    """Options for accuracy; see `tilewright.quantize.accuracy.Accuracy`."""

    ranges: str | None
    equalise: bool | None
    fit: bool | None
    target: float | None
    fastest: bool
    best: bool
    keep_float: tuple[str, ...]
    int16: tuple[str, ...]

    @property
    def options(self) -> Any:
        """Options for accuracy, None if no option was given."""
        from tilewright.quantize.accuracy import BEST_TARGET, Accuracy

        if (self.target is not None) + self.fastest + self.best > 1:
            raise UsageError("give one of --target, --fastest and --best")
        target = 0.0 if self.fastest else BEST_TARGET if self.best else self.target
        given: dict[str, Any] = {"ranges": self.ranges, "equalise": self.equalise, "fit": self.fit}
        given |= {"keep_float": self.keep_float or None, "int16": self.int16 or None}
        chosen = {name: value for name, value in given.items() if value is not None}
        if target is not None:
            chosen |= {"target": target or None, "pays": False}
        return Accuracy(**chosen) if chosen else None


@dataclass(frozen=True)
class OnnxOptions:
    """Options for the result, of ONNX models only."""

    shapes: tuple[tuple[str, list[int]], ...]
    values: tuple[tuple[str, str], ...]
    activation: str
    form: str
    per_tensor: bool
    weights: str
    whole: bool

    def check_tflite(self) -> None:
        """Raises `UsageError` if any of these options is given."""
        plain = self.activation == "int8" and self.form == "qdq"
        if self.shapes or self.values or not plain or self.per_tensor or self.weights != "int8" or self.whole:
            raise UsageError(
                "--shape, --value, --activation, --form, --per-tensor, --weights and --whole are for ONNX models, and "
                "for an --output that ends in .onnx"
            )

    def given(self, model: Path) -> dict[str, Any]:
        """Fields of `QuantizeOptions`. Raises `UsageError` for shapes and values that do not fit the model."""
        return {
            "shapes": arguments.same_input_once(self.shapes), "values": fixed_values.parse(model, self.values),
            "activation": self.activation, "form": self.form, "per_channel": not self.per_tensor, "whole": self.whole,
            "weights": self.weights,
        }  # fmt: skip


@dataclass(frozen=True)
class MetricOptions:
    """Options for samples held back, and for a metric on them."""

    held_back: int | None
    check: bool
    metric: str | None
    labels: Path | None

    def given(self) -> dict[str, Any]:
        """Fields of `QuantizeOptions`. Raises `UsageError` for a metric without --check."""
        if not self.check and (self.metric or self.labels):
            raise UsageError("--metric and --labels belong to --check: add it")
        metric = (self.metric or "top1") if self.check else None
        return {"held_back": self.held_back, "metric": metric, "labels": self.labels}


@click.command(
    "quantize",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright quantize float.onnx --calibration photos/ --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225\n"
        "      -o int8.onnx\n"
        "  tilewright quantize float.onnx --calibration inputs.npz -o int8.onnx --check --labels labels.npy\n"
        "  tilewright quantize ocr.onnx --calibration lines/ --resize 48x? --image-range=-1..1 -o int8.onnx\n"
    ),
)
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--calibration",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE|FOLDER",
    help="Samples of the inputs: arrays by input name (.npz) or of a single input (.npy), whose first axes count "
    "samples; or a folder of such files, or of images.",
)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Model file to write.")
@arguments.shape_option
@fixed_values.option
@click.option("--activation", type=click.Choice(["int8", "uint8"]), default="int8", show_default=True)
@click.option("--form", type=click.Choice(["qdq", "qoperator"]), default="qdq", show_default=True)
@click.option("--per-tensor", is_flag=True, help="One scale per weight tensor instead of one per output channel.")
@click.option("--weights", type=click.Choice(["int8", "int4"]), default="int8", show_default=True, help="int4: weights "
              "of products in 4 bits; NPUs with packed_weights read half the bytes.")  # fmt: skip
@click.option("--whole", is_flag=True, help="Language models: norms by a root mean square, RoPE and sums in 8 bits, "
              "too.")  # fmt: skip
@click.option("--mean", type=Numbers(), help="Images: value = (pixel - mean) / std; in units of 0..1, or of 0..255 if "
              "one is above 1.")  # fmt: skip
@click.option("--std", type=Numbers(), help="See --mean.")
@click.option("--image-range", type=click.Choice(_RANGES), help="Images: values of black and white.  [default: 0..1]")
@click.option("--resize", type=Size(), help="Images: size where the model leaves it open; 48x? keeps proportions.")
@click.option("--image-fit", type=click.Choice(FITS), help="Images: how they meet the size.  [default: stretch]")
@click.option(
    "--layout", type=click.Choice(["nchw", "nhwc"]), help="Images: order of axes, if the shape does not tell."
)
@click.option("--bgr", is_flag=True, help="Images: blue first, as OpenCV has it.")
@click.option("--ranges", type=click.Choice(_METHODS), help="How the ranges of tensors are found.  [default: mse "
              "or minmax, whichever is better]")  # fmt: skip
@click.option("--equalise/--no-equalise", default=None, help="Give the channels of a tensor like ranges, by weights "
              "before and after it.  [default: equalise, if it is better]")  # fmt: skip
@click.option("--fit/--no-fit", default=None, help="Fit weights and biases to what each layer reads in the quantised "
              "model.  [default: fit, if it is better]")  # fmt: skip
@click.option("--target", type=arguments.FloatRange(0, 100), metavar="DB", help="SQNR that every output reaches, "
              "however much stays in floats; 0 keeps none.  [default: 20, where that pays]")  # fmt: skip
@click.option("--fastest", is_flag=True, help="All layers in 8 bits: --target 0.")
@click.option("--best", is_flag=True, help="As near to the float model as layers in floats take it: --target 40.")
@click.option("--keep-float", multiple=True, metavar="NODE", help="Node that stays in floats: a name or an op, with * "
              "and ?; may be repeated.")  # fmt: skip
@click.option("--int16", multiple=True, metavar="NODE", help="Node with 16-bit activations (on the CPU); as "
              "--keep-float.")  # fmt: skip
@click.option("--sqnr-plot", type=click.Path(path_type=Path), metavar="FILE", help="SQNR of the layers as a picture "
              "(.png or .svg).")  # fmt: skip
@click.option("--pareto-plot", type=click.Path(path_type=Path), metavar="FILE", help="Accuracy and time of what was "
              "compared as a picture (.png or .svg).")  # fmt: skip
@click.option("--held-back", type=click.IntRange(0), metavar="N", help="Samples kept for measuring: of them only "
              "ranges are taken.  [default: one in four, up to 32]")  # fmt: skip
@click.option("--check", is_flag=True, help="Compare the model before and after by --metric, on samples held back.")
@click.option("--metric", metavar="top1|MODULE:FUNCTION", help="For --check: FUNCTION(outputs, labels) gives a number. "
              " [default: top1]")  # fmt: skip
@click.option("--labels", type=click.Path(path_type=Path), metavar="FILE", help="For --check: a label for each sample "
              "(.npy, or text with one integer per line); by default the float model is right.")  # fmt: skip
@arguments.json_option
@arguments.gather(OnnxOptions, "onnx")
@arguments.gather(Pictures, "pictures")
@arguments.gather(AccuracyOptions, "accuracy")
@arguments.gather(MetricOptions, "measured")
def command(
    model: Path,
    calibration: Path,
    output: Path,
    onnx: OnnxOptions,
    pictures: Pictures,
    accuracy: AccuracyOptions,
    measured: MetricOptions,
    sqnr_plot: Path | None,
    pareto_plot: Path | None,
    json_path: str | None,
) -> None:
    """Quantise MODEL, a float ONNX or TFLite model, to 8 bits.

    Of a TFLite model comes another one by ai-edge-quantizer, or an ONNX model, if --output ends in .onnx: with ranges
    and weights as ONNX models have them.
    The result is written only if onnxruntime (LiteRT) and Tilewright both load and run it.
    """
    common = measured.given()
    terminal.prepare_output(output)
    plots = {"--sqnr-plot": sqnr_plot, "--pareto-plot": pareto_plot}
    for option, path in plots.items():
        if path is not None:
            if path.suffix not in (".png", ".svg"):
                raise UsageError(f"{option} {path}: a file name that ends in .png or .svg")
            terminal.prepare_output(path)
    terminal.prepare_json(json_path)
    with terminal.Working(f"quantising {model.name}", log=True) as working, terminal.stdout_for_json(json_path):
        common |= {"images": pictures.options, "progress": working.fraction}
        result: Any
        check_readable(model)
        of_tflite, suffix = is_tflite(model), output.suffix.lower()
        if suffix == ".tflite" and not of_tflite:
            raise UsageError(f"--output {output}: of {model} comes another .onnx file")
        if of_tflite and suffix != ".onnx":
            onnx.check_tflite()
            if accuracy.options is not None or any(plots.values()):
                raise UsageError(
                    "--ranges, --equalise, --fit, --target, --fastest, --best, --keep-float, --int16, --sqnr-plot and "
                    "--pareto-plot are for ONNX models, and for an --output that ends in .onnx"
                )
            from tilewright.quantize.tflite import quantize_tflite

            result = quantize_tflite(model, calibration, **common)
        else:
            from tilewright.quantize.memory import separate_blocks
            from tilewright.quantize.model import quantize_as_onnx, quantize_onnx

            separate_blocks()
            common |= {"accuracy": accuracy.options} | onnx.given(model)
            if of_tflite:
                result = quantize_as_onnx(store.read(model), calibration, **common)
            else:
                result = quantize_onnx(model, calibration, **common)
    raw = result.serialized()
    write_bytes(output, raw)
    kind = "tflite" if is_tflite(raw) else onnx.form
    found = {"output": str(output), **result.to_dict()}
    noise = getattr(result, "noise", None)
    if sqnr_plot is not None and noise is not None:
        from tilewright.quantize.plots import layers_picture

        write_bytes(sqnr_plot, layers_picture(noise, sqnr_plot.suffix[1:]))
    if pareto_plot is not None:
        from tilewright.quantize.plots import pareto_picture

        write_bytes(pareto_plot, pareto_picture(result.decision, pareto_plot.suffix[1:]))
    if json_path is not None:
        terminal.emit_json(json_path, found)
    if json_path != "-":
        console = terminal.table_console()
        console.print(f"{output}: {kind}, {onnx.activation} activations, {len(raw)} bytes", markup=False)
        *lines, last = result.lines() or [""]
        for line in lines:
            console.print(line, markup=False)
        if noise is not None and noise.layers:
            console.print(_worst(noise))
        console.print(last, markup=False)


def _worst(noise: Any) -> Table:
    """The layers with the lowest SQNR, the worst first."""
    from tilewright.quantize.sqnr import BEST

    shown = Table(
        title=f"SQNR of the worst of {len(noise.layers)} layers", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False
    )
    for heading in ("layer", "op", "precision"):
        shown.add_column(heading, overflow="fold")
    shown.add_column("SQNR, dB", justify="right")
    shown.add_column("lost here, dB", justify="right")
    for row in noise.layers[:_ROWS]:
        lost = f"{row.added:.1f}" if row.sqnr + row.added < BEST else "all"  # nothing was lost before
        shown.add_row(escape(row.layer), row.op, row.precision, f"{row.sqnr:.1f}", lost)
    return shown
