"""Draws of quantisation parameters that tie."""

from __future__ import annotations

import math

import numpy as np

#: Scales of public models and of bug reports; 8-bit steps of round ranges, decimal fractions, powers of two.
BASES = (
    0.05,
    0.08,
    0.16,
    0.1,
    2 / 255,
    6 / 255,
    12 / 255,
    1 / 255,
    1 / 256,
    1 / 128,
    0.0625,
    0.25,
    0.5,
    1.0,
    0.02,
    0.3,
)
#: Ratios of two scales: those at which half or a quarter of all results lie on a tie, and their neighbours.
RATIOS = (2, 2, 1 / 2, 1 / 2, 3 / 2, 2 / 3, 1, 1, 4, 1 / 4, 3 / 4, 3, 1 / 3, 5 / 2, 2 / 5)
#: Scales of a channel that real files have and random draws never: dead, underflowing, overflowing.
CHANNELS = (0.0, 1e-41, 1e-38, 3e38)


class Draws:
    """Parameters from one generator of random numbers.

    Args:
        seed: of the generator.
        extreme: whether a channel scale may be one of `CHANNELS`.
    """

    def __init__(self, seed: tuple[int, ...], extreme: bool = True) -> None:
        self.rng = np.random.default_rng(seed)
        self.extreme = extreme

    def one_of(self, values: tuple[float, ...] | list[float]) -> float:
        return values[int(self.rng.integers(len(values)))]

    def scale(self) -> float:
        """Returns a float32 scale."""
        return float(np.float32(self.one_of(BASES)))

    def related(self, scale: float) -> float:
        """Returns a float32 scale that is a ratio of `RATIOS` to another; one time in six any of `BASES`."""
        if self.rng.random() < 1 / 6:
            return self.scale()
        return float(np.float32(np.float32(scale) * np.float32(self.one_of(RATIOS))))

    def for_sums(self, product: float, largest: float) -> float:
        """Returns the scale of a sum of products: a tying ratio to `product`, so that `largest` sums nearly fill 8
        bits."""
        natural = math.log2(max(largest, 1) / 100)
        power = 2.0 ** math.floor(natural + self.rng.integers(-1, 2))
        return float(np.float32(product * power * self.one_of((1, 1, 1, 3 / 2, 2 / 3, 3 / 4))))

    def zero(self, dtype: np.dtype) -> int:
        """Returns a zero point: the ends of the range, next to them, the middle, odd or even."""
        info = np.iinfo(dtype)
        middle = (int(info.min) + int(info.max) + 1) // 2
        ends = (info.min, info.min + 1, info.max, info.max - 1, middle, middle, middle + 1, middle - 1)
        if self.rng.random() < 1 / 4:
            return int(self.rng.integers(info.min, info.max + 1))
        return int(self.one_of([int(v) for v in ends]))

    def small(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Weights: mostly so small that sums of products lie on ties; the whole range one time in three."""
        info = np.iinfo(dtype)
        most = int(self.one_of((1, 2, 3, 7, 127, 127)))
        low = info.min + 1 if info.min < 0 and most == 127 else -most if info.min < 0 else 0
        high = info.max if most == 127 else most
        return self.rng.integers(low, high + 1, size=shape).astype(dtype)

    def channel_scales(self, count: int) -> np.ndarray:
        """float32 scales of `count` channels; now and then one that is dead, subnormal or huge."""
        base = self.scale()
        scales = np.array([self.related(base) for _ in range(count)], np.float32)
        if self.extreme and self.rng.random() < 1 / 8:
            scales[self.rng.integers(count)] = np.float32(self.one_of(CHANNELS))
        return scales

    def codes(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Integers of a type in random order: each of 256 codes once, then again, until the shape is full."""
        info = np.iinfo(dtype)
        size = math.prod(shape)
        if info.max - info.min > 255:
            return self.rng.integers(info.min, info.max + 1, size=shape).astype(dtype)
        runs = [self.rng.permutation(256) + info.min for _ in range(-(-size // 256))]
        return np.concatenate([*runs, np.zeros(0, np.int64)])[:size].reshape(shape).astype(dtype)


class Cases:
    """A model that several cases are built into, each with draws of its own."""

    def begin(self, seed: tuple[int, ...], extreme: bool = True) -> None:
        """Begins a case: what it draws depends on its seed alone."""
        self.draws = Draws(seed, extreme)
        self.rng = self.draws.rng
        self.last_scale = self.draws.scale()
