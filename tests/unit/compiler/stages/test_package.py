"""Programs that do not fit in the addresses of a machine are refused."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.reference.quantized_models import Model
from tilewright.compiler.errors import CompileError
from tilewright.isa.config import preset


@pytest.mark.medium
def test_more_memory_than_addresses() -> None:
    m = Model(np.int8, seed=1)
    x = m.input((1, 1080, 1, 1), 0.05, 3)
    m.output(m.requantized(m.op("Conv", x, m.weights((1080, 1080, 1, 1))), 0.05, 1))
    model = m.build()
    assert tw.compile(model, preset("tiny").with_(axi_address_bits=21)).constants
    with pytest.raises(CompileError, match=r"take 1\.1 MiB; tiny reaches 1 MiB .* must be at least 21, not 20"):
        tw.compile(model, preset("tiny").with_(axi_address_bits=20))
