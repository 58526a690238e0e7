"""Image files as samples of a model with one image input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.errors import UsageError
from tilewright.quantize.model_inputs import Input
from tilewright.quantize.recipe import Sample
from tilewright.quantize.sample_values import converted
from tilewright.runtime.images import open_image, scaled


@dataclass(frozen=True)
class ImageOptions:
    """Conversion of images to inputs: value = (pixel - mean) / std.

    Attributes:
        mean, std: one number, or one for each channel. In units of 0..1 if all are at most 1, else of 0..255.
            Without either, `range` says it.
        range: what black and white become, without mean and std: "0..1", "-1..1", "0..255" or "imagenet".
        size: (height, width) of inputs that leave them open; None in place of one keeps the image's proportions.
        fit: "crop" (scale the shorter side, cut the middle), "stretch", or "pad" (scale the longer side, black bars).
        layout: "nchw" or "nhwc"; None for what the input's shape suggests.
        bgr: blue first, as OpenCV reads images.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    range: str = "0..1"
    size: tuple[int | None, int | None] | None = None
    fit: str = "stretch"
    layout: str | None = None
    bgr: bool = False


class ImageSamples:
    """One sample for each image file.

    Raises:
        UsageError: the model has another input than one image, or one whose size is open and not given.
    """

    def __init__(self, files: Sequence[Path], inputs: Mapping[str, Input], options: ImageOptions) -> None:
        if len(inputs) != 1:
            raise UsageError(f"images are samples of one input; the model has {', '.join(inputs)}: give .npz files")
        self.files = list(files)
        self.options = options
        ((self.name, self.wanted),) = inputs.items()
        self.first, self.channels, height, width = self._layout()
        given = options.size or (None, None)
        for fixed, size, what in ((height, given[0], "height"), (width, given[1], "width")):
            if fixed is not None and size is not None and fixed != size:
                raise UsageError(f"--resize has the {what} {size}; the model's input {self.name!r} has {fixed}")
        self.height, self.width = height or given[0], width or given[1]
        if self.height is None and self.width is None:
            raise UsageError(
                f"the model leaves the image size of {self.name!r} open, {self.wanted}: give --resize HxW or --shape"
            )
        for values, what in ((options.mean, "--mean"), (options.std, "--std")):
            if values is not None and len(values) not in (1, self.channels):
                raise UsageError(f"{what} has {len(values)} numbers; the images have {self.channels} channels")
        if options.std is not None and any(value == 0 for value in options.std):
            raise UsageError("--std must not be 0")

    def _layout(self) -> tuple[bool, int, int | None, int | None]:
        """(channels first, channels, height, width)"""
        sizes = self.wanted.sizes
        plain = sizes[1:] if len(sizes) == 4 else sizes
        if len(sizes) == 4 and sizes[0] not in (None, 1):
            raise UsageError(
                f"the model takes {sizes[0]} images at once: give .npz files, or --shape with a batch of 1"
            )
        if len(plain) == 2:
            return True, 1, plain[0], plain[1]
        layout = self.options.layout
        if len(plain) == 3:
            if layout is None:
                if plain[0] in (1, 3) or plain[2] in (1, 3):
                    layout = "nchw" if plain[0] in (1, 3) else "nhwc"
                elif None in plain:
                    layout = "nchw"
            if layout == "nchw" and plain[0] in (None, 1, 3):
                return True, plain[0] or 3, plain[1], plain[2]
            if layout == "nhwc" and plain[2] in (None, 1, 3):
                return False, plain[2] or 3, plain[0], plain[1]
        raise UsageError(
            f"images do not fit the input {self.name!r}, {self.wanted}"
            + (f", as {layout}" if layout else "")
            + "; accepted: 1x3xHxW, 1xHxWx3, 1 channel, no batch. Give .npz files"
        )

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Sample:
        image = open_image(self.files[index], self.channels, self._size, self.options.fit)
        if self.options.bgr:
            image = image[..., ::-1]
        values = self._scaled(image) if self.wanted.dtype.kind == "f" else image
        if self.first:
            values = np.moveaxis(values, -1, 0)
        if len(self.wanted.sizes) == 4:
            values = values[None]
        elif len(self.wanted.sizes) == 2:
            values = values[0]
        return {self.name: converted(values, self.wanted.dtype, f"image {self.files[index]} of {self.name!r}")}

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self.files)))

    def _size(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) of the input for an image of a size."""
        if self.height is not None and self.width is not None:
            return self.width, self.height
        if self.height is not None:
            return max(1, round(width * self.height / height)), self.height
        assert self.width is not None
        return self.width, max(1, round(height * self.width / width))

    def _scaled(self, pixels: np.ndarray) -> np.ndarray:
        mean, std = self.options.mean, self.options.std
        if mean is None and std is None:
            return scaled(pixels, self.options.range)
        low = np.asarray(mean if mean is not None else 0.0, np.float32)
        wide = np.asarray(std if std is not None else 1.0, np.float32)
        unit = 1.0 if max(np.abs(low).max(), np.abs(wide).max()) > 1 else 255.0
        return (pixels / np.float32(unit) - low) / wide
