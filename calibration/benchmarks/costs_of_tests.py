"""CPU seconds of the tests with their child processes, which do not depend on the load of the machine.

    python -m calibration.benchmarks.costs_of_tests [--slowest N] [pytest arguments]

runs the tests named (all of them otherwise) in one process and prints a row for each folder and the dearest tests.
The time of a fixture stands with the test that asked for it first.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import pytest
from rich.console import Console
from rich.table import Table


def cpu_seconds() -> float:
    """Returns the CPU time in seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@dataclass
class Costs:
    """A pytest plugin that notes the CPU seconds of collection and of each test."""

    of_test: dict[str, float] = field(default_factory=dict)
    collection: float = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        """Measures the whole collection."""
        before = cpu_seconds()
        result = yield
        self.collection = cpu_seconds() - before
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measures one test with its fixtures."""
        before = cpu_seconds()
        result = yield
        self.of_test[item.nodeid] = cpu_seconds() - before
        return result

    def by_folder(self) -> dict[str, tuple[int, float]]:
        """Returns the number of tests and the CPU seconds of each folder."""
        found: dict[str, list[float]] = defaultdict(list)
        for name, seconds in self.of_test.items():
            found[str(PurePosixPath(name.split("::")[0]).parent)].append(seconds)
        return {folder: (len(found[folder]), sum(found[folder])) for folder in sorted(found)}

    def show(self, slowest: int) -> None:
        """Prints a table of the folders, and the `slowest` tests."""
        console = Console()
        folders = Table("folder", "tests", "CPU s", title="CPU seconds by folder")
        for folder, (count, seconds) in self.by_folder().items():
            folders.add_row(folder, str(count), f"{seconds:.1f}")
        folders.add_row("collection", "", f"{self.collection:.1f}")
        folders.add_row("all", str(len(self.of_test)), f"{sum(self.of_test.values()) + self.collection:.1f}")
        console.print(folders)
        for name, seconds in sorted(self.of_test.items(), key=lambda item: -item[1])[:slowest]:
            console.print(f"{seconds:7.1f} s  {name}", soft_wrap=True, highlight=False, markup=False)


def main() -> int:
    """Runs pytest with the plugin. Returns its exit code."""
    parser = argparse.ArgumentParser(description="CPU seconds of the tests")
    parser.add_argument("--slowest", type=int, default=20, help="how many of the dearest tests to list")
    options, arguments = parser.parse_known_args()
    costs = Costs()
    code = pytest.main(["-q", *(arguments or ["tests"])], plugins=[costs])
    costs.show(options.slowest)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
