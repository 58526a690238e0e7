"""Where results are kept, and what a digest of sources covers."""

from pathlib import Path

import pytest

from common import store


def test_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "/y")
    assert store.cache_folder() == Path("/y")
    monkeypatch.setenv("TILEWRIGHT_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert store.cache_folder() == Path("/x/tilewright")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert store.cache_folder() == Path("/home/somebody/.cache/tilewright")


def test_digest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It follows every source below the patterns, and nothing else."""
    monkeypatch.setattr(store, "_ROOT", tmp_path)
    (tmp_path / "isa" / "sub").mkdir(parents=True)
    (tmp_path / "isa" / "a.py").write_text("1")

    def digests() -> tuple[str, str]:
        return store.sources_digest("isa/*"), store.sources_digest("isa/**/*")

    flat, deep = digests()
    (tmp_path / "isa" / "a.pyc").write_text("1")
    (tmp_path / "hw.py").write_text("1")
    assert digests() == (flat, deep)
    for name in ("a.cpp", "a.h"):
        (tmp_path / "isa" / "sub" / name).write_text("1")
        assert digests()[0] == flat and digests()[1] != deep
        deep = digests()[1]
    (tmp_path / "isa" / "a.py").write_text("2")
    assert digests()[0] != flat and digests()[1] != deep
    flat = digests()[0]
    (tmp_path / "isa" / "a.py").rename(tmp_path / "isa" / "b.py")
    assert digests()[0] != flat
