"""The files beside the Verilog that let foreign projects simulate it: C driver, benches, data of a network, Makefile.

The data are what a run on the cycle-level simulator makes of the memory, so that a bench, which knows nothing of
Tilewright, compares bytes and cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files as resources
from typing import Any

import numpy as np

from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, Launch
from tilewright.isa.program import Program
from tilewright.runtime.executor import Executor
from tilewright.runtime.inputs import random_inputs
from tilewright.simulator.cycle import CycleDevice

DRIVER = ("tilewright_npu.c", "tilewright_npu.h", "tilewright_npu_registers.h")
DATA = "bench/bench.txt"
_BENCH = ("bench.cpp", "bench_cocotb.py")
#: Bytes of a record: what differs is written in whole pieces of them.
_PIECE = 64


class _Recorder(CycleDevice):
    """A cycle-level simulator that keeps a record of its runs.

    Attributes:
        lines: of `bench.txt`.
        nbytes: size of the memory that the runs used.
    """

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(config)
        self.lines: list[str] = []
        self.nbytes = 0
        self._known = np.zeros(0, np.uint8)

    def execute(self, launch: Launch, **options: Any) -> Counters:
        """Runs a launch; see `CycleDevice.execute`."""
        self.nbytes = max(self.nbytes, *(r.base + r.size for r in launch.regions))
        self.lines += self._differences("write")
        counters = super().execute(launch, **options)
        self.lines += self._differences("expect")
        for number, region in enumerate(launch.regions):
            self.lines.append(f"region {number} {region.base} {region.size} {region.read + 2 * region.write}")
        self.lines.append("run {} {} {} {}".format(*launch.program, counters.cycles))
        return counters

    def _differences(self, kind: str) -> Iterator[str]:
        """Yields a record of every piece of memory that differs from what was known of it."""
        now = self.memory.data[: -(-self.nbytes // _PIECE) * _PIECE].copy()
        known = np.zeros(now.size, np.uint8)
        known[: self._known.size] = self._known
        for piece in np.unique(np.flatnonzero(now != known) // _PIECE) * _PIECE:
            yield f"{kind} {piece} {now[piece : piece + _PIECE].tobytes().hex()}"
        self._known = now


def bench_data(program: Program, title: str) -> str:
    """Returns `bench.txt`: memory, runs and results of the program for random inputs.

    Raises:
        DeviceError: the machine stops. UsageError: the host cannot run a kernel of the program.
    """
    config = program.config
    recorder = _Recorder(config)
    Executor(program, recorder).run(random_inputs(program))
    t = recorder.timing
    timing = f"{t.read_latency} {t.write_latency} {t.read_interval} {t.write_interval}"
    nbytes = -(-recorder.nbytes // _PIECE) * _PIECE
    head = [f"# {title}", f"fingerprint {config.fingerprint}", f"timing {timing}", f"memory {nbytes}"]
    return "\n".join([*head, *recorder.lines, ""])


def project_files(program: Program, title: str, top: str) -> dict[str, str]:
    """Returns the text of every file by its path: driver, benches, Makefile.

    Args:
        title: what the bench runs, for people.
        top: name of the module with the ports of AXI.
    """
    texts = {f"driver/{name}": (resources("tilewright.driver") / "c" / name).read_text("utf-8") for name in DRIVER}
    texts["bench/tilewright_memory.h"] = (resources("tilewright.isa") / "include" / "tilewright_memory.h").read_text(
        "utf-8"
    )
    templates = resources("tilewright.export") / "rtl_bench"
    for name, folder in (*((name, "bench/") for name in _BENCH), ("Makefile", "")):
        texts[folder + name] = (templates / name).read_text("utf-8").replace("@TOP@", top)
    return texts | {DATA: bench_data(program, title)}
