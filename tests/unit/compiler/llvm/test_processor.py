"""The processor that is kept equals the one LLVM names; damage and another processor are noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from tilewright.common import store
from tilewright.compiler.llvm import processor
from tilewright.compiler.llvm.processor import this_processor


@pytest.fixture
def ask(empty_cache: Path):
    """Asks anew, as another process would; the second value is True if LLVM was asked."""

    def asked() -> tuple[processor.Processor, bool]:
        this_processor.cache_clear()
        before = {path.name for path in (empty_cache / "processors").glob("*")}
        found = this_processor()
        return found, {path.name for path in (empty_cache / "processors").glob("*")} != before

    yield asked
    this_processor.cache_clear()


def test_it_equals_what_llvm_says(ask) -> None:
    features = llvm.get_host_cpu_features()
    (first, _), (again, anew) = ask(), ask()
    assert not anew and again == first
    assert again.cpu == llvm.get_host_cpu_name() and again.triple == llvm.get_default_triple()
    assert again.features == dict(features) and again.flags == features.flatten()
    assert again.llvm == tuple(llvm.llvm_version_info)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says what the processor is")
@pytest.mark.parametrize("content", [b"", b"{}", b'{"llvm": "20"}', b"\xff"])
def test_what_is_damaged_is_asked_again(ask, empty_cache: Path, content: bytes) -> None:
    first, kept = ask()
    assert kept
    (path,) = (empty_cache / "processors").glob("*")
    store.keep_sealed(path, content)
    assert ask()[0] == first
    path.write_bytes(content)
    assert ask()[0] == first


def test_another_processor_is_asked_for(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_about", lambda: "flags: one")
    assert ask()[1] and not ask()[1]
    monkeypatch.setattr(processor, "_about", lambda: "flags: two")
    assert ask()[1]
    monkeypatch.setattr(processor, "_about", lambda: None)  # the system does not say
    assert not ask()[1] and not ask()[1]


def test_a_known_processor_needs_no_llvm(ask, empty_cache: Path) -> None:
    ask()
    code = "import sys; from tilewright.compiler.cpu.target import Target; Target.host(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "llvmlite.binding" not in done.stdout.split() or not sys.platform.startswith("linux")
