"""Constants of normalisations over the channels by ROW, and their results in numpy, to the byte."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.config import NpuConfig
from tilewright.isa.row_bits import BIAS_FRACTION, EPSILON_FRACTION, RADICAND_BITS
from tilewright.isa.row_norm import FACTOR_SCALE, MAX_COUNT, TRUNCATION, normalise, row_norm
from tilewright.kernel.errors import KernelError


class Norm:
    """A normalisation of int8 rows, (x - mean) / sqrt(variance + epsilon) * gamma + beta; RMSNorm has no mean.

    Args:
        config: the machine.
        gamma, beta: float [channels], in real values; no beta is 0.
        epsilon: added to the variance, or to the mean of squares.
        steps: (input, result) real value of a step of each.
        zero_points: (input, result) zero points.
        centred: False for RMSNorm.

    Attributes:
        channels: elements of a row.
        words: table of ROW, 256 words by stored byte.
        radicand: epsilon in the unit of exact sums.
        scale, bias: float32 and int32 [channels] of NORM.
    """

    def __init__(
        self, config: NpuConfig, gamma: Any, beta: Any, epsilon: float, steps: tuple[float, float],
        zero_points: tuple[int, int], centred: bool,
    ) -> None:  # fmt: skip
        gamma = np.asarray(gamma, np.float64)
        beta = np.zeros(gamma.shape) if beta is None else np.asarray(beta, np.float64)
        if gamma.ndim != 1 or gamma.shape != beta.shape or not 1 <= len(gamma) <= MAX_COUNT:
            raise KernelError(f"gamma and beta have 1..{MAX_COUNT} channels, not {gamma.shape} and {beta.shape}")
        self.channels, self.centred, (self.zero_x, self.zero_point) = len(gamma), centred, zero_points
        count = self.channels
        self.radicand = round(math.ldexp(epsilon / steps[0] ** 2 * count**2, EPSILON_FRACTION))
        if not 0 <= self.radicand >> EPSILON_FRACTION < 1 << 31 or count**2 * 255**2 >= 1 << RADICAND_BITS:
            raise KernelError(f"epsilon {epsilon:g} does not fit ROW for {count} channels and steps of {steps[0]:g}")
        self.scale = (gamma * count * 2.0**-FACTOR_SCALE * (1 + TRUNCATION) / steps[1]).astype(np.float32)
        bias = np.rint(beta / steps[1] * 2.0**BIAS_FRACTION)
        if np.abs(bias).max() >= 1 << 31:
            raise KernelError(f"beta is up to {np.abs(beta / steps[1]).max():.0f} steps of the result, at most 255")
        self.bias = bias.astype(np.int32)
        q = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64)
        squared, mean = (q + 128, q + 128) if centred else (q - self.zero_x, np.full(256, self.zero_x + 128))
        self._fields = squared**2, mean
        self.words = (squared**2 | mean << config.row_square_bits).astype("<u4").tobytes()

    def of(self, x: np.ndarray) -> np.ndarray:
        """Returns the normalised last axis in numpy: int8 of the shape of `x`."""
        found = np.empty(x.shape, np.int8)
        scale = numerics.scale_bits(self.scale)
        for row, result in zip(x.reshape(-1, self.channels), found.reshape(-1, self.channels), strict=True):
            squares, total = (int(part[row.view(np.uint8)].sum()) for part in self._fields)
            stat = row_norm(squares, total, self.channels, self.radicand, self.centred)
            result[:] = normalise(row, stat, self.bias, scale, self.zero_point, -128, 127)
        return found
