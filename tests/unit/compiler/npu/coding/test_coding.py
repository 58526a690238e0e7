"""Tables and streams of coded weights: their size is near the entropy, and the decoder's definition reads them back."""

import numpy as np
import pytest

from tilewright.compiler.npu.coding.coder import WeightCoder
from tilewright.compiler.npu.coding.stream import encode_stream
from tilewright.compiler.npu.coding.table import CodeTable, _assign_leftover_slots, make_table
from tilewright.isa.codes import SLOTS, CodeMode, Decoder, TableBuilder
from tilewright.isa.config import NpuConfig, preset

CONFIG = preset("base").with_(weight_codes=16)


def histogram(weights: np.ndarray) -> np.ndarray:
    """Returns the number of weights of each byte, [256]."""
    return np.bincount(weights.reshape(-1).view(np.uint8), minlength=256)


def entropy(weights: np.ndarray) -> float:
    """Returns the entropy of weights in bytes."""
    p = histogram(weights)[histogram(weights) > 0] / weights.size
    return float(-(p * np.log2(p)).sum() * weights.size / 8)


def laplace(width: float, zeros: float, tiles: int, seed: int = 1) -> np.ndarray:
    """Returns random weights [tiles, 16, 16] with a Laplace distribution, of which a share is set to 0."""
    rng = np.random.default_rng(seed)
    w = np.clip(np.rint(rng.laplace(0, width, (tiles, 16, 16))), -128, 127)
    w[rng.random(w.shape) < zeros] = 0
    return w.astype(np.int8)


def decoded(config: NpuConfig, loads: list[CodeTable | np.ndarray], data: bytes, beats: list[int]) -> list[np.ndarray]:
    """Returns the weights of each load, as the decoder's definition reads them from a stream."""
    decoder, at, found = Decoder(config), 0, []
    for load, count in zip(loads, beats, strict=True):
        part = data[at : at + count * config.bus_bytes]
        at += len(part)
        mode = CodeMode.TABLE if isinstance(load, CodeTable) else CodeMode.WEIGHTS
        rounds = 0 if isinstance(load, CodeTable) else load.size // config.weight_codes
        out = b"".join(decoder.load(mode, rounds, count, lambda part=part: part))
        if not isinstance(load, CodeTable):
            found.append(np.frombuffer(out, np.int8).reshape(load.shape))
    assert at == len(data)
    return found


@pytest.mark.parametrize(
    ("width", "zeros", "most"), [(1.0, 0.9, 1.06), (4.0, 0.0, 1.01), (25.0, 0.8, 1.03), (30.0, 0.0, 1.01)]
)
def test_tables_come_near_the_entropy(width: float, zeros: float, most: float) -> None:
    w = laplace(width, zeros, 400)
    table = make_table(histogram(w))
    assert table.cost(histogram(w)) < most * entropy(w)
    builder, words = TableBuilder(), table.words.tolist()
    for word in words:
        while len(builder.slots) < SLOTS and not builder.step(word):
            pass
    owners = np.array([(s.symbol, s.mask) for s in builder.slots])
    for value, (count, start, share, number) in enumerate(table.symbols.tolist()):
        if count:
            assert (owners[start : start + count] == (value - number, (1 << share) - 1)).all()


@pytest.mark.parametrize("value", [0, 7, -128, 127])
def test_one_value(value: int) -> None:
    w = np.full((4, 16, 16), value, np.int8)
    table = make_table(histogram(w))
    stream = encode_stream(CONFIG, [table, w])
    assert len(stream.data) < 100
    assert (decoded(CONFIG, [table, w], stream.data, stream.beats)[0] == value).all()


