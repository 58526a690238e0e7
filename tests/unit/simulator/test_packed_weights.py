"""LOAD_PACKED on the simulators: what it leaves in WGT, what it reads, and machines that do not have it."""

import numpy as np
import pytest

from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.device import DeviceError, Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.packing import packed
from tilewright.simulator.cycle import CycleDevice
from tilewright.simulator.functional import FunctionalDevice
from verification.programs.generator import generate

PACKED = {name: preset(name).with_(name=f"packed_{name}", packed_weights=1) for name in ("nano", "tiny", "base")}
_TILES = 6


def _run(device: FunctionalDevice | CycleDevice, ops: list[Op], data: bytes) -> None:
    """Runs instructions; region 1 holds `data`."""
    words = to_bytes([*ops, op("END")])
    base = device.allocate(len(words) + 64 + len(data))
    second = base + -(-len(words) // 64) * 64
    device.write(base, words)
    device.write(second, data)
    device.run([Region(base, len(words), read=True), Region(second, len(data), read=True)], 0, 0, len(ops) + 1)


@pytest.mark.parametrize("path", ["fast", "reference"])
@pytest.mark.parametrize("offset", [0, 3])
def test_a_box_between_padding(path: str, offset: int) -> None:
    config = PACKED["base"]
    weights = np.random.default_rng(1).integers(-8, 8, (_TILES, 16, 16)).astype(np.int8)
    ops = [
        op("LOAD_DIM", level=0, count=2, row_stride=5, mem_stride=3 * config.packed_tile_bytes),
        op("LOAD_PAD", left=1, right=1, fill=0x5A),
        op("LOAD_PACKED", region=1, offset=offset, target=1, row=2, count=3),
    ]
    device = FunctionalDevice(config, path)
    _run(device, ops, bytes(offset) + packed(weights))
    wgt = device.scratchpads.wgt
    assert (wgt[3:6] == weights[:3]).all() and (wgt[8:11] == weights[3:]).all()
    assert (wgt[[2, 6, 7, 11]] == 0x5A).all()


def test_it_takes_a_beat_for_twice_as_many_weights() -> None:
    config = PACKED["base"]
    cycles = {}
    for name, nbytes in (("LOAD", config.tile_bytes), ("LOAD_PACKED", config.packed_tile_bytes)):
        device = CycleDevice(config)
        load = op(name, region=1, target=1, count=200)
        words = to_bytes([load, op("END")])
        at = device.allocate(len(words) + 200 * nbytes)
        device.write(at, words)
        regions = [Region(at, len(words), read=True), Region(at, 200 * nbytes, read=True)]
        cycles[name] = device.run(regions, 0, 0, 2).cycles
    assert cycles["LOAD"] - cycles["LOAD_PACKED"] == 200 * config.packed_tile_bytes // config.bus_bytes


@pytest.mark.parametrize("name", PACKED)
def test_random_programs(name: str) -> None:
    fast, reference = FunctionalDevice(PACKED[name]), FunctionalDevice(PACKED[name], "reference")
    loads = 0
    for seed in range(8):
        program = generate(seed, PACKED[name])
        loads += sum(o.name == "LOAD_PACKED" for o in program.ops)
        assert (program.run(fast) == program.run(reference)).all(), seed
        assert (fast.scratchpads.wgt == reference.scratchpads.wgt).all(), seed
    assert loads


def _stop(config: NpuConfig, **values: int) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        _run(FunctionalDevice(config), [op("LOAD_PACKED", region=1, count=1, **values)], bytes(512))
    return caught.value


def test_a_machine_without_it_says_so() -> None:
    found = _stop(preset("base"), target=1)
    assert found.code == ErrorCode.ILLEGAL_OPCODE and "packed_weights is 0" in str(found)


def test_only_weights_are_packed() -> None:
    for target in (0, 2, 3):
        found = _stop(PACKED["base"], target=target)
        assert found.code == ErrorCode.ILLEGAL_OPERAND and f"target must be 1..1, not {target}" in str(found)
