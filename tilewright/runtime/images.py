"""Images as model inputs: fit, layout and value range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.common.store import check_regular
from tilewright.errors import UsageError
from tilewright.isa.program import Program, TensorInfo
from tilewright.runtime.inputs import input_range
from tilewright.runtime.layout import dtype_of

#: What an image may have: a file of a few kilobytes can decode to gigabytes.
MAX_PIXELS = 1 << 26
#: Decoders a file may ask for, whatever its name: Pillow knows others, such as one that starts Ghostscript.
_FORMATS = ("PNG", "BMP", "JPEG")
Size = tuple[int, int] | Callable[[int, int], tuple[int, int]]
FITS = ("crop", "stretch", "pad")
RANGES = ("auto", "0..1", "-1..1", "0..255", "imagenet")
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


@dataclass(frozen=True)
class ImageOptions:
    """Conversion of an image to an input.

    Attributes:
        fit: "crop" (scale the shorter side, cut the middle), "stretch", or "pad" (scale the longer side, black bars).
        range: what black and white become. "imagenet" subtracts the mean and divides by the deviation of ImageNet;
            "auto" takes what the input's quantisation suggests, else "imagenet" for three channels, "0..1" for one.
    """

    fit: str = "crop"
    range: str = "auto"


def image_layout(shape: tuple[int, ...]) -> tuple[bool, int, int, int]:
    """(channels first, channels, height, width) of an input shape. Raises `UsageError` for others than images."""
    sizes = shape[1:] if len(shape) == 4 and shape[0] == 1 else shape
    if len(sizes) == 2:
        return True, 1, sizes[0], sizes[1]
    if len(sizes) == 3 and sizes[0] in (1, 3):
        return True, sizes[0], sizes[1], sizes[2]
    if len(sizes) == 3 and sizes[2] in (1, 3):
        return False, sizes[2], sizes[0], sizes[1]
    raise UsageError(
        f"an image does not fit the shape {'x'.join(map(str, shape))}; accepted: 1x3xHxW, 1xHxWx3, 1 channel, no batch"
    )


def open_image(path: Path, channels: int, size: Size, fit: str) -> np.ndarray:
    """float32 [height, width, channels] of 0..255. Raises `UsageError` for what is no image."""
    try:
        return fitted(path, channels, size, fit)
    except OSError as error:
        if error.strerror:
            raise UsageError(f"cannot read input file {path}: {error.strerror}") from None
        raise UsageError(f"input file {path} is no valid image: {error}") from None
    except Exception as error:  # the decoders raise many kinds for damaged files; all mean the same to the user
        raise UsageError(f"input file {path} is no valid image: {str(error) or type(error).__name__}") from None


def fitted(path: Path, channels: int, size: Size, fit: str) -> np.ndarray:
    """float32 [height, width, channels] of 0..255 from an image file. Raises what the decoders raise.

    Args:
        size: (width, height) of the result, or the function that gives them for those of the file.
    """
    from PIL import Image, ImageOps

    check_regular(path)
    with Image.open(path, formats=_FORMATS) as file:
        check_pixels(file.width, file.height)
        ImageOps.exif_transpose(file, in_place=True)
        mode = "RGB" if channels == 3 else "L"
        image = file.convert(mode) if file.mode != mode else file  # a copy takes as much memory again
        if callable(size):
            size = size(*image.size)
        if fit == "crop":
            image = ImageOps.fit(image, size, Image.Resampling.BILINEAR)
        elif fit == "pad":
            image = ImageOps.pad(image, size, Image.Resampling.BILINEAR)
        else:
            image = image.resize(size, Image.Resampling.BILINEAR)
        return np.asarray(image, np.float32).reshape(size[1], size[0], channels)


def check_pixels(width: int, height: int) -> None:
    """Raises ValueError for an image that is too large to be decoded."""
    if width * height > MAX_PIXELS:
        raise ValueError(f"it has {width}x{height} pixels; up to {MAX_PIXELS} are accepted")


def _auto_range(limits: tuple[float, float] | None, channels: int) -> str:
    if limits is not None:
        low, high = limits
        if high > 100:
            return "0..255"
        if low > -0.05:
            return "0..1"
        if low >= -1.1 and high <= 1.1:
            return "-1..1"
    return "imagenet" if channels == 3 else "0..1"


def scaled(pixels: np.ndarray, kind: str) -> np.ndarray:
    """Pixels of 0..255 [..., channels] as one of `RANGES` but "auto"."""
    if kind == "0..255":
        return pixels
    if kind == "0..1":
        return pixels / np.float32(255)
    if kind == "-1..1":
        return pixels / np.float32(127.5) - np.float32(1)
    mean, deviation = (_MEAN, _DEVIATION) if pixels.shape[-1] == 3 else (_MEAN.mean(), _DEVIATION.mean())
    return (pixels / np.float32(255) - mean) / deviation


def image_input(path: str | Path, program: Program, info: TensorInfo, options: ImageOptions) -> np.ndarray:
    """The image as the input `info` of `program`.

    Byte inputs get raw pixels (int8: minus 128) unless a range is asked for and the input's quantisation is known.

    Raises:
        UsageError: the file is no image, or the input cannot be one.
    """
    first, channels, height, width = image_layout(tuple(info.shape))
    pixels = open_image(Path(path), channels, (width, height), options.fit)
    dtype = dtype_of(info)
    if dtype.kind == "f":
        limits = input_range(program, info.name)
        kind = _auto_range(limits, channels) if options.range == "auto" else options.range
        values = scaled(pixels, kind)
    elif dtype in (np.dtype(np.int8), np.dtype(np.uint8)):
        values = _bytes(pixels, info, options.range)
    else:
        raise UsageError(f"an image does not fit input {info.name!r} of type {info.dtype}")
    if first:
        values = np.moveaxis(values, -1, 0)
    return np.ascontiguousarray(values).astype(dtype).reshape(info.shape)


def _bytes(pixels: np.ndarray, info: TensorInfo, kind: str) -> np.ndarray:
    limits = np.iinfo(info.dtype)
    if kind == "auto" or not isinstance(info.scale, float | int) or not isinstance(info.zero_point, int):
        return pixels + np.float32(limits.min)
    values = np.rint(scaled(pixels, kind) / np.float32(info.scale)) + info.zero_point
    return np.asarray(np.clip(values, limits.min, limits.max))
