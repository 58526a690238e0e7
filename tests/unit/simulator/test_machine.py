"""`native.Machine` keeps room for operands from run to run, and believes nothing in it."""

import numpy as np

from tests.unit.simulator.test_random_programs import assert_same
from tilewright.isa.assembler import assemble
from tilewright.isa.config import preset
from tilewright.isa.device import Region
from tilewright.isa.encoding import to_bytes
from tilewright.simulator.functional import FunctionalDevice

CONFIG = preset("base")
PRODUCTS = """
GEMM_LOOP level=0 count=3 act_stride=1 wgt_stride=1 acc_stride=0
GEMM_LOOP level=1 count=200 act_stride=1 wgt_stride=0 acc_stride=1
GEMM reduce=1 act=1 wgt=2 acc=0
END
"""


def test_scratchpads_changed_between_runs() -> None:
    """The next run multiplies what is written into ACT and WGT from outside."""
    devices = FunctionalDevice(CONFIG), FunctionalDevice(CONFIG, "reference")
    random = np.random.default_rng(0)
    for _ in range(3):
        act = random.integers(-128, 128, devices[0].scratchpads.act.shape)
        wgt = random.integers(-128, 128, devices[0].scratchpads.wgt.shape)
        for device in devices:
            device.scratchpads.act[...], device.scratchpads.wgt[...] = act, wgt
            _run(device)
        assert_same(devices[0].scratchpads, devices[1].scratchpads, "products")


SINGLE = """
GEMM_LOOP level=0 count=7 act_stride=1 wgt_stride=3 acc_stride=0
GEMM reduce=1 act=1 wgt=2 acc=0
GEMM reduce=1 act=9 wgt=2 acc=1
GEMM reduce=1 act=17 wgt=2 acc=0 accumulate=1
GEMM reduce=1 act=17 wgt=4 acc=2 accumulate=1
END
"""


def test_single_rows_with_the_same_tiles() -> None:
    """The first product with a tile takes it as it lies in WGT, later ones a packed copy."""
    devices = FunctionalDevice(CONFIG), FunctionalDevice(CONFIG, "reference")
    random = np.random.default_rng(1)
    for ends in (False, True):
        act, wgt = (
            random.integers(-128, 128, a.shape) for a in (devices[0].scratchpads.act, devices[0].scratchpads.wgt)
        )
        if ends:
            act, wgt = np.where(act < 0, -128, 127), np.where(wgt < 0, -128, 127)
        for device in devices:
            device.scratchpads.act[...], device.scratchpads.wgt[...] = act, wgt
            _run(device, SINGLE)
        assert_same(devices[0].scratchpads, devices[1].scratchpads, "single rows")
        assert devices[0].scratchpads.acc[:48].any()


def _run(device: FunctionalDevice, text: str = PRODUCTS) -> None:
    operations = assemble(text)
    image = to_bytes(operations)
    place = device.allocate(len(image))
    device.write(place, image)
    device.run([Region(place, len(image), read=True)], 0, 0, len(operations))


def test_regions_that_change_between_runs() -> None:
    """A run uses the regions and the memory of its own call."""
    device = FunctionalDevice(CONFIG)
    device.scratchpads.act[...] = device.scratchpads.wgt[...] = 3
    for _ in range(3):  # the program lies elsewhere each time, at last in memory that has grown
        device.scratchpads.acc[...] = 0
        _run(device)
        assert (device.scratchpads.acc[:3200] == 3 * 16 * 9).all()
        device.memory.data[:] = 0  # no run reads the program of another one
        device.allocate(700_000)
