"""The import layers of pyproject.toml hold, and the tree of unit tests is that of the sources."""

import subprocess
import sys
from pathlib import Path

from tests.common.paths import ROOT


def test_layers() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports"))]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_unit_tests_lie_where_the_sources_do() -> None:
    """The tests of `a/b/` are in `tests/unit/a/b/`."""
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    assert len(folders) > 10
    assert [str(folder) for folder in sorted(folders) if not (ROOT / folder).is_dir()] == []
