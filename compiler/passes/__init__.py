"""The front-end pipeline: from an imported graph to quantised integer ops."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.mlir.printing import after_pass
from tilewright.compiler.passes.annotate import annotate
from tilewright.compiler.passes.fold.clean_up import clean_up
from tilewright.compiler.passes.fold.drop_rows import drop_rows
from tilewright.compiler.passes.fold.eliminate import eliminate
from tilewright.compiler.passes.fold.fold_batch_norm import fold_batch_norm
from tilewright.compiler.passes.fold.fold_constants import fold_constants
from tilewright.compiler.passes.fold.reassociate_matmul import reassociate_matmul
from tilewright.compiler.passes.fold.recognise import recognise
from tilewright.compiler.passes.fold.simplify import simplify
from tilewright.compiler.passes.mark_floats import mark_floats
from tilewright.compiler.passes.moves.group_heads import group_heads
from tilewright.compiler.passes.moves.integer_scatters import integer_scatters
from tilewright.compiler.passes.moves.move_quantization import move_quantization
from tilewright.compiler.passes.moves.raise_parts import raise_parts
from tilewright.compiler.passes.moves.raise_tables import raise_tables
from tilewright.compiler.passes.moves.recognise_takes import recognise_takes
from tilewright.compiler.passes.moves.sink_transposes import sink_transposes
from tilewright.compiler.passes.quantise.bias_steps import bias_steps
from tilewright.compiler.passes.quantise.fuse_activation import fuse_activation
from tilewright.compiler.passes.quantise.fuse_concat import fuse_concat
from tilewright.compiler.passes.quantise.fuse_lut import fuse_lut
from tilewright.compiler.passes.quantise.fuse_quantization import fuse_quantization
from tilewright.compiler.passes.quantise.merge_requantization import merge_requantization
from tilewright.compiler.passes.quantise.narrow_states import narrow_states
from tilewright.compiler.passes.quantise.positive_scales import positive_scales
from tilewright.compiler.passes.quantise.quantize_weights import quantize_weights


class Pass(Struct, frozen=True):
    """A pass of the front end.

    Attributes:
        name: name for messages and `print_after`.
        run: changes the graph in place.
        doc: one line about its changes.
    """

    name: str
    run: Callable[[Graph], None]
    doc: str


FRONTEND: tuple[Pass, ...] = (
    Pass("annotate", annotate, "scale and zero point onto the tensors that Q writes and DQ reads"),
    Pass("merge_requantization", merge_requantization, "two Q-DQ pairs in a row to one, as onnxruntime does"),
    Pass("fold_constants", fold_constants, "evaluates constant sub-graphs; DequantizeLinear of constants stays"),
    Pass("positive_scales", positive_scales, "constants with negative scales to their negation with positive ones"),
    Pass("bias_steps", bias_steps, "biases of products that onnxruntime adds as integers have the step of the sums"),
    Pass("eliminate", eliminate, "drops identities, no-ops, duplicates and dead nodes"),
    Pass("mark_floats", mark_floats, "where onnxruntime keeps to floats, because of how data is moved"),
    Pass("reassociate_matmul", reassociate_matmul, "chains of float matrix products in the cheapest order"),
    Pass("simplify", simplify, "algebra: x*1, transpose and reshape chains, bias into Gemm, strength reduction"),
    Pass("sink_transposes", sink_transposes, "transposes down through other ops to where they cancel"),
    Pass("fold_batch_norm", fold_batch_norm, "batch norm into the weights of the convolution or product before it"),
    Pass("recognise", recognise, "decomposed GELU, SiLU, HardSwish, LayerNormalization to single ops"),
    Pass("move_quantization", move_quantization, "data movement acts on integers: DQ sinks, Q rises through it"),
    Pass("raise_parts", raise_parts, "parts of packed tensors (queries, keys, values) before heads are divided"),
    Pass("integer_scatters", integer_scatters, "values put into a tensor are integers where all are of one scale"),
    Pass("quantize_weights", quantize_weights, "float weights between quantised activations to int8"),
    Pass("fuse_quantization", fuse_quantization, "DequantizeLinear -> op -> QuantizeLinear to integer ops"),
    Pass("fuse_lut", fuse_lut, "functions of one 8-bit tensor to 256-entry tables"),
    Pass("fuse_concat", fuse_concat, "requantisation in front of a concatenation into its tables; nested ones flat"),
    Pass("recognise_takes", recognise_takes, "nearest Resize, Slice with steps, mirroring Pad of 8 bits to QTake"),
    Pass("group_heads", group_heads, "products with copies of a cache's heads to products with groups of queries"),
    Pass("raise_tables", raise_tables, "tables up through data movement, to the op that applies them in its pass"),
    Pass("fuse_activation", fuse_activation, "clamping tables into the output range of the op before"),
    Pass("narrow_states", narrow_states, "states are the integers that are computed with"),
    Pass("clean_up", clean_up, "folds remaining constants, eliminates and simplifies again"),
    Pass("drop_rows", drop_rows, "rows of products that nothing reads are not computed"),
)
"""The passes of the front end, in order."""


def run_passes(
    graph: Graph,
    passes: Sequence[Pass] = FRONTEND,
    print_after: Collection[str] = (),
    out: Callable[[str], object] = print,
    form: str = "text",
) -> None:
    """Runs `passes` on `graph` in place, verifying the graph after each.

    Args:
        print_after: names of passes after which the graph goes to `out`; "all" means every pass.
        form: form of the graph, as `CompileOptions.print_form`.

    Raises:
        CompileError: an error of a pass.
    """
    for step in passes:
        step.run(graph)
        graph.verify(step.name)
        if step.name in print_after or "all" in print_after:
            out(after_pass(step.name, graph, form))


__all__ = ["FRONTEND", "Pass", "run_passes"]
