"""Calibration data of every kind: one sample at a time, with the shapes the model takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tilewright as tw
from tilewright.quantize.image_samples import ImageOptions
from tilewright.quantize.model_inputs import Input
from tilewright.quantize.samples import KEPT, Kept, samples_of, split
from tilewright.quantize.stored import stored_arrays

F = np.dtype(np.float32)


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(
    "sizes, shape, expected",
    [
        ((1, 3), (5, 3), [(1, 3)] * 5),  # rows
        ((None, 3), (5, 3), [(1, 3)] * 5),
        ((4, 3), (9, 3), [(4, 3)] * 2),  # whole batches
        ((1, 3), (5, 1, 3), [(1, 3)] * 5),  # an axis that counts samples
        ((2, None, 3), (5, 2, 7, 3), [(2, 7, 3)] * 5),  # not batch first
        ((None,), (100,), [(100,)]),  # a signal is one sample, not a hundred
        ((None,), (4, 100), [(100,)] * 4),
        ((), (), [()]),
        ((), (6,), [()] * 6),
        ((1, 3, 8), (3, 8), [(1, 3, 8)]),  # one sample without its batch axis
    ],
)
@pytest.mark.parametrize("kind", ["array", "npy", "npz", "compressed"])
def test_shapes(tmp_path: Path, sizes: Any, shape: Any, expected: Any, kind: str) -> None:
    """However it is stored, an array is cut in the same way."""
    values = numbers(*shape)
    data: Any = values
    if kind == "npy":
        data = tmp_path / "x.npy"
        np.save(data, np.asfortranarray(values))
    elif kind != "array":
        data = tmp_path / "x.npz"
        (np.savez if kind == "npz" else np.savez_compressed)(data, x=values)
    samples = samples_of(data, {"x": Input(F, sizes)})
    found = [s["x"] for s in samples]
    assert [s.shape for s in found] == expected and len(samples) == len(expected)
    assert np.array_equal(
        np.concatenate([s.reshape(-1) for s in found]), values.reshape(-1)[: sum(s.size for s in found)]
    )
    assert [s["x"].tobytes() for s in samples] == [s.tobytes() for s in found]  # a second time


def test_state_and_rate() -> None:
    """An input with one value serves for all samples."""
    inputs = {"x": Input(F, (None, 8)), "state": Input(F, (2, None, 4)), "sr": Input(np.dtype(np.int64), ())}
    samples = samples_of({"x": numbers(5, 8), "state": numbers(2, 1, 4), "sr": np.array(16000)}, inputs)
    assert len(samples) == 5
    assert {n: v.shape for n, v in samples[3].items()} == {"x": (1, 8), "state": (2, 1, 4), "sr": ()}
    assert samples[3]["x"][0, 0] == 24 and samples[3]["sr"] == 16000


def test_folder_of_arrays(tmp_path: Path) -> None:
    """Each file is a sample, of a length of its own."""
    for i in range(3):
        np.savez(tmp_path / f"{i}.npz", x=numbers(1, 5 + i), sr=np.array(8000 + i))
    inputs = {"x": Input(F, (1, None)), "sr": Input(np.dtype(np.int64), ())}
    samples = samples_of(tmp_path, inputs)
    assert [(s["x"].shape, int(s["sr"])) for s in samples] == [((1, 5), 8000), ((1, 6), 8001), ((1, 7), 8002)]
    assert [s["x"].shape for s in samples_of(tmp_path, {"x": inputs["x"]}, fixed=["sr"])] == [(1, 5), (1, 6), (1, 7)]


def test_types() -> None:
    """Another width of the same kind is converted; bytes for floats need a scaling that nobody has said."""
    wanted = {"x": Input(F, (1, 3))}
    assert samples_of(np.ones((2, 3)), wanted)[0]["x"].dtype == np.float32
    with pytest.raises(tw.UsageError, match=r"uint8\[2, 3\]; the model takes float32\[1, 3\]: convert it first"):
        samples_of(np.ones((2, 3), np.uint8), wanted)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i, size in enumerate([(20, 10), (10, 10), (40, 10)]):
        Image.new("RGB", size, (51, 102, 255)).save(folder / f"{i}.png")
    return folder


def test_images(pictures: Path) -> None:
    """Mean and deviation in either unit, layouts, sizes."""
    nchw, nhwc = Input(F, (1, 3, 8, 6)), Input(F, (None, 8, 6, 3))
    unit = samples_of(pictures, {"x": nchw}, ImageOptions(mean=(0.5,), std=(0.5,)))
    bytes_ = samples_of(pictures, {"x": nchw}, ImageOptions(mean=(127.5,), std=(127.5,)))
    assert len(unit) == 3 and unit[0]["x"].shape == (1, 3, 8, 6) and unit[0]["x"].dtype == np.float32
    np.testing.assert_allclose(unit[0]["x"][0, :, 0, 0], [-0.6, -0.2, 1], atol=1e-6)
    np.testing.assert_allclose(unit[0]["x"], bytes_[0]["x"], atol=1e-6)
    last = samples_of(pictures, {"x": nhwc}, ImageOptions(range="0..255", bgr=True))[0]["x"]
    assert last.shape == (1, 8, 6, 3) and last[0, 0, 0].tolist() == [255, 102, 51]
    wide = samples_of(pictures, {"x": Input(F, (None, 3, 48, None))}, ImageOptions(size=(48, None)))
    assert [s["x"].shape for s in wide] == [(1, 3, 48, 96), (1, 3, 48, 48), (1, 3, 48, 192)]


def test_image_mistakes(pictures: Path) -> None:
    for sizes, options, message in [
        ((None, 3, None, None), ImageOptions(), "leaves the image size of 'x' open.*--resize HxW or --shape"),
        ((1, 3, 8, 6), ImageOptions(size=(9, 6)), "--resize has the height 9; the model's input 'x' has 8"),
        ((1, 3, 8, 6), ImageOptions(mean=(1, 2)), "--mean has 2 numbers; the images have 3 channels"),
        ((1, 3, 8, 6), ImageOptions(std=(0.0,)), "--std must not be 0"),
        ((1, 5, 8, 6), ImageOptions(), "images do not fit the input 'x'"),
        ((4, 3, 8, 6), ImageOptions(), "takes 4 images at once"),
    ]:
        with pytest.raises(tw.UsageError, match=message):
            samples_of(pictures, {"x": Input(F, sizes)}, options)
    with pytest.raises(tw.UsageError, match="one input; the model has x, y"):
        samples_of(pictures, {"x": Input(F, (1, 3, 8, 6)), "y": Input(F, ())})


def test_path_mistakes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no array")
    (tmp_path / "empty").mkdir()
    (tmp_path / "b.npz").write_bytes(b"no zip")
    wanted = {"x": Input(F, (1, 3))}
    for name, message in [
        ("none.npy", "no such file or folder"),
        ("a.txt", "unknown kind; accepted"),
        ("empty", "has no files; accepted"),
        ("b.npz", "is no valid .npz file"),
    ]:
        with pytest.raises(tw.UsageError, match=message):
            samples_of(tmp_path / name, wanted)


def test_rows_are_read_alone(tmp_path: Path) -> None:
    """A row of a stored array costs that row."""
    np.save(tmp_path / "x.npy", numbers(1000, 64))
    array = stored_arrays(tmp_path / "x.npy")[""]
    assert np.array_equal(array.rows(998, 1000), numbers(1000, 64)[998:])
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:5000])
    with pytest.raises(tw.UsageError, match="ends before its array does"):
        array.rows(998, 1000)


def test_split() -> None:
    """Held-back samples are spread, and no sample is in both parts."""
    samples = samples_of(numbers(10, 3), {"x": Input(F, (1, 3))})
    calibration, held = split(samples)
    first = lambda some: [int(s["x"][0, 0]) // 3 for s in some]
    assert first(held) == [2, 7] and first(calibration) == [0, 1, 3, 4, 5, 6, 8, 9]
    assert [len(part) for part in split(samples, 0)] == [10, 10]
    with pytest.raises(tw.UsageError, match="of 10 samples 10 cannot be held back"):
        split(samples, 10)


class _Counted(list):  # type: ignore[type-arg]
    read = 0

    def __getitem__(self, index: Any) -> Any:
        self.read += 1
        return super().__getitem__(index)


def test_small_samples_are_read_once() -> None:
    few, many = (_Counted({"x": np.zeros(size, np.int8)} for _ in range(4)) for size in (KEPT // 4, KEPT // 2))
    for given in (few, many):
        kept = Kept(given)
        for _ in range(3):
            kept[1].clear()
            assert [len(sample["x"]) for sample in kept] == [len(x["x"]) for x in list(given)]
    assert few.read == 4 and many.read == 2 + 3 * 2
