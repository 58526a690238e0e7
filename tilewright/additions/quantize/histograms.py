"""Histograms of tensors that are seen once, part by part, in a few kilobytes each."""

from __future__ import annotations

import numpy as np

HALF = 4096
"""Bins on each side of 0."""

MOST = 1 << 15
"""Maximum of a tensor's elements counted per sample; of larger tensors evenly spaced ones are. Extremes are exact."""


class Histogram:
    """A histogram of values, in bins of one width around 0; the width doubles when a value lies outside.

    Attributes:
        counts: float32[2 * HALF], exact up to 2^24; bin i holds the values in [i - HALF, i - HALF + 1) * width.
        low, high: exact extremes; 0 before any value was seen.
        extremes: (low, high) of each array that was added.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(2 * HALF, np.float32)
        self.width = 0.0
        self.low = self.high = 0.0
        self.extremes: list[tuple[float, float]] = []
        self._empty = True

    def add(self, value: np.ndarray) -> None:
        """Counts the elements of an array, values that are no numbers left out."""
        flat = value.reshape(-1)
        if not flat.size:
            return
        low, high = float(flat.min()), float(flat.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            flat = flat[np.isfinite(flat)]
            if not flat.size:
                return
            low, high = float(flat.min()), float(flat.max())
        self.low, self.high = (low, high) if self._empty else (min(self.low, low), max(self.high, high))
        self._empty = False
        self.extremes.append((low, high))
        self._widen(max(-low, high))
        if self.width:
            step = -(-flat.size // MOST) | 1  # odd, so that it does not fall in with the width of a picture
            part = flat[::step] if step > 1 else flat
            index = np.floor(part * (1 / self.width)).astype(np.int64) + HALF
            self.counts += np.bincount(np.minimum(index, 2 * HALF - 1), minlength=2 * HALF)

    @property
    def seen(self) -> float:
        """The number of values counted."""
        return float(self.counts.sum(dtype=np.float64))

    @property
    def centres(self) -> np.ndarray:
        """The middle of each bin, within the extremes."""
        return np.asarray(np.clip((np.arange(2 * HALF) - HALF + 0.5) * self.width, self.low, self.high))

    def filled(self) -> tuple[np.ndarray, np.ndarray]:
        """Centres and counts of the bins that are not empty."""
        at = np.flatnonzero(self.counts)
        return self.centres[at], self.counts[at]

    def _widen(self, bound: float) -> None:
        if bound <= 0:
            return
        if not self.width:
            self.width = 2.0 ** np.ceil(np.log2(max(bound, 1e-30))) / HALF
        while bound > self.width * HALF:
            pairs = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.zeros(2 * HALF, np.float32)
            self.counts[HALF // 2 : HALF // 2 + HALF] = pairs
            self.width *= 2
