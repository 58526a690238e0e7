"""A sweep survives `kill -9` of a worker, of the scheduler and of the command, and the same command resumes it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.common.paths import ROOT
from tests.common.waiting import HANG, wait_until

SPACE = """
base = "tiny"
models = ["autoencoder:features=64,hidden=32"]
[axes]
queue_depth = [2, 4, 8, 16]
[memory]
read_latency = [16, 32, 64, 128, 256, 512]
[search]
prune = false
"""
RESULTS = 4 * 6


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tilewright", "sweep", str(folder / "space.toml"), "-o", str(folder / "out")]
    return subprocess.Popen([*command, *options], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def results(folder: Path) -> int:
    path = folder / "out" / "sweep.sqlite"
    if not path.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            return int(database.execute("select count(*) from result where state = 'done'").fetchone()[0])
    except sqlite3.OperationalError:  # being made
        return 0


def wait_for(count: int, folder: Path, command: subprocess.Popen[str]) -> None:
    """Waits until the sweep has so many results."""

    def there() -> bool:
        assert command.poll() is None, command.communicate()
        return results(folder) >= count

    wait_until(there, f"{count} results")


def cluster_of(command: subprocess.Popen[str]) -> dict[str, list[psutil.Process]]:
    """Scheduler, parent of the workers, workers."""
    found: dict[str, list[psutil.Process]] = {"scheduler": [], "parent": [], "worker": []}
    for child in psutil.Process(command.pid).children():
        line = " ".join(child.cmdline())
        if "dask_scheduler" in line:
            found["scheduler"].append(child)
        elif "dask_worker" in line:
            found["parent"].append(child)
            found["worker"] += [c for c in child.children() if "spawn_main" in " ".join(c.cmdline())]
    return found


@pytest.mark.slow
def test_kills_of_worker_scheduler_and_command(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text(SPACE)
    command = start(tmp_path, "--jobs", "2")
    wait_for(2, tmp_path, command)
    os.kill(cluster_of(command)["worker"][0].pid, signal.SIGKILL)
    seen = results(tmp_path)
    wait_for(seen + 3, tmp_path, command)
    os.kill(cluster_of(command)["scheduler"][0].pid, signal.SIGKILL)
    seen = results(tmp_path)
    wait_for(seen + 3, tmp_path, command)
    processes = [p for group in cluster_of(command).values() for p in group]
    command.kill()
    command.wait()
    before = results(tmp_path)
    assert 8 <= before < RESULTS
    psutil.wait_procs(processes, timeout=HANG)
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes), "processes were left"
    with sqlite3.connect(tmp_path / "out" / "sweep.sqlite") as database:
        assert database.execute("pragma integrity_check").fetchone()[0] == "ok"

    resumed = start(tmp_path, "--jobs", "2", "--json", "-")
    output, errors = resumed.communicate(timeout=HANG)
    assert resumed.returncode == 0, errors
    report = json.loads(output)
    assert (report["computed"], report["reused"]) == (RESULTS - before, before)
    assert [p["state"] for p in report["points"]] == ["done"] * RESULTS
    assert results(tmp_path) == RESULTS


@pytest.mark.slow
def test_scheduler_of_others_gone(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text(SPACE)
    command = start(tmp_path, "--scheduler", "tcp://127.0.0.1:9")
    _, errors = command.communicate(timeout=HANG)
    assert command.returncode == 2
    assert errors.splitlines()[-1].startswith("tilewright: error: no Dask scheduler at tcp://127.0.0.1:9"), errors
    assert "Traceback" not in errors
