"""Views: tensors as the NPU sees them, planes of channel vectors.

A view is [N][CB][H][W] vectors of `block` lanes (CB = ceil(C / block)), W contiguous, all other axes by strides. A
`Layout` is the choice of the model tensor's axis that holds the channels. uint8 values are stored minus 128, so that
the machine sees int8. A value of 16 bits is two bytes of int8, `256 * high + low + 128`, and a tensor of them has twice
the channel blocks: first those of the high bytes, then those of the low ones.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tilewright.isa import wide_numerics
from tilewright.isa.instructions import WideByte
from tilewright.isa.program import Layout

#: The order of the channel blocks of a value's two bytes.
BYTE_ORDER = (WideByte.HIGH, WideByte.LOW)


def plane_shape(shape: tuple[int, ...], layout: Layout) -> tuple[int, int, int, int] | None:
    """Returns (N, C, H, W) of a tensor of `shape` in a layout; None if the layout has no such view or an axis is 0."""
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
    """Returns the axis that holds the channels of a tensor of `rank` axes."""
    return rank - 1 if layout is Layout.CHANNELS_LAST else 1


class View(Struct, frozen=True):
    """A tensor's place in external memory, and the strides to walk it. Strides and offset are in bytes.

    Attributes:
        tensor: name of the model tensor.
        region: memory region.
        buffer: name of the buffer (aliases share one).
        n, c, h, w: images, channels, rows and columns; a broadcast axis has size 1 here.
        sn, sc, sh: bytes between images, channel blocks and rows; vectors of a row are contiguous.
        block: lanes of a vector.
        offset: first byte, from the start of the buffer.
        bytes: bytes of a value, 1 or 2.
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
        """The number of channel blocks; a value of two bytes has a block for each."""
        return self.bytes * -(-self.c // self.block)

    @property
    def first_bytes(self) -> View:
        """The view of the channel blocks that hold the values' first byte; the view itself if a value is one byte."""
        return self if self.bytes == 1 else replace(self, bytes=1)

    def fills(self, value: int) -> tuple[int, ...]:
        """Returns the int8 of each byte's lanes where the tensor's value is `value`, in the order of `BYTE_ORDER`."""
        return (value,) if self.bytes == 1 else tuple(int(wide_numerics.wide_byte(value, byte)) for byte in BYTE_ORDER)

    @property
    def nbytes(self) -> int:
        """The bytes of all vectors; between them a view with larger strides leaves others out."""
        return self.n * self.cb * self.h * self.w * self.block

    def within(self, whole: View) -> tuple[int, int, int, int] | None:
        """Returns the (image, block, row, column) of `whole`, a view of the same buffer, at which this view begins.

        The result is None if the strides differ or this view does not lie inside `whole`.
        """
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
        """Returns the byte of the buffer at which the vector of image n, channel block cb, row y, column x begins."""
        return self.offset + n * self.sn + cb * self.sc + y * self.sh + x * self.block


def dense_view(
    tensor: str, buffer: str, region: int, dims: tuple[int, int, int, int], block: int, nbytes: int = 1
) -> View:
    """Returns the view of a buffer that holds nothing but int8 [N][CB][H][W][block].

    Args:
        dims: (N, C, H, W).
        nbytes: bytes of a value.
    """
    n, c, h, w = dims
    cb = nbytes * -(-c // block)
    sh = w * block
    sc = h * sh
    return View(tensor, region, buffer, n, c, h, w, cb * sc, sc, sh, block, bytes=nbytes)


def fills_memory(view: View) -> bool:
    """Returns True if a view's vectors lie one behind the other, from the first byte of the buffer on, in any order."""
    last = view.address(view.n - 1, view.cb - 1, view.h - 1, view.w - 1)
    return view.offset == 0 and last + view.block == view.nbytes


def is_dense(view: View) -> bool:
    """Returns True if a view's vectors lie as those of `dense_view`, from the first byte of the buffer on."""
    sh = view.w * view.block
    return (
        view.offset == 0
        and (view.sh == sh or view.h == 1)
        and view.sc == view.h * sh
        and view.sn in (view.cb * view.sc, 0)
    )


def planes_of(shape: tuple[int, ...], layout: Layout) -> tuple[int, int, int, int]:
    """Returns the (N, C, H, W) of `plane_shape`, for a shape that is known to have such a view."""
    planes = plane_shape(shape, layout)
    assert planes is not None, (shape, layout)
    return planes


def broadcast_ok(shape: tuple[int, ...], out: tuple[int, ...], layout: Layout, const: bool) -> bool:
    """Returns True if VECTOR can broadcast an operand of shape `shape` to shape `out`: both have as many channels.

    Args:
        layout: layout of both.
        const: True for a constant, whose single channel the compiler repeats in all lanes.
    """
    full = (1,) * (len(out) - len(shape)) + tuple(shape)
    own, dims = plane_shape(full, layout), plane_shape(out, layout)
    if own is None or dims is None:
        return False
    if layout is Layout.CHANNELS_LAST and len(out) > 2 and full[:-2] != out[:-2] and int(np.prod(full[:-2])) != 1:
        return False
    return const or own[1] == dims[1]


def same_box(a: View, b: View) -> bool:
    """Returns True if both views consist of the same vectors of the same buffer."""
    place = (a.buffer, a.n, a.c, a.h, a.w, a.sn, a.sc, a.sh, a.offset)
    return place == (b.buffer, b.n, b.c, b.h, b.w, b.sn, b.sc, b.sh, b.offset)
