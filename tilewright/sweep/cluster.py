"""The processes of a local cluster: one Dask scheduler, and workers of one thread each behind nannies.

Dask's processes execute what they receive. So they listen on the loopback interface alone, and speak TLS with a key
made for this cluster, which only its owner can read: other users of the machine cannot connect.

Scheduler and workers are processes of their own, so any of them can die without the command: nannies replace workers,
the command replaces the scheduler (`runner`). They end with the command, however it ends (`lifeline`).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from distributed.security import Security

from tilewright.common import processes, temporary
from tilewright.common.installation import import_root
from tilewright.errors import UsageError

_START_SECONDS = 60.0
_LOOPBACK = "127.0.0.1"
_PRELOAD = "tilewright.sweep.lifeline"


class LocalCluster:
    """A scheduler and workers as processes of this machine, started when the object is made.

    Args:
        jobs: workers.
        log: file their messages are added to.

    Attributes:
        address: of the scheduler.
        security: what a client needs to connect.
        scratch: folder of the processes' files, gone after `stop`.

    Raises:
        UsageError: the scheduler does not come up; names the log.
    """

    def __init__(self, jobs: int, log: Path) -> None:
        self._log = log.open("ab")
        self._scratch = temporary.Folder(prefix="tilewright-sweep-", ignore_errors=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._children = contextlib.ExitStack()
        self.scratch = Path(self._scratch.name)
        where = self.scratch / "scheduler.json"
        self.security = Security.temporary()
        loopback = (
            "--host", f"tls://{_LOOPBACK}", "--no-dashboard", "--dashboard-address", f"{_LOOPBACK}:0", *self._keys(),
        )  # fmt: skip
        try:
            self._start(
                "dask_scheduler", *loopback, "--port", "0", "--no-show", "--scheduler-file", str(where),
                "--preload", _PRELOAD,
            )  # fmt: skip
            self.address = self._wait_for(where)
            self._start(
                "dask_worker", self.address, *loopback, "--nworkers", str(jobs), "--nthreads", "1",
                "--memory-limit", "0", "--local-directory", str(self.scratch), "--preload-nanny", _PRELOAD,
            )  # fmt: skip
        except BaseException:
            self.stop()
            raise

    def _keys(self) -> list[str]:
        """The options that name the key and the certificate, written to the scratch folder, which has mode 700."""
        options = []
        for option, text in (
            ("--tls-ca-file", self.security.tls_ca_file),
            ("--tls-cert", self.security.tls_scheduler_cert),
            ("--tls-key", self.security.tls_scheduler_key),
        ):
            path = self.scratch / f"{option.removeprefix('--tls-')}.pem"
            path.touch(mode=0o600)
            path.write_text(text)
            options += [option, str(path)]
        return options

    def _start(self, module: str, *arguments: str) -> None:
        root = str(import_root())
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        environment = os.environ | {
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error",
        }
        child = processes.started(  # whose guard also ends it before its lifeline is read
            [sys.executable, "-m", f"distributed.cli.{module}", *arguments],
            stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, env=environment,
        )  # fmt: skip
        self._processes.append(self._children.enter_context(child))

    def _wait_for(self, where: Path) -> str:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and self.alive:
            with contextlib.suppress(OSError, ValueError, KeyError):
                return str(json.loads(where.read_text())["address"])
            time.sleep(0.05)
        raise UsageError(f"the scheduler did not start; see {self._log.name}")

    @property
    def alive(self) -> bool:
        """True if the scheduler and the parent of the workers run."""
        return all(process.poll() is None for process in self._processes)

    @property
    def pids(self) -> list[int]:
        """Process numbers of the scheduler and of the workers' parent, in this order."""
        return [process.pid for process in self._processes]

    def stop(self) -> None:
        """Ends the processes; workers end with their parent."""
        self._children.close()
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        self._log.close()
        self._scratch.cleanup()
