"""The processes of a local cluster: one Dask scheduler, and workers of one thread each behind nannies.

Scheduler and workers are processes of their own, so any of them can die without the command: nannies replace workers,
the command replaces the scheduler (`runner`). They end with the command, however it ends (`lifeline`).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tilewright.errors import UsageError

_START_SECONDS = 60.0
_PRELOAD = "tilewright.sweep.lifeline"


class LocalCluster:
    """Starts the processes.

    Args:
        jobs: workers.
        log: file their messages are added to.

    Attributes:
        address: of the scheduler.

    Raises:
        UsageError: the scheduler does not come up; names the log.
    """

    def __init__(self, jobs: int, log: Path) -> None:
        self._log = log.open("ab")
        self._scratch = tempfile.TemporaryDirectory(prefix="tilewright-sweep-", ignore_cleanup_errors=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        where = Path(self._scratch.name) / "scheduler.json"
        try:
            self._start(
                "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show",
                "--dashboard-address", ":0", "--scheduler-file", str(where), "--preload", _PRELOAD,
            )  # fmt: skip
            self.address = self._wait_for(where)
            self._start(
                "dask_worker", self.address, "--nworkers", str(jobs), "--nthreads", "1", "--no-dashboard",
                "--dashboard-address", ":0", "--memory-limit", "0", "--host", "127.0.0.1", "--local-directory",
                self._scratch.name, "--preload-nanny", _PRELOAD,
            )  # fmt: skip
        except BaseException:
            self.stop()
            raise

    def _start(self, module: str, *arguments: str) -> None:
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        environment = os.environ | {
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error",
        }
        self._processes.append(
            subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{module}", *arguments],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                env=environment,
                start_new_session=True,
            )
        )

    def _wait_for(self, where: Path) -> str:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and self.alive:
            with contextlib.suppress(OSError, ValueError, KeyError):
                return str(json.loads(where.read_text())["address"])
            time.sleep(0.05)
        raise UsageError(f"the scheduler did not start; see {self._log.name}")

    @property
    def alive(self) -> bool:
        """Scheduler and the parent of the workers run."""
        return all(process.poll() is None for process in self._processes)

    @property
    def pids(self) -> list[int]:
        """Of scheduler and workers' parent, in this order."""
        return [process.pid for process in self._processes]

    def stop(self) -> None:
        """Ends the processes; workers end with their parent."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        self._log.close()
        self._scratch.cleanup()