@pytest.mark.medium
@pytest.mark.parametrize("config", [CONFIG, CONFIG.with_(weight_codes=32), preset("large").with_(weight_codes=64)])
def test_streams_of_several_tables(config: NpuConfig) -> None:
    parts = [laplace(3.0, 0.5, 8), laplace(20.0, 0.0, 12), laplace(1.0, 0.97, 4)]
    loads: list[CodeTable | np.ndarray] = []
    for part in parts:
        loads += [make_table(histogram(part)), *np.split(part, len(part) // 4)]
    stream = encode_stream(config, loads)
    assert len(stream.beats) == len(loads)
    found = np.concatenate(decoded(config, loads, stream.data, stream.beats))
    np.testing.assert_array_equal(found, np.concatenate(parts))
    start = 2 * 2 * config.weight_codes * len(parts)
    assert (
        len(stream.data)
        < 1.03 * sum(entropy(p) for p in parts)
        + start
        + 2 * sum(len(t.words) for t in loads if isinstance(t, CodeTable))
        + 4 * config.weight_codes
        + 16
    )


def test_layers_share_tables_where_that_saves_bytes() -> None:
    """Two similar layers share a table, another gets its own, and random bytes stay plain."""
    rng = np.random.default_rng(2)
    coder = WeightCoder(CONFIG, by_bytes=True)
    layers = [laplace(5.0, 0.0, 30, 1), laplace(5.0, 0.0, 30, 2), laplace(1.0, 0.9, 60, 3)]
    noise = rng.integers(-128, 128, (30, 16, 16)).astype(np.int8)
    for key, tiles in enumerate([*layers, noise]):
        for half in np.split(tiles, 2):
            coder.collect(key, half)
    coder.end_step()
    coder.plan()
    assert coder.tables == 2 and coder.plain == 120 * 256 and coder.all_plain == 150 * 256
    assert coder.coded < 1.05 * sum(entropy(w) for w in layers) + 300
    chosen = [coder.next()[0] for _ in range(8)]
    assert [c is not None and c.table is not None for c in chosen] == [True, False, False, False, True] + [False] * 3
    assert chosen[6:] == [None, None]
    assert "30,720 bytes of weights are coded in" in coder.describe() and "with 2 tables; 7,680" in coder.describe()


@pytest.mark.parametrize(("tiles", "width", "by_bytes", "by_time"), [
    (8, 4.0, True, False),  # 2 KiB: plain in 256 cycles, a table takes 512
    (80, 4.0, True, True),  # 0.56 of 2,560 cycles and a table are fewer
    (400, 20.0, True, True),  # 0.85
    (400, 45.0, True, False),  # 0.93 and a table: too near to plain weights
])  # fmt: skip
def test_coded_where_that_saves_bytes_or_time(tiles: int, width: float, by_bytes: bool, by_time: bool) -> None:
    for objective, expected in ((True, by_bytes), (False, by_time)):
        coder = WeightCoder(CONFIG, by_bytes=objective)
        coder.collect("layer", laplace(width, 0.0, tiles))
        coder.end_step()
        coder.plan()
        assert (coder.tables == 1) is expected, objective


def test_a_load_of_more_beats_than_the_field_counts_stays_plain() -> None:
    """A LOAD_CODED has at most 65,535 beats, here of 4 bytes, and each weight may take a word."""
    config = CONFIG.with_(axi_data_bits=32, weight_codes=16)
    for tiles, tables in ((511, 1), (512, 0)):
        coder = WeightCoder(config)
        coder.collect("layer", laplace(4.0, 0.5, tiles))
        coder.end_step()
        coder.plan()
        assert coder.tables == tables


def test_groups_beside_equal_ones_get_no_slots_of_those_left() -> None:
    """Equal neighbours share a word, on whichever side they are."""
    counts = np.zeros(256)
    counts[:4] = 1, 1000, 1, 1
    for equal in (0, 1):
        groups = [[symbol, 0, 5 if symbol // 2 == equal else 200 + symbol] for symbol in range(4)]
        before = [list(group) for group in groups]
        left = SLOTS - sum(group[2] for group in groups)
        assert left > 0
        _assign_leftover_slots(counts, groups)
        assert [group for group in groups if group[2] == 5] == [group for group in before if group[2] == 5]
        assert sum(group[2] for group in groups) == SLOTS
