"""Recorded tile programs: a replay equals emission in place, so that a search measures the same programs."""

from __future__ import annotations

import hashlib

import pytest

import tilewright as tw
from tilewright import zoo
from tilewright.compiler.npu.emit import assembler
from tilewright.compiler.npu.emit.recording import Recording
from tilewright.compiler.npu.layers.conv import ConvLayer
from tilewright.compiler.npu.layers.depthwise import DepthwiseLayer
from tilewright.compiler.npu.schedule import parts
from tilewright.isa.config import PRESETS
from verification.programs.equality import VARIANTS


def programs(network: str, config: str, recorded: bool) -> tuple[list[str], int]:
    """Returns digests of all programs that a compile assembles, in order, and the number of replays."""
    digests: list[str] = []
    written = 0
    with pytest.MonkeyPatch.context() as patch:
        usual, write = assembler.assemble, Recording.write

        def assemble(machine, tape):  # type: ignore[no-untyped-def]
            image, begins = usual(machine, tape)
            digests.append(hashlib.sha256(image).hexdigest())
            return image, begins

        def counted(*arguments) -> None:  # type: ignore[no-untyped-def]
            nonlocal written
            written += 1
            write(*arguments)

        patch.setattr(assembler, "assemble", assemble)
        patch.setattr(Recording, "write", counted)
        if not recorded:
            for kind in (ConvLayer, DepthwiseLayer):
                patch.setattr(kind, "recordable", False)
        machine = PRESETS.get(config) or VARIANTS[config]
        tw.compile(zoo.build_quantized(network, **zoo.ZOO[network].small), machine, cache=False)
    return digests, written


@pytest.mark.medium
@pytest.mark.parametrize(
    ("network", "config"),
    [
        ("resnet8", "base"),
        ("mobilenet_v2", "small"),
        ("ds_cnn", "one_queue"),
        ("resnet8", "narrow_in"),
        ("vww", "one_lane"),
    ],
)
def test_searches_measure_the_same_programs(network: str, config: str) -> None:
    recorded, written = programs(network, config, True)
    plain, none = programs(network, config, False)
    assert recorded == plain
    assert len(plain) > 5 and written > 20 and none == 0


@pytest.mark.medium
def test_recordings_that_take_too_much_memory_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _, most = programs("ds_cnn", "base", True)
    monkeypatch.setattr(parts, "_MOST_NUMBERS", 1000)
    again, written = programs("ds_cnn", "base", True)
    assert again == programs("ds_cnn", "base", False)[0] and written == most
