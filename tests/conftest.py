"""Fixtures shared by all tests, and what a run says at its end."""

import gc
import itertools
import os
import tempfile
import warnings
from pathlib import Path

import pytest
from amaranth.hdl import UnusedElaboratable
from hypothesis import HealthCheck, settings

from tests.common import needs
from tests.common.paths import ROOT
from tilewright.common.store import cache_folder

warnings.simplefilter("ignore", UnusedElaboratable)  # also when all tests are over
# A test fails by what it finds, never by what else the machine does.
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")
# Tests look at the compiler itself, also through stand-ins: nothing is taken from or left in the program cache.
os.environ.setdefault("TILEWRIGHT_PROGRAM_CACHE", "off")
if "TILEWRIGHT_KEYS" not in os.environ:  # those of the tests alone
    _keys = tempfile.TemporaryDirectory(prefix="tilewright-test-keys-")  # gone at exit
    os.environ["TILEWRIGHT_KEYS"] = _keys.name
os.environ.setdefault("TILEWRIGHT_TUNING", "off")  # of the user: pinned cycles are those of the compiler alone


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Folder of the reference models: $TILEWRIGHT_MODELS, or `../shared/models` beside the checkout."""
    named = os.environ.get("TILEWRIGHT_MODELS")
    folder = Path(named) if named else ROOT.parent / "shared" / "models"
    if not folder.is_dir():
        needs.skip(needs.MODELS, f"{folder} is missing")
    return folder


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test alone, which $TILEWRIGHT_CACHE names: empty but for native libraries, which are found by what
    they are built from and take seconds to build."""
    folder = tmp_path / "cache"
    folder.mkdir()
    for group in ("compiler", "simulator"):
        (kept := cache_folder() / group).mkdir(parents=True, exist_ok=True)
        (folder / group).symlink_to(kept)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(folder))
    return folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests come first, in every process: no process is left with one of them when the others are done.

    pytest-xdist gives each process a part of the list, as long as the others. Each part gets its share of the long
    tests, file by file, and is filled up with short ones.
    """
    marked = [any(item.get_closest_marker(name) for name in ("cosim", "network", "slow")) for item in items]
    long = (item for item, is_long in zip(items, marked) if is_long)
    short = (item for item, is_long in zip(items, marked) if not is_long)
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    parts: list[list[pytest.Item]] = [[] for _ in range(count)]
    for _, group in itertools.groupby(long, key=lambda item: item.path):
        min(parts, key=len).extend(group)
    for part in parts:
        part.extend(itertools.islice(short, max(0, -(-len(items) // count) - len(part))))
    items[:] = [*itertools.chain.from_iterable(parts), *short]


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Writes, above pytest's closing line, what was not tested and how to get what it needs."""
    reports = {report.nodeid: report for report in terminalreporter.stats.get("skipped", ())}
    for line in needs.summary(r.longrepr[2] for r in reports.values() if isinstance(r.longrepr, tuple)):
        terminalreporter.write_line(line, yellow=True)
