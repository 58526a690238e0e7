"""Kernels that take the place of every layer that kernels can, with their fused parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright import kernel as tk


def _range_behind(part: range, pad: int, stride: int, size: int, dilation: int) -> range:
    """Input positions that results `part` need."""
    first = part.start * stride - pad
    return range(first, first + (len(part) - 1) * stride + (size - 1) * dilation + 1)


def _over(k: tk.Chip, layer: tk.LayerFacts, y: tk.Tensor, make: Any) -> tk.Tensor:
    """Makes a result in parts: each image, some blocks, some rows."""
    wide = max(1, k.config.block_out // k.config.block_in)
    for image in range(y.images):
        for some in tk.chunks(y.blocks, 2 * wide):
            for part in tk.chunks(y.rows, 4):
                make(image, some, part)
    return y


def _window(layer: tk.LayerFacts, y: tk.Tensor, part: range) -> dict[str, range]:
    """Rows and columns of the input below a window."""
    axes = zip((part, range(y.columns)), layer.pad, layer.stride, layer.size, layer.dilation, strict=True)
    rows, columns = (_range_behind(*axis) for axis in axes)
    return {"rows": rows, "columns": columns}


def _sums(k: tk.Chip, x: tk.Tensor, other: tk.Tensor | None, layer: tk.LayerFacts) -> tk.Tensor:
    """Convolutions, products and depthwise convolutions."""
    deep, y = layer.kind == "depthwise", k.tensor(layer.output)
    make_weights = k.window if deep else k.weights
    weights: Any = make_weights(layer.weights, stride=layer.stride, dilation=layer.dilation)
    params, table = k.params(layer.bias, layer.scale), None if layer.table is None else k.table(layer.table)

    def make(image: int, some: range, part: range) -> None:
        own = {"blocks": some} if deep else {}
        wanted = x.at(**_window(layer, y, part), **own, image=image)
        tile, at = k.load(wanted, pad=layer.fill), y.at(part, blocks=some, image=image)
        sums = k.depthwise(tile, weights.at(some)) if deep else k.matmul(tile, weights.at(outputs=some))
        add = None if other is None else layer.addend(k.load(_like(other, at)))
        k.requantise(sums, params, **layer.post, add=add, table=table, into=at)

    return _over(k, layer, y, make)


def _like(other: tk.Tensor, part: tk.Part) -> tk.Part:
    """The part of an operand that goes with a part of the result; axes of size 1 are repeated."""
    blocks, rows, columns = part.ranges
    return other.at(
        rows if other.rows > 1 else 0, columns if other.columns > 1 else 0, blocks,
        part.image if other.images > 1 else 0,
    )  # fmt: skip


@tk.kernel
def sums(k: tk.Chip, x: tk.Tensor, *, layer: tk.LayerFacts) -> tk.Tensor:
    return _sums(k, x, None, layer)


@tk.kernel
def sums_and_add(k: tk.Chip, x: tk.Tensor, other: tk.Tensor, *, layer: tk.LayerFacts) -> tk.Tensor:
    return _sums(k, x, other, layer)


@tk.kernel
def one(k: tk.Chip, x: tk.Tensor, *, layer: tk.LayerFacts) -> tk.Tensor:
    y = k.tensor(layer.output)
    table = None if layer.table is None else k.table(layer.table)

    def make(image: int, some: range, part: range) -> None:
        at = y.at(part, blocks=some, image=image)
        if layer.kind == "max_pool":
            window = k.load(x.at(**_window(layer, y, part), blocks=some, image=image), pad=-128)
            found = k.maximum(window, layer.size, stride=layer.stride)
        else:
            found = k.load(x.at(part, blocks=some, image=image))
        if table is None:
            k.store(found, at)
        else:
            k.apply(found, table, into=at)

    return _over(k, layer, y, make)


@tk.kernel
def two(k: tk.Chip, x: tk.Tensor, other: tk.Tensor, *, layer: tk.LayerFacts) -> tk.Tensor:
    y, params = k.tensor(layer.output), k.params(0, layer.scale)
    table = None if layer.table is None else k.table(layer.table)

    def make(image: int, some: range, part: range) -> None:
        at = y.at(part, blocks=some, image=image)
        a, b = k.load(_like(x, at)), k.load(_like(other, at))
        if layer.kind == "mul":
            k.multiply(a, b, params, za=layer.za, zb=layer.zb, **layer.post, table=table, into=at)
        else:
            assert layer.add is not None
            k.add(a, b, **layer.add, table=table, into=at)

    return _over(k, layer, y, make)


TAKEN: list[str] = []


def _taken(kinds: tuple[str, ...]) -> Any:
    """A function for `replaces` that takes some kinds, and notes which."""

    def match(layer: tk.LayerFacts) -> Mapping[str, Any] | None:
        dilated = layer.kind == "max_pool" and layer.dilation != (1, 1)  # `maximum` has no dilation
        broadcast = layer.kind in ("add", "mul") and layer.shapes[0] != layer.output
        if layer.kind not in kinds or dilated or broadcast:
            return None
        TAKEN.append(layer.kind)
        return {"layer": layer}

    return match


sums.replaces(_taken(("conv", "depthwise")))
sums_and_add.replaces(_taken(("conv", "depthwise")))
one.replaces(_taken(("max_pool", "copy")))
two.replaces(_taken(("add", "mul")))
KERNELS = (sums, sums_and_add, one, two)
