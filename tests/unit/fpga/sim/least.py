"""The smallest machine on a board, and a network for it, for tests of netlists."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from fpga.boards import BOARDS
from isa.config import preset
from isa.program import Program
from tests.reference.quantized_models import Model

BOARD = BOARDS["ulx3s_85f"]
#: The machine with the smallest netlist.
LEAST = preset("nano").with_(
    name="least", depthwise=0, lut_tables=0, act_rows=512, wgt_tiles=64, prm_rows=8, queue_depth=4
)


def least_network() -> Program:
    """Conv, Add and MaxPool."""
    m = Model(np.int8, seed=1)
    x = m.input((1, 8, 4, 4), 0.05, 3)
    y = m.requantized(m.op("Conv", x, m.weights((8, 8, 3, 3)), pads=[1] * 4), 0.05, 1)
    y = m.requantized(m.op("Add", x, y), 0.06, 2)
    m.output(m.requantized(m.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]), 0.06, 2))
    return tw.compile(m.build(), config=LEAST)
