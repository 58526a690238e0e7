"""Pictures in files to pixels."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, UnidentifiedImageError

from tilewright.dynamic.host.operators import HostNode, host_op
from tilewright.dynamic.values import Value

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@host_op("ImageDecoder")
def image_decoder(call: HostNode, values: list[Value]) -> list[Value]:
    """Bytes of a file, uint8 [n], to pixels, uint8 [height, width, channels]."""
    kind = call.attrs.get("pixel_format", "RGB")
    if kind not in _MODES:
        raise call.error(f"pixel_format={kind!r}; accepted: {', '.join(_MODES)}")
    try:
        image = Image.open(io.BytesIO(np.asarray(values[0], np.uint8).tobytes())).convert(_MODES[kind])
    except (UnidentifiedImageError, OSError, ValueError) as error:
        raise call.error(f"no image that can be read: {error}") from None
    pixels = np.asarray(image)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    return [np.ascontiguousarray(pixels[..., ::-1] if kind == "BGR" else pixels)]
