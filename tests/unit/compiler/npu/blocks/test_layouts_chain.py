"""Aliases through a long chain of moves: each move is looked at once."""

from __future__ import annotations

import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.npu.blocks import layouts
from tilewright.compiler.npu.blocks.layouts import Layouts
from tilewright.compiler.npu.blocks.wiring import Wiring


def test_moves_that_leave_no_blocked_form() -> None:
    net = Net()
    x = net.plane(16, 8)
    for _ in range(40):
        x = net.transpose(x, 0, 1, 3, 2)
    net.done(x)
    found = Layouts(Wiring.of(net.graph))
    assert found.find(x) is None


def test_each_move_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    net = Net()
    first = x = net.conv(net.plane(16, 8), 16)
    for _ in range(30):
        x = net.transpose(x, 0, 3, 1, 2)
    net.done(x)
    found = Layouts(Wiring.of(net.graph))
    monkeypatch.setattr(layouts, "alias_of", lambda graph, move, name, source: asked.append(name))
    monkeypatch.setattr(layouts, "heads_of", lambda *given: None)
    monkeypatch.setattr(layouts, "planes_of_rows", lambda *given: None)
    found.blocked[first] = object()  # type: ignore[assignment]
    assert found.find(x) is None and len(asked) <= 30
