"""Configurations: what is accepted, stored and named."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.isa.config import PRESETS, ConfigError, NpuConfig, preset

BASE = preset("base")


def test_presets() -> None:
    assert list(PRESETS) == ["nano", "tiny", "pynq", "small", "wide", "base", "large", "double", "quad"]
    assert all(PRESETS[name].name == name for name in PRESETS)
    assert (
        NpuConfig(name="base", window_delay=16, row_unit=1) == BASE
        and BASE.macs_per_cycle == 256
        and BASE.bus_bytes == 8
    )
    assert len({c.fingerprint for c in PRESETS.values()}) == 9
    known = "nano, tiny, pynq, small, wide, base, large, double, quad"
    with pytest.raises(ConfigError, match=f"unknown preset 'huge'; presets: {known}"):
        preset("huge")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_in": 12}, "block_in must be a power of two in 4..64, not 12"),
        ({"block_out": 128}, "block_out must be a power of two in 4..64, not 128"),
        ({"act_rows": 32}, "act_rows must be 64..262144, not 32"),
        ({"act_rows": 8190}, "act_rows must be a multiple of act_banks (4), not 8190"),
        ({"act_banks": 3}, "act_banks must be a power of two in 2..16, not 3"),
        ({"wgt_tiles": 3}, "wgt_tiles must be 4..262144, not 3"),
        ({"acc_rows": 2**18 + 1}, "acc_rows must be 16..262144, not 262145"),
        ({"block_out": 4, "acc_rows": 1022}, "acc_rows must be a multiple of block_in / block_out (4), not 1022"),
        ({"block_in": 4, "acc_rows": 2**18}, "acc_rows must give at most 262144 vectors of block_in, not 1048576"),
        ({"prm_rows": 1}, "prm_rows must be 2..4096, not 1"),
        ({"lut_tables": 17}, "lut_tables must be 0..16, not 17"),
        ({"depthwise": 2}, "depthwise must be 0..1, not 2"),
        ({"vector_queue": 2}, "vector_queue must be 0..1, not 2"),
        ({"vector_passes": 3}, "vector_passes must be a power of two in 1..4, not 3"),
        ({"vector_passes": 8}, "vector_passes must be a power of two in 1..4, not 8"),
        ({"gemm_loops": 9}, "gemm_loops must be 5..8, not 9"),
        ({"vector_loops": 3}, "vector_loops must be 4..8, not 3"),
        ({"semaphores": 64}, "semaphores must be 12..63, not 64"),
        ({"queue_depth": 1}, "queue_depth must be 2..256, not 1"),
        ({"axi_data_bits": 48}, "axi_data_bits must be a power of two in 32..256, not 48"),
        ({"axi_address_bits": 19}, "axi_address_bits must be 20..64, not 19"),
        ({"axi_address_bits": 65}, "axi_address_bits must be 20..64, not 65"),
        ({"burst_beats": 512}, "burst_beats must be a power of two in 2..256, not 512"),
        ({"axi_data_bits": 256, "burst_beats": 256}, "burst_beats must be at most 128 with a 256-bit bus"),
        ({"read_outstanding": 0}, "read_outstanding must be 1..64, not 0"),
        ({"write_outstanding": 65}, "write_outstanding must be 1..64, not 65"),
        ({"block_in": 4, "act_banks": 2, "axi_data_bits": 128}, "axi_data_bits must be at most 64 (one beat fills"),
        ({"block_in": 4, "block_out": 4, "act_banks": 16, "axi_data_bits": 256}, "axi_data_bits must be at most 128"),
        ({"block_in": 16.0}, "block_in must be an integer, not 16.0"),
        ({"block_in": True}, "block_in must be an integer, not True"),
        ({"name": ""}, "name must be 1 to 80 of letters, digits, spaces and . _ + - , =, not ''"),
        ({"name": "}; exec sh; set x {"}, "name must be 1 to 80 of letters"),
        ({"name": "two\nlines"}, "name must be 1 to 80 of letters"),
        ({"color": 1}, "unknown configuration field 'color'; known: name, block_in"),
    ],
)
def test_what_cannot_be_built(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as info:
        BASE.with_(**changes)
    assert message in str(info.value)


def test_derived_sizes() -> None:
    wide, tall = BASE.with_(block_out=4), BASE.with_(block_in=4)
    packed = BASE.with_(packed_products=1)
    assert (BASE.dw_lanes, BASE.dw_slices, BASE.acc_vectors, BASE.acc_dw_rows) == (16, 1, 1024, 1024)
    assert (wide.dw_lanes, wide.dw_slices, wide.acc_vectors, wide.acc_dw_rows) == (4, 4, 256, 1024)
    assert (tall.dw_lanes, tall.dw_slices, tall.acc_vectors, tall.acc_dw_rows) == (4, 1, 4096, 4096)
    assert (packed.dw_lanes, packed.dw_slices, packed.acc_vectors, packed.acc_dw_rows) == (8, 2, 1024, 2048)
    assert tall.with_(block_out=8, packed_products=1).dw_lanes == tall.dw_lanes
    assert BASE.tile_bytes == 256 and BASE.prm_row_bytes == 128
    assert BASE.scratchpad_bytes == 8192 * 16 + 384 * 256 + 1024 * 64 + 64 * 128 + 8 * 256


def test_fingerprint_is_of_everything_but_the_name() -> None:
    assert BASE.with_(name="other").fingerprint == BASE.fingerprint
    names = {f.name for f in dataclasses.fields(NpuConfig)} - {"name"}
    changes: dict[str, int] = {name: getattr(BASE, name) * 2 for name in names} | {
        "gemm_loops": 7,
        "vector_loops": 7,
        "axi_address_bits": 33,
        "depthwise": 0,
        "window_delay": 3,
        "window_pairs": 1,
        "vector_queue": 0,
        "row_unit": 1,
        "weight_codes": 16,
        "packed_weights": 1,
        "wide_results": 1,
        "packed_products": 1,
    }
    start = BASE.with_(row_unit=0)
    assert (
        len({start.with_(**{k: v}).fingerprint for k, v in changes.items()} | {start.fingerprint}) == len(changes) + 1
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lut_tables": 6}, "row_unit must be 0 with lut_tables = 6; the row unit needs 4, 8, 12 or 16 tables"),
        ({"lut_tables": 0}, "row_unit must be 0 with lut_tables = 0; the row unit needs 4, 8, 12 or 16 tables"),
    ],
)
def test_rows_need_tables_in_fours(change: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BASE.with_(**change)
    assert str(caught.value) == message
    BASE.with_(row_unit=0, **change)


def test_words_of_rows_are_those_of_a_pass() -> None:
    """A sum of the lanes of a pass has 16 bits for each square, and more for each doubling of the lanes."""
    for passes, more in ((1, 4), (2, 3), (4, 2)):
        config = BASE.with_(vector_passes=passes)
        assert (config.row_square_bits, config.row_word_bits) == (16 + more, 24 + more)


def test_presets_keep_their_fingerprints() -> None:
    """Bitstreams and programs made before the youngest fields still match, but for those that have the row unit or
    delay lines."""
    assert preset("base").with_(row_unit=0, window_delay=0).fingerprint == "da3ddc62350e1e64"
    assert preset("large").with_(row_unit=0).fingerprint == "44e8dd6c2e9d11ca"
    assert {name: config.fingerprint for name, config in PRESETS.items()} == {
        "nano": "79e65978df6d3423",
        "tiny": "2a6f0f461ef2bce5",
        "pynq": "90852d75866ae16d",
        "small": "b9150e9d33ee6839",
        "wide": "8199aea07f45d52c",
        "base": "f9c2a963a6ec44ab",
        "large": "d1a73dbaaa2bc4f4",
        "double": "f6aab0728d67f7be",
        "quad": "1eb9ed2c403f3491",
    }


@pytest.mark.medium
@given(
    block_in=st.sampled_from([8, 16, 32]), block_out=st.sampled_from([8, 16, 32]), queue_depth=st.integers(2, 256),
    name=st.from_regex("[0-9A-Za-z._+,=-]{1,80}", fullmatch=True),
)  # fmt: skip
def test_storage_round_trip(block_in: int, block_out: int, queue_depth: int, name: str) -> None:
    config = NpuConfig(name=name, block_in=block_in, block_out=block_out, queue_depth=queue_depth)
    assert NpuConfig.from_dict(json.loads(config.to_json())) == config


def test_files(tmp_path: Path) -> None:
    config = BASE.with_(name="my chip, 2", block_out=32)
    for suffix, text in ((".json", config.to_json()), (".toml", config.to_toml())):
        path = tmp_path / f"npu{suffix}"
        path.write_text(text)
        assert NpuConfig.load(path) == config and NpuConfig.load(str(path)) == config
    (tmp_path / "mine.toml").write_text('base = "tiny"\nqueue_depth = 5\n')
    mine = NpuConfig.load(tmp_path / "mine.toml")
    assert mine == PRESETS["tiny"].with_(name="mine", queue_depth=5)
    assert NpuConfig.load("large") is PRESETS["large"]
    (tmp_path / "$(shell ls).toml").write_text('base = "tiny"\n')
    assert NpuConfig.load(tmp_path / "$(shell ls).toml").name == "__shell ls_"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "x", "not valid TOML"),
        ("a.json", "{", "not valid JSON"),
        ("a.json", "[]", "must be a table of fields, not list"),
        ("a.toml", "blok = 1", "unknown field 'blok'"),
        ("a.toml", 'block_in = "16"', "block_in must be an integer, not '16'"),
        ("a.toml", 'base = "huge"', "unknown preset 'huge'"),
        ("a.toml", "base = [1]", "unknown preset [1]"),
        ("a.yaml", "", "give a .json or .toml file"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as info:
        NpuConfig.load(tmp_path / name)
    assert message in str(info.value)


def test_missing_file() -> None:
    with pytest.raises(ConfigError, match=r"cannot read configuration .*no\.toml: No such file"):
        NpuConfig.load("/no/no.toml")


def test_pairs_need_a_window() -> None:
    with pytest.raises(ConfigError, match=r"^window_pairs must be 0 with depthwise = 0 \(there is no window\), not 1$"):
        BASE.with_(depthwise=0, window_pairs=1)
    with pytest.raises(ConfigError, match=r"^window_pairs must be 0\.\.1, not 2$"):
        BASE.with_(window_pairs=2)


def test_two_outputs_share_a_product_where_there_are_enough() -> None:
    for block_in, block_out, least in ((16, 8, 16), (4, 4, 8)):
        message = (
            rf"^packed_products must be 0 with block_out = {block_out} \(two outputs share a product where there "
            rf"are at least {least}\), not 1$"
        )
        with pytest.raises(ConfigError, match=message):
            BASE.with_(block_in=block_in, block_out=block_out, packed_products=1)
    with pytest.raises(ConfigError, match=r"^packed_products must be 0\.\.1, not 2$"):
        BASE.with_(packed_products=2)
