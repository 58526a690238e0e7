"""The proof that an integer is off by a step because its float lay next to a tie, and for no other reason."""

from __future__ import annotations

import numpy as np

from tilewright.isa.program import TensorInfo

#: Steps of the output. Floats computed in another order are off by far less; a wrong rule is off by any fraction.
NEAR_TIE = 0.01


def away_from_ties(info: TensorInfo, got: np.ndarray, expected: np.ndarray, floats: np.ndarray) -> int | None:
    """Number of differing elements whose float is not next to the tie between the two integers.

    Args:
        info: of the quantised tensor.
        got, expected: its integers.
        floats: what the reference quantised, of the same shape.

    Returns:
        None where this cannot be said: the tensor has several scales or the floats do not fit.
    """
    if not isinstance(info.scale, float) or not isinstance(info.zero_point, int) or floats.shape != expected.shape:
        return None
    differs = got != expected
    a, b = (x[differs].astype(np.int64) for x in (got, expected))
    steps = floats[differs].astype(np.float64) / info.scale + info.zero_point
    explained = (np.abs(a - b) == 1) & (np.abs(steps - (a + b) / 2) <= NEAR_TIE)
    return int(np.count_nonzero(~explained))
