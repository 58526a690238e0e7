"""Pictures in files to pixels."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from tilewright.dynamic.host.operators import HostNode, host_op
from tilewright.dynamic.values import Value
from tilewright.runtime.images import check_pixels

#: Those of the operator; Pillow knows others, such as one that starts Ghostscript.
_FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@host_op("ImageDecoder")
def image_decoder(call: HostNode, values: list[Value]) -> list[Value]:
    """Decodes the bytes of an image file, uint8 [n], to pixels, uint8 [height, width, channels]."""
    kind = call.attrs.get("pixel_format", "RGB")
    if kind not in _MODES:
        raise call.error(f"pixel_format={kind!r}; accepted: {', '.join(_MODES)}")
    try:
        with Image.open(io.BytesIO(np.asarray(values[0], np.uint8).tobytes()), formats=_FORMATS) as file:
            check_pixels(file.width, file.height)
            image = file.convert(_MODES[kind])
    except Exception as error:  # the decoders raise many kinds for damaged files; all mean the same to the user
        raise call.error(f"no image that can be read: {str(error) or type(error).__name__}") from None
    pixels = np.asarray(image)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    return [np.ascontiguousarray(pixels[..., ::-1] if kind == "BGR" else pixels)]
