"""Resize: the source position in the input of every place of the output, equal to onnxruntime's."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tilewright.compiler.graph.graph import Graph, Node


class Resampling(Struct, frozen=True):
    """A Resize with its attributes and constant inputs.

    Attributes:
        shape, out_shape: shapes of the input and the output.
        how: coordinate_transformation_mode.
        rounding: nearest_mode.
        scales: ratio of output to input, for every axis.
        windows: the region of interest of tf_crop_and_resize as parts of the input, for every axis.
    """

    shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    how: str
    rounding: str
    scales: tuple[float, ...]
    windows: tuple[tuple[float, float], ...]

    @staticmethod
    def of(graph: Graph, node: Node) -> Resampling | None:
        """Reads the resampling of a Resize; None where its parameters are not constant."""
        shape, out_shape = graph.tensor(node.inputs[0]).shape, graph.tensor(node.outputs[0]).shape
        constants = [graph.const(name) for name in node.inputs]
        if any(name and value is None for name, value in zip(node.inputs[1:], constants[1:], strict=True)):
            return None
        rank, attrs = len(shape), node.attrs
        how = attrs.get("coordinate_transformation_mode", "half_pixel")
        rounding = attrs.get("nearest_mode", "round_prefer_floor")
        axes = [int(a) % rank for a in attrs.get("axes") or range(rank)]

        def value(index: int) -> np.ndarray | None:
            found = constants[index] if index < len(constants) else None
            return None if found is None else found.reshape(-1)

        given = value(2)
        roi = value(1) if how == "tf_crop_and_resize" else None
        scales = [out / n if n else 1.0 for n, out in zip(shape, out_shape, strict=True)]
        policy = attrs.get("keep_aspect_ratio_policy", "stretch")
        if given is not None and given.size:
            for k, a in enumerate(axes):
                scales[a] = float(given[k])
        elif policy != "stretch":
            sizes = value(3)
            assert sizes is not None
            ratios = [int(s) / shape[a] for s, a in zip(sizes, axes, strict=True)]
            for a in axes:
                scales[a] = min(ratios) if policy == "not_larger" else max(ratios)
        windows = [(0.0, 1.0)] * rank
        if roi is not None and roi.size:
            for k, a in enumerate(axes):
                windows[a] = float(roi[k]), float(roi[k + len(axes)])
        return Resampling(shape, out_shape, how, rounding, tuple(scales), tuple(windows))

    @property
    def crops(self) -> bool:
        """True if places outside of the input may be read, which give a constant."""
        return self.how == "tf_crop_and_resize"

    def unchanged(self, axis: int) -> bool:
        """True if an axis stays unchanged."""
        same = self.shape[axis] == self.out_shape[axis] and self.scales[axis] == 1.0
        return same and (not self.crops or self.windows[axis] == (0.0, 1.0))

    def positions(self, axis: int) -> np.ndarray:
        """The position along an axis of the input of every place of the output, float32, equal to onnxruntime's."""
        n, out = self.shape[axis], self.out_shape[axis]
        x, s = np.arange(out, dtype=np.float32), np.float32(self.scales[axis])
        half = np.float32(0.5)
        match self.how:
            case "half_pixel":
                return (x + half) / s - half
            case "half_pixel_symmetric":
                adjust = np.float32(out) / (s * np.float32(n))
                return np.float32(n / 2) * (np.float32(1) - adjust) + (x + half) / s - half
            case "pytorch_half_pixel":
                return (x + half) / s - half if out > 1 else np.zeros(1, np.float32)
            case "align_corners":
                return x * np.float32(n - 1) / np.float32(out - 1) if out > 1 else np.zeros(out, np.float32)
            case "asymmetric":
                return x / s
            case "tf_half_pixel_for_nn":
                return (x + half) / s
        first, last = self.windows[axis]
        a, b = np.float32(first), np.float32(last)
        if out > 1:
            return a * np.float32(n - 1) + x * (b - a) * np.float32(n - 1) / np.float32(out - 1)
        return np.full(out, 0.5 * (a + b) * (n - 1), np.float32)

    def nearest(self, axis: int) -> np.ndarray:
        """The place of the input that every place of the output copies, int64."""
        x = self.positions(axis)
        half = np.float32(0.5)
        found = {
            "round_prefer_floor": lambda: np.ceil(x - half),
            "round_prefer_ceil": lambda: np.floor(x + half),
            "floor": lambda: np.floor(x),
            "ceil": lambda: np.ceil(x),
        }[self.rounding]()
        return np.asarray(np.clip(found, 0, self.shape[axis] - 1), np.int64)

    def copies(self, mode: str) -> bool:
        """True if a mode only copies values: linear does where all axes of more than one value stay unchanged."""
        unchanged = all(n == 1 or self.unchanged(axis) for axis, n in enumerate(self.shape))
        return mode == "nearest" or (mode == "linear" and unchanged)
