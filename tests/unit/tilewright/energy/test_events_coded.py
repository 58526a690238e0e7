"""Coded weights are beats that are read, too."""

from __future__ import annotations

from tilewright.energy.events import EVENTS, per_instruction
from tilewright.isa.codes import CodeMode
from tilewright.isa.config import preset
from tilewright.isa.encoding import op


def test_beats() -> None:
    config = preset("tiny").with_(name="coded", weight_codes=8)
    ops = [op("LOAD_CODED", mode=CodeMode.TABLE, beats=70), op("LOAD_CODED", count=3, beats=11), op("END")]
    beats = per_instruction(ops, config, bytes(64))[:, EVENTS.index("beat read")]
    fetched = beats[2]
    assert list(beats - fetched) == [70, 11, 0]
