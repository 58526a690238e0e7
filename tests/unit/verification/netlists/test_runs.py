"""Builds of designs for boards that tests keep."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilewright.fpga.boards import BOARDS
from tilewright.fpga.points import point_of
from tilewright.isa.config import preset
from verification.netlists.runs import made_once

BOARD, CONFIG = BOARDS["ulx3s_85f"], preset("tiny")


def test_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that ask at once get the same folder, with what was asked for; what fails half-way leaves none."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    point, made = point_of(BOARD, CONFIG), []

    def make(scratch: Path) -> None:
        made.append(scratch)
        (scratch / "wanted").write_text("whole")
        (scratch / "other").touch()

    def fail(scratch: Path) -> None:
        (scratch / "wanted").write_text("half")
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        made_once(BOARD, CONFIG, point, "some", ("wanted",), fail)
    with ThreadPoolExecutor(2) as threads:
        folders = set(threads.map(lambda _: made_once(BOARD, CONFIG, point, "some", ("wanted",), make), range(4)))
    assert len(made) == len(folders) == 1
    (folder,) = folders
    assert [file.name for file in folder.iterdir()] == ["wanted"] and (folder / "wanted").read_text() == "whole"
    assert {file.name for file in folder.parent.iterdir()} == {folder.name, f"{folder.name}-lock"}
