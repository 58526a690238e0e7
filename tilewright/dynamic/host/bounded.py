"""The used part of a buffer that a compiled part has filled from its start."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.importer.onnx.bounded import BOUNDED_DOMAIN, BOUNDED_OPS, crop_axis
from tilewright.dynamic.host.operators import HostNode, host_op
from tilewright.dynamic.values import Value


@host_op(*BOUNDED_OPS, domain=BOUNDED_DOMAIN)
def crop(call: HostNode, values: list[Value]) -> list[Value]:
    """Returns the elements of a buffer up to the count."""
    whole, count = np.asarray(values[0]), int(np.asarray(values[1]))
    axis = crop_axis(call.op, call.attrs.get("axis"))
    return [np.ascontiguousarray(whole[(slice(None),) * (axis % whole.ndim) + (slice(count),)])]
