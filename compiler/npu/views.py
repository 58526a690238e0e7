"""Views: tensors as the NPU sees them, planes of channel vectors.

A view is [N][CB][H][W] vectors of `block` lanes (CB = ceil(C / block)), W contiguous, everything else by strides.
A `Layout` says which axis of the model's tensor holds the channels. uint8 values are stored minus 128, so that the
machine sees int8. A value of 16 bits is two bytes of int8, `256 * high + low + 128`, and a tensor of them has twice the
channel blocks: those of the high bytes, then those of the low ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tilewright.isa import wide_numerics
from tilewright.isa.instructions import WideByte
from tilewright.isa.program import Layout

#: In which order the channel blocks of a value's two bytes lie.
BYTE_ORDER = (WideByte.HIGH, WideByte.LOW)


def plane_shape(shape: tuple[int, ...], layout: Layout) -> tuple[int, int, int, int] | None:
    """(N, C, H, W) of a tensor's shape in a layout, None where it has no such view."""
    if any(d == 0 for d in shape):
        return None
    if layout is Layout.CHANNELS_LAST:
        if len(shape) < 1:
            return None
        rows = shape[-2] if len(shape) > 1 else 1
        return int(np.prod(shape[:-2], dtype=np.int64)), shape[-1], 1, rows
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    if len(shape) == 3:
        return shape[0], shape[1], 1, shape[2]
    if len(shape) == 2:
        return shape[0], shape[1], 1, 1
    return None


def channel_axis(rank: int, layout: Layout) -> int:
    """The axis that holds the channels."""
    return rank - 1 if layout is Layout.CHANNELS_LAST else 1


@dataclass(frozen=True)
class View:
    """A tensor's place in external memory, and the strides to walk it. Strides and offset in bytes.

    Attributes:
        tensor: name of the model tensor.
        region: memory region.
        offset: first byte, from the start of the buffer.
        buffer: name of the buffer (aliases share one).
        n, c, h, w: logical sizes; a broadcast axis has size 1 here.
        sn, sc, sh: bytes between images, channel blocks and rows; vectors of a row are contiguous.
        bytes: of a value, 1 or 2.
    """

    tensor: str
    region: int
    buffer: str
    n: int
    c: int
    h: int
    w: int
    sn: int
    sc: int
    sh: int
    block: int
    offset: int = 0
    bytes: int = 1

    @property
    def cb(self) -> int:
        """Channel blocks, of all bytes of the values."""
        return self.bytes * -(-self.c // self.block)

    @property
    def first_bytes(self) -> View:
        """The channel blocks that hold the first byte of the values: of values of a byte, all."""
        return self if self.bytes == 1 else replace(self, bytes=1)

    def fills(self, value: int) -> tuple[int, ...]:
        """Returns the int8 of each byte's lanes where the tensor's value is `value`."""
        return (value,) if self.bytes == 1 else tuple(int(wide_numerics.wide_byte(value, byte)) for byte in BYTE_ORDER)

    @property
    def nbytes(self) -> int:
        return self.n * self.cb * self.h * self.w * self.block

    def within(self, whole: View) -> tuple[int, int, int, int] | None:
        """(image, block, row, column) of another view of the same buffer that this one begins at, None if both walk
        the buffer in different ways."""
        if self.buffer != whole.buffer or (self.sn, self.sc, self.sh) != (whole.sn, whole.sc, whole.sh):
            return None
        at, left = [], self.offset - whole.offset
        for stride, count in ((whole.sn, whole.n), (whole.sc, whole.cb), (whole.sh, whole.h), (whole.block, whole.w)):
            at.append(left // stride if count > 1 else 0)
            left -= at[-1] * stride
        fits = all(i >= 0 and i + own <= all_ for i, own, all_ in zip(
            at, (self.n, self.cb, self.h, self.w), (whole.n, whole.cb, whole.h, whole.w), strict=True
        ))  # fmt: skip
        return (at[0], at[1], at[2], at[3]) if fits and left == 0 else None

    def address(self, n: int, cb: int, y: int, x: int) -> int:
        return self.offset + n * self.sn + cb * self.sc + y * self.sh + x * self.block


def dense_view(
    tensor: str, buffer: str, region: int, dims: tuple[int, int, int, int], block: int, nbytes: int = 1
) -> View:
    """The view of a buffer that holds nothing but [N][CB][H][W][block], of values of so many bytes."""
    n, c, h, w = dims
    cb = nbytes * -(-c // block)
    sh = w * block
    sc = h * sh
    return View(tensor, region, buffer, n, c, h, w, cb * sc, sc, sh, block, bytes=nbytes)


def planes_of(shape: tuple[int, ...], layout: Layout) -> tuple[int, int, int, int]:
    """Returns what `plane_shape` does, for a shape that has such a view."""
    planes = plane_shape(shape, layout)
    assert planes is not None, (shape, layout)
    return planes


def broadcast_ok(shape: tuple[int, ...], out: tuple[int, ...], layout: Layout, const: bool) -> bool:
    """True if an operand of `shape` can be walked along `out`: channels match (constants are spread over lanes)."""
    full = (1,) * (len(out) - len(shape)) + tuple(shape)
    own, dims = plane_shape(full, layout), plane_shape(out, layout)
    if own is None or dims is None:
        return False
    if layout is Layout.CHANNELS_LAST and len(out) > 2 and full[:-2] != out[:-2] and int(np.prod(full[:-2])) != 1:
        return False
    return const or own[1] == dims[1]


def same_box(a: View, b: View) -> bool:
    """True if both walk the same vectors of the same buffer."""
    place = (a.buffer, a.n, a.c, a.h, a.w, a.sn, a.sc, a.sh, a.offset)
    return place == (b.buffer, b.n, b.c, b.h, b.w, b.sn, b.sc, b.sh, b.offset)
