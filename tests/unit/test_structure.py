"""Import layers hold, no import leads back to where it came from, and unit tests lie where the sources do."""

import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from tests.common.paths import PARTS, ROOT

#: The product, and the calibration beside it in a checkout.
ROOTS = ("tilewright", "calibration")


def test_layers() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports"))]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of names that lead to each other; arrows to names that are no keys count for nothing."""
    left = {name: {to for to in arrows[name] if to in arrows and to != name} for name in arrows}
    ends: set[str] = {""}
    while ends:  # what leads nowhere is in no circle, nor is what nothing leads to
        ends = {name for name in left if not left[name] or not any(name in to for to in left.values())}
        left = {name: to - ends for name, to in left.items() if name not in ends}
    found: list[list[str]] = []
    for name in left:
        if not any(name in group for group in found):
            group = {other for other in reachable(left, name) if name in reachable(left, other)}
            if len(group) > 1:
                found.append(sorted(group))
    return found


def reachable(arrows: dict[str, set[str]], start: str) -> set[str]:
    """Names that arrows lead to from a name, itself included."""
    found, new = {start}, [start]
    while new:
        new = [to for to in arrows[new.pop()] if to not in found] + new
        found.update(new)
    return found


def test_circles_are_found() -> None:
    arrows = {"a": {"b"}, "b": {"c", "b"}, "c": {"a", "d"}, "d": {"e"}, "e": {"f"}, "f": {"e"}, "g": {"a", "x"}}
    assert circles(arrows) == [["a", "b", "c"], ["e", "f"]]
    assert circles({"a": {"a", "b"}, "b": {"c"}, "c": set()}) == []


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """All imports, those inside functions and for type checkers only as well."""
    return grimp.build_graph(*ROOTS, cache_dir=None)


@pytest.mark.medium
def test_modules_import_in_one_direction(graph: grimp.ImportGraph) -> None:
    modules = graph.modules
    assert circles({m: graph.find_modules_directly_imported_by(m) for m in modules}) == []


@pytest.mark.medium
def test_folders_import_in_one_direction(graph: grimp.ImportGraph) -> None:
    """Modules and folders of a folder, each taken as a whole, have an order."""
    found = {}
    for folder in graph.modules:
        children = graph.find_children(folder)
        child_of = {m: child for child in children for m in {child} | graph.find_descendants(child)}
        arrows: dict[str, set[str]] = {child: set() for child in children}
        for module, child in child_of.items():
            arrows[child] |= {child_of[to] for to in graph.find_modules_directly_imported_by(module) if to in child_of}
        if circles(arrows):
            found[folder] = circles(arrows)
    assert found == {}


def includes(sources: list[Path]) -> dict[str, set[str]]:
    """Included C and C++ files of each file, of any folder: the file beside, else every one that the name may mean."""
    arrows: dict[str, set[str]] = {}
    for path in sources:
        arrows[str(path)] = set()
        for name in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', path.read_text(encoding="utf-8"), re.MULTILINE):
            beside = [other for other in sources if other == path.parent / name]
            arrows[str(path)] |= {str(other) for other in beside or sources if str(other).endswith(f"/{name}")}
    return arrows


def test_headers_include_in_one_direction() -> None:
    """C and C++ sources and headers of the whole repository, wherever an include path may lead."""
    folders = [*ROOTS, *PARTS, "verification", "tests", "examples"]
    kinds = ("*.h", "*.hpp", "*.c", "*.cpp", "*.inc")
    found = [path for folder in folders for kind in kinds for path in (ROOT / folder).rglob(kind)]
    assert len(found) > 40
    assert circles(includes(found)) == []


def test_circles_of_headers_are_found_across_folders(tmp_path: Path) -> None:
    texts = {
        "a/one.h": '#pragma once\n#include "two.h"\n',
        "b/two.h": "#ifdef FAST\n  # include <c/three.h>\n#endif\n",
        "c/three.h": '#include "one.h"\n#include <vector>\n',
        "c/two.h": "",
        "a/main.cpp": '#include "one.h"\n',
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = circles(includes([tmp_path / name for name in texts]))
    assert found == [[str(tmp_path / name) for name in ("a/one.h", "b/two.h", "c/three.h")]]


def test_unit_tests_lie_where_the_sources_do() -> None:
    """The tests of `a/b/` are in `tests/unit/a/b/`."""
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    assert len(folders) > 10
    assert [str(folder) for folder in sorted(folders) if not (ROOT / folder).is_dir()] == []
