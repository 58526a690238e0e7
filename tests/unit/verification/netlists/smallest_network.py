"""The smallest machine on a board, a network for it, and what holds of any netlist of it."""

from __future__ import annotations

import random

import numpy as np

import tilewright as tw
from tests.reference.quantized_models import Model
from tilewright.fpga.boards import BOARDS
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.program import Program
from verification.netlists.runs import NetworkRecording, Pair, replay

BOARD = BOARDS["ulx3s_85f"]
#: The machine with the smallest netlist.
LEAST = preset("nano").with_(
    name="least", depthwise=0, lut_tables=0, act_rows=512, wgt_tiles=64, prm_rows=8, queue_depth=4
)


def smallest_network(config: NpuConfig = LEAST) -> Program:
    """Conv, Add and MaxPool."""
    m = Model(np.int8, seed=1)
    x = m.input((1, 8, 4, 4), 0.05, 3)
    y = m.requantized(m.op("Conv", x, m.weights((8, 8, 3, 3)), pads=[1] * 4), 0.05, 1)
    y = m.requantized(m.op("Add", x, y), 0.06, 2)
    m.output(m.requantized(m.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]), 0.06, 2))
    return tw.compile(m.build(), config=config)


def check_bytes_and_cycles(both: Pair, network: Program, recording: NetworkRecording) -> None:
    """Outputs are those of the functional simulator, and all that the driver reads is the RTL's."""
    expected = tw.Device("functional").run(network, tw.random_inputs(network, 0))
    assert all(np.array_equal(recording.outputs[name], expected[name]) for name in expected)
    # What the driver has read includes every counter, so cycles are equal too.
    assert recording.counters.cycles and recording.answers == replay(both.rtl, recording) != b""


def check_random_values(both: Pair, recording: NetworkRecording) -> None:
    """Checks that random values in what is not reset change nothing."""
    both.netlist.start(1)
    assert both.netlist.scrambled > 1000
    assert replay(both.netlist, recording) == recording.answers
    both.netlist.start()


def check_wrong_bits(both: Pair, recording: NetworkRecording) -> None:
    """Checks that one of 20 wrong bits of LUTs is found, of those that belong to values which the inputs of their LUT
    have had."""
    netlist, found = both.netlist, False
    netlist.start()
    assert replay(netlist, recording) == recording.answers
    seen = [netlist.seen(lut) for lut in range(len(netlist.luts))]
    named = [(lut, bit) for lut, mask in enumerate(seen) for bit in range(16) if mask >> bit & 1]
    for fault in random.Random(1).sample(named, 20):
        netlist.start()
        netlist.flip(*fault)
        found = replay(netlist, recording, recording.answers) != recording.answers
        netlist.flip(*fault)
        if found:
            break
    netlist.start()
    assert found
