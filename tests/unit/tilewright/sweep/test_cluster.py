"""The local cluster can be reached from this machine alone, and only with its key."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from distributed import Client

from tests.common.waiting import HANG
from tilewright.sweep.cluster import LocalCluster

pytestmark = pytest.mark.slow


def test_only_its_owner_reaches_it(tmp_path: Path) -> None:
    cluster = LocalCluster(1, tmp_path / "log")
    try:
        with Client(cluster.address, timeout=HANG, set_as_default=False, security=cluster.security) as client:
            client.wait_for_workers(1, timeout=HANG)
            assert client.submit(sum, [1, 2, 3]).result(timeout=HANG) == 6
            processes = [psutil.Process(pid) for pid in cluster.pids]
            processes += [child for process in processes for child in process.children(recursive=True)]
            listening = {
                c.laddr.ip for p in processes for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN
            }
            assert listening == {"127.0.0.1"}
        assert cluster.address.startswith("tls://127.0.0.1:")
        plain = cluster.address.replace("tls://", "tcp://")
        with pytest.raises((OSError, TimeoutError)):
            Client(plain, timeout=3, set_as_default=False)
        assert {p.stat().st_mode & 0o077 for p in Path(cluster.scratch).glob("*.pem")} == {0}
    finally:
        cluster.stop()
