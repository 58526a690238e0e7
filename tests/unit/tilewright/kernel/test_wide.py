"""16-bit activations in kernels: convolutions of two tensors of bytes, equal to integer arithmetic in numpy."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from tilewright import kernel as tk
from tilewright.isa import wide_numerics
from tilewright.isa.config import PRESETS

random = np.random.default_rng(8)
W, BIAS = random.integers(-128, 128, (24, 20, 3, 3), np.int8), random.integers(-(10**6), 10**6, 24)
SCALES = random.uniform(2e-5, 2e-4, 24)


@tk.kernel
def convolution(
    k: tk.Chip, high: tk.Tensor, low: tk.Tensor, *, depthwise: bool = False, rows: int = 3
) -> tuple[tk.Tensor, tk.Tensor]:
    w = W[:20, 0] if depthwise else W
    weights = k.window(w, pad=1) if depthwise else k.weights(w, pad=1)
    params = k.wide_params(w, BIAS[: len(w)], SCALES[: len(w)])
    results = tuple(k.tensor((1, len(w), high.rows, high.columns)) for _ in range(2))
    for part in tk.chunks(high.rows, rows):
        sums = []
        for x, pad in ((high, 0), (low, -128)):
            tile = k.load(x.at(weights.rows(part), weights.columns(range(x.columns))), pad=pad)
            sums.append(
                k.depthwise(tile, weights) if isinstance(weights, tk.WindowWeights) else k.matmul(tile, weights)
            )
        k.requantise_wide(*sums, params, least=-30000, into=(results[0].at(part), results[1].at(part)))
        del sums
    return results[0], results[1]


@pytest.mark.medium
@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("name", ["tiny", "base"])
def test_convolutions_of_16_bits(name: str, depthwise: bool) -> None:
    x = random.integers(-(1 << 15), 1 << 15, (1, 20, 7, 9), np.int16)
    w, values = (
        (W[:20, :1] if depthwise else W).astype(np.int64),
        np.pad(x[0].astype(np.int64), ((0, 0), (1, 1), (1, 1))),
    )
    windows = sliding_window_view(values, (3, 3), (1, 2))
    sums = np.einsum("chwyx,cyx->chw", windows, w[:, 0]) if depthwise else np.einsum("chwyx,ocyx->ohw", windows, w)
    sums += BIAS[: len(w), None, None]
    pairs = np.array([wide_numerics.wide_multiplier(scale) for scale in SCALES[: len(w)]])[:, :, None, None]
    wanted = wide_numerics.requantize_wide(sums, pairs[:, 0], pairs[:, 1], -30000, 32767)
    assert len(np.unique(wanted)) > 500
    machine = PRESETS[name].with_(wide_results=1)
    for device in ("functional", "cycle"):
        found = convolution(*tk.bytes_of(x), config=machine, device=device, depthwise=depthwise)
        np.testing.assert_array_equal(tk.int16_of(*found)[0], wanted)


def test_what_cannot_be() -> None:
    shape = (1, 20, 7, 9)
    with pytest.raises(tk.KernelError, match=r"test_wide.py:\d+: 'base' makes no 16-bit results: wide_results = 0"):
        convolution.build(shape, shape)

    @tk.kernel
    def wrong(k: tk.Chip, x: tk.Tensor, *, scale: float = 0.001, most: int = 0) -> tuple[tk.Tile, tk.Tile]:
        sums = k.matmul(k.load(x.at()), k.weights(W[:, :, 0, 0]))
        return k.requantise_wide(sums, sums, k.wide_params(W[:, :, 0, 0], scale=scale), most=most)

    machine = PRESETS["base"].with_(wide_results=1)
    for options, text in (
        ({"most": 1 << 15}, "most must be -32768..32767, not 32768"),
        ({"scale": 2.0**20}, "biases and scales of 24 channels: shift -6 for VECTOR_WIDE; 1 to 64 are accepted"),
    ):
        with pytest.raises(tk.KernelError, match=text):
            wrong.build((8, 20), config=machine, **options)
