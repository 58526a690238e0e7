"""Windows that reach beyond their input: the taps that matter."""

from __future__ import annotations

from collections.abc import Sequence


def reached(size: int, kernel: int, stride: int, dilation: int, begin: int, outputs: int) -> range:
    """The taps of a window, along one axis, that some position puts on the input; at least one tap.

    A tap that lies in the padding at every position adds nothing to a pool. Exporters write windows of 1280 over an
    input of 7, and every loop over such a window would be spent in padding.

    Args:
        size: size of the input.
        begin: padding in front of the input; its remainder behind the omitted taps is not negative.
        outputs: positions of the window.
    """
    first = max(-((begin - (outputs - 1) * stride) // -dilation), 0)
    first = min(first, begin // dilation, kernel - 1)
    behind = min(-((size + begin) // -dilation), kernel)
    return range(first, max(behind, first + 1))


def clipped(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    outputs: Sequence[int],
) -> tuple[list[int], list[int]]:
    """The kernel and pads (begins, then ends) of the same pool without the taps that never reach its input.

    The end pads are those with which floor division gives `outputs`; axes that lose no tap keep theirs.
    """
    rank = len(kernel)
    fitting, begins, ends = list(kernel), list(pads[:rank]), list(pads[rank:])
    for i, (n, k, s, d, out) in enumerate(zip(size, kernel, strides, dilations, outputs)):
        taps = reached(n, k, s, d, begins[i], out)
        if len(taps) == k:
            continue
        fitting[i] = len(taps)
        begins[i] -= taps.start * d
        over = (out - 1) * s + (len(taps) - 1) * d + 1 - n - begins[i]
        ends[i] = max(over, 0) if over > -s else over  # below 0 where the input would hold a position more
    return fitting, begins + ends
