"""Forms of weights in memory: bytes, two a byte, and coded, by the machine and by the kernel's word."""

from collections import Counter

import numpy as np
import pytest

from tilewright import kernel as tk
from tilewright.isa import numerics
from tilewright.isa.config import PRESETS, NpuConfig

BASE = PRESETS["base"]
random = np.random.default_rng(12)
FEW_BITS = random.integers(-8, 8, (64, 256), np.int8)
MOSTLY_ZERO = np.where(random.random((256, 256)) < 0.9, 0, random.integers(-128, 128, (256, 256))).astype(np.int8)


@tk.kernel
def product(k: tk.Chip, x: tk.Tensor, *, w: np.ndarray, packed: bool | None = None) -> tk.Tensor:
    y, weights, params = k.tensor((x.rows, len(w))), k.weights(w, packed=packed), k.params(0, 1 / 512)
    tile = k.load(x.at())
    for some in tk.chunks(y.blocks, 4):
        k.requantise(k.matmul(tile, weights.at(outputs=some)), params, into=y.at(blocks=some))
    return y


@product.reference
def product_in_numpy(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    found = numerics.requantize(
        x.astype(np.int32) @ w.astype(np.int32).T, numerics.scale_bits(np.float32(1 / 512)), 0, -128, 127
    )
    return np.asarray(found)


def loads(built: tk.Built) -> Counter[str]:
    """The number of loads of each kind."""
    return Counter(op.name for op in built.program.ops() if op.name in ("LOAD", "LOAD_PACKED", "LOAD_CODED"))


def test_weights_are_packed_where_machine_and_values_allow_it() -> None:
    packs = BASE.with_(packed_weights=1)
    packed, plain = product.build((2, 256), w=FEW_BITS, config=packs), product.build((2, 256), w=FEW_BITS)
    assert loads(packed)["LOAD_PACKED"] == 2 and loads(plain)["LOAD_PACKED"] == 0
    assert len(plain.program.constants) - len(packed.program.constants) == FEW_BITS.size // 2
    assert packed.cycles < 0.6 * plain.cycles
    for values, word in ((FEW_BITS, False), (FEW_BITS + np.int8(1), None)):
        assert loads(product.build((2, 256), w=values, packed=word, config=packs))["LOAD_PACKED"] == 0


@pytest.mark.parametrize(
    "values, config, text",
    [
        (FEW_BITS, BASE, "'base' unpacks no weights: packed_weights = 0 in its configuration"),
        (FEW_BITS + np.int8(1), BASE.with_(packed_weights=1), "packed weights must be -8..7, not -7..8"),
    ],
)
def test_packed_weights_that_cannot_be(values: np.ndarray, config: NpuConfig, text: str) -> None:
    with pytest.raises(tk.KernelError, match=rf"test_weights.py:\d+: {text}"):
        product.build((2, 256), w=values, packed=True, config=config)


@pytest.mark.medium
def test_weights_are_decoded_where_that_is_sooner_done() -> None:
    coded = product.check((2, 256), w=MOSTLY_ZERO, config=BASE.with_(weight_codes=32))
    plain = product.build((2, 256), w=MOSTLY_ZERO)
    assert loads(coded)["LOAD_CODED"] == 9  # a table, and 2 blocks of outputs at a time
    assert coded.cycles < 0.6 * plain.cycles
    dense = random.integers(-128, 128, (256, 256), np.int8)
    assert loads(product.build((2, 256), w=dense, config=BASE.with_(weight_codes=32)))["LOAD_CODED"] == 0


@pytest.mark.medium
@pytest.mark.parametrize("name", ["tiny", "base", "small"])
def test_packed_products_equal_numpy(name: str) -> None:
    product.check((3, 256), w=FEW_BITS, packed=True, config=PRESETS[name].with_(packed_weights=1))
