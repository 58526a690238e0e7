"""The ranker: orders moves by a linear model of their gain, which it learns while the search runs."""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule.moves import Move

_KINDS = ("tile", "step", "join", "cut", "shift", "keep", "release")
_DATAPATHS = ("array", "window", "vector")
#: Weight of the prior that no move gains anything.
_RIDGE = 1.0


class Ranker:
    """Fits a move's relative gain to its kind, its layer's kind and the compiler's estimate, by ridge regression.

    Args:
        layers: the layers of the step.
    """

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        size = len(_KINDS) * len(_DATAPATHS) + 3
        self._moments = _RIDGE * np.eye(size)
        self._gains = np.zeros(size)
        self._weights: np.ndarray | None = None

    def _features(self, move: Move, cost: float) -> np.ndarray:
        """Returns the numbers to which the gain is fitted, float64 [features]."""
        found = np.zeros(self._gains.size)
        layer = self.layers[move.layer]
        kind = _DATAPATHS.index(layer.datapath)
        found[_KINDS.index(move.kind) * len(_DATAPATHS) + kind] = 1.0
        found[-3:] = math.log(min(max(move.estimate, 0.25), 4.0)), move.rows, math.log10(max(cost, 1.0)) / 6
        return found

    def gain(self, move: Move, cost: float) -> float:
        """Returns the cost that a move is expected to save.

        Args:
            move: the move.
            cost: cost of the layers around it now.
        """
        if self._weights is None:
            self._weights = np.linalg.solve(self._moments, self._gains)
        return float(self._features(move, cost) @ self._weights) * cost

    def learn(self, move: Move, cost: float, gained: float) -> None:
        """Learns the measured gain of a move; one that did not fit, a gain of minus infinity, as a loss of a tenth."""
        relative = -0.1 if math.isinf(gained) else max(-0.5, min(0.5, gained / max(cost, 1e-9)))
        features = self._features(move, cost)
        self._moments += np.outer(features, features)
        self._gains += relative * features
        self._weights = None
