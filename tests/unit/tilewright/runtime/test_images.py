"""Images as inputs."""

import numpy as np
import pytest
from PIL import Image

import tilewright as tw
from tilewright.runtime.images import ImageOptions, image_input, image_layout


@pytest.fixture
def picture(tmp_path):
    """20 wide, 10 high, left half black, right half white, as a file of the asked kind."""

    def make(suffix=".png", mode="RGB"):
        pixels = np.zeros((10, 20, 3), np.uint8)
        pixels[:, 10:] = 255
        path = tmp_path / f"picture{suffix}"
        Image.fromarray(pixels).convert(mode).save(path)
        return path

    return make


def load(hand, path, shape, dtype="float32", fit="stretch", range="0..1", **info):
    program = hand.make_program()
    target = program.inputs[0]
    target.shape, target.dtype, target.scale = shape, dtype, None
    for name, value in info.items():
        setattr(target, name, value)
    return image_input(path, program, target, ImageOptions(fit, range))


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".jpg"])
def test_layouts(hand, picture, suffix):
    first = load(hand, picture(suffix), (1, 3, 4, 6))
    last = load(hand, picture(suffix), (1, 4, 6, 3))
    np.testing.assert_array_equal(np.moveaxis(first, 1, -1), last)
    assert first.dtype == np.float32
    np.testing.assert_allclose(first[0, :, :, 0], 0, atol=0.05)
    np.testing.assert_allclose(first[0, :, :, -1], 1, atol=0.05)
    assert load(hand, picture(suffix), (4, 6)).shape == (4, 6)
    assert load(hand, picture(suffix), (1, 1, 4, 6)).shape == (1, 1, 4, 6)


def test_fits(hand, picture):
    crop = load(hand, picture(), (1, 3, 8, 8), fit="crop")[0, 0]
    assert crop[0, 0] < 0.2 and crop[0, -1] > 0.8
    pad = load(hand, picture(), (1, 3, 8, 8), fit="pad")[0, 0]
    assert pad[0].max() == 0 and pad[4].max() == 1


@pytest.mark.parametrize(
    "kind, black, white", [("0..1", 0, 1), ("-1..1", -1, 1), ("0..255", 0, 255), ("imagenet", -2.118, 2.249)]
)
def test_ranges(hand, picture, kind, black, white):
    values = load(hand, picture(), (1, 3, 4, 20), range=kind)
    np.testing.assert_allclose([values[0, 0, 0, 0], values[0, 0, 0, -1]], [black, white], atol=1e-3)


@pytest.mark.parametrize(
    "limits, white", [((0, 250), 255), ((0, 1), 1), ((-1, 0.99), 1), ((-2.1, 2.6), 2.249), (None, 2.249)]
)
def test_auto_range(hand, picture, limits, white):
    program = hand.make_program()
    info = program.inputs[0]
    info.shape, info.dtype, info.scale = (1, 3, 4, 20), "float32", None
    if limits:
        program.input_ranges = {"x": limits}
    values = image_input(picture(), program, info, ImageOptions("stretch"))
    np.testing.assert_allclose(values[0, 0, 0, -1], white, atol=1e-3)


def test_byte_inputs(hand, picture):
    values = load(hand, picture(), (1, 3, 4, 20), "uint8", range="auto")
    assert values.min() == 0 and values.max() == 255
    values = load(hand, picture(), (1, 3, 4, 20), "int8", range="auto")
    assert values.dtype == np.int8 and values.min() == -128 and values.max() == 127
    values = load(hand, picture(), (1, 3, 4, 20), "int8", range="0..1", scale=0.01, zero_point=-50)
    assert values.min() == -50 and values.max() == 50


def test_errors(hand, picture, tmp_path):
    for shape in ((1, 5, 4, 4), (2, 3, 4, 4), (7,)):
        with pytest.raises(tw.UsageError, match="does not fit the shape"):
            image_layout(shape)
    with pytest.raises(tw.UsageError, match="type int64"):
        load(hand, picture(), (1, 3, 4, 4), "int64")
    with pytest.raises(tw.UsageError, match="cannot read"):
        load(hand, tmp_path / "none.png", (1, 3, 4, 4))
    (tmp_path / "bad.png").write_bytes(b"no")
    with pytest.raises(tw.UsageError, match="no valid image"):
        load(hand, tmp_path / "bad.png", (1, 3, 4, 4))
