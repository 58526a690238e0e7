"""Rewrites of the graph before placement: they replace operators that the NPU lacks by operators it has."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct

from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.npu.rewrites.block_states import block_states
from tilewright.compiler.npu.rewrites.broadcast_channels import broadcast_channels
from tilewright.compiler.npu.rewrites.correct_adds import correct_adds
from tilewright.compiler.npu.rewrites.drop_channels import drop_channels
from tilewright.compiler.npu.rewrites.join_halves import join_halves
from tilewright.compiler.npu.rewrites.lower_copies import lower_copies
from tilewright.compiler.npu.rewrites.lower_extrema import lower_extrema
from tilewright.compiler.npu.rewrites.lower_flattened import lower_flattened
from tilewright.compiler.npu.rewrites.lower_means import lower_means
from tilewright.compiler.npu.rewrites.lower_moves import lower_moves
from tilewright.compiler.npu.rewrites.lower_per_channel import lower_per_channel
from tilewright.compiler.npu.rewrites.pad_heads import pad_heads
from tilewright.compiler.npu.rewrites.rows_by_windows import rows_by_windows
from tilewright.compiler.npu.rewrites.rows_of_pixels import rows_of_pixels
from tilewright.compiler.npu.rewrites.share_blocks import share_blocks
from tilewright.compiler.passes import Pass, run_passes
from tilewright.isa.config import NpuConfig


class Rewrite(Struct, frozen=True):
    """A rewrite of the graph for one machine.

    Attributes:
        name: name for messages and `print_after`.
        run: changes the graph in place; `run_rewrites` prunes it.
        doc: one line about the change.
    """

    name: str
    run: Callable[[Graph, NpuConfig], None]
    doc: str

    def bound(self, config: NpuConfig) -> Pass:
        """Returns the rewrite for a machine as a pass over graphs."""

        def run(graph: Graph) -> None:
            self.run(graph, config)
            graph.prune()

        return Pass(self.name, run, self.doc)


REWRITES: tuple[Rewrite, ...] = (
    Rewrite("drop_channels", drop_channels, "channels that are constant or not read out of layers, into biases"),
    Rewrite("correct_adds", correct_adds, "Adds without exact constants to nearest ones and a correction by tables"),
    Rewrite("share_blocks", share_blocks, "narrow heads of caches side by side in blocks of lanes"),
    Rewrite("rows_of_pixels", rows_of_pixels, "pixels with channels last to rows of norms and products"),
    Rewrite("lower_means", lower_means, "means and sums over any axes to convolutions with weights of 1"),
    Rewrite("broadcast_channels", broadcast_channels, "one channel of an elementwise op to all by weights of 1"),
    Rewrite("lower_copies", lower_copies, "repeated images and gathered rows to a Concat of Slices"),
    Rewrite("join_halves", join_halves, "Concat along the channels of rows of heads with three axes, which stay rows"),
    Rewrite("lower_extrema", lower_extrema, "Max, Min, Where, ReduceMax, ReduceMin to integer Adds and pools"),
    Rewrite("lower_per_channel", lower_per_channel, "PRelu, Mul, Div, Add, Sub per channel to depthwise convolutions"),
    Rewrite("lower_moves", lower_moves, "movement that no view can say to products with weights of 0 and 1"),
    Rewrite("pad_heads", pad_heads, "attention heads to whole blocks of channels, and back behind the product"),
    Rewrite("lower_flattened", lower_flattened, "products of flattened planes to convolutions of the planes"),
    Rewrite("block_states", block_states, "caches of keys and values to their blocks of lanes"),
    Rewrite("rows_by_windows", rows_by_windows, "what follows from one integer input to rows of tables"),
)
"""The ordered rewrites."""


def run_rewrites(
    graph: Graph,
    config: NpuConfig,
    print_after: Collection[str] = (),
    out: Callable[[str], object] = print,
    keep_all: bool = False,
    form: str = "text",
) -> None:
    """Runs all rewrites on `graph` in place, pruning and verifying it after each.

    Args:
        graph: the graph, which is changed.
        config: the machine.
        print_after: names of rewrites after which the graph goes to `out`; "all" means every one.
        out: receives the printed graphs.
        keep_all: True to leave out what gives tensors of the model another shape.
        form: form of the graph, as `CompileOptions.print_form`.

    Raises:
        CompileError: a rewrite broke the graph; always a compiler bug.
    """
    left_out = (drop_channels, share_blocks, block_states, rows_by_windows) if keep_all else ()
    chosen = [rewrite for rewrite in REWRITES if rewrite.run not in left_out]
    run_passes(graph, [rewrite.bound(config) for rewrite in chosen], print_after, out, form)


__all__ = ["REWRITES", "Rewrite", "run_rewrites"]
