"""Runs one task of a sweep: compile and clock a network, bound its cycles, count cells, or compare with the RTL.

Tasks and results are plain dictionaries, so that any Dask worker with this version of Tilewright can take them. An
exception becomes a result with state "failed" and its text; only the death of the process is left to Dask.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import threading
import time
from typing import Any

from distributed import WorkerPlugin

from tilewright.api.source import ModelSource
from tilewright.common import store
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.passes import FRONTEND, run_passes
from tilewright.compiler.pipeline import compile_graph
from tilewright.errors import UsageError
from tilewright.fpga.bare.resources import synthesise
from tilewright.hw.sim.build import build
from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.isa.timing import MemoryTiming
from tilewright.measure.explain import explain
from tilewright.runtime.cost import measure, run_npu_steps
from tilewright.simulator.bound import bound_cycles
from tilewright.simulator.cycle import CycleDevice
from tilewright.sweep import inside, rungs

_models: dict[str, bytes] = {}
_compiling = threading.Lock()  # workers may have several threads; the compiler has one


#: State of the result of a task that no worker of this version did: it is none.
REFUSED = "refused"


class OtherSources(UsageError):
    """The worker cannot do what the command means."""


class Models(WorkerPlugin):
    """A Dask plugin that brings the models to every worker once, also to those that start later."""

    def __init__(self, models: dict[str, bytes]) -> None:
        self.models = models
        self.name = f"tilewright-models-{hashlib.sha256(' '.join(sorted(models)).encode()).hexdigest()[:16]}"

    def setup(self, worker: object) -> None:
        """Called by Dask in the worker."""
        _models.update(self.models)


@functools.cache
def sources_digest() -> str:
    """16 hex digits over everything that decides cycles and what is counted: `isa`, compiler, simulators, events."""
    folders = ("common/**/*", "isa/**/*", "compiler/**/*", "simulator/**/*")
    return store.sources_digest(*folders, "energy/events.py")[:16]


def evaluate(task: dict[str, Any]) -> dict[str, Any]:
    """The result of a task, with "state" "done", or "failed" or "refused" and then "error"."""
    started, cpu = time.perf_counter(), time.process_time()
    try:
        found = {"state": "done", "error": None, **_KINDS[task["kind"]](task)}
    except OtherSources as error:
        found = {"state": REFUSED, "error": str(error)}
    except MemoryError:
        found = {"state": "failed", "error": "out of memory"}
    except Exception as error:
        found = {"state": "failed", "error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    times = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    return found | {name: round(value, 3) for name, value in times.items()}


def _cycles(task: dict[str, Any]) -> dict[str, Any]:
    """Compiles and clocks one network on one configuration."""
    config, timing = NpuConfig.from_dict(task["config"]), MemoryTiming(**task["timing"])
    program = _compile(task, config, timing)
    compiled = program.compile_seconds
    found = explain(program, timing)
    counters, events = found.counters, found.events
    bound = bound_cycles(program.layers, config, timing)
    assert counters.cycles is not None and events is not None
    return {
        "cycles": counters.cycles,
        "bound_cycles": bound,
        "utilization": bound / counters.cycles if counters.cycles else 0.0,
        "dram_read_bytes": counters.bytes_read,
        "dram_written_bytes": counters.bytes_written,
        "macs": program.macs,
        "npu_macs": program.npu_macs,
        "npu_mac_fraction": program.npu_macs / program.macs if program.macs else 0.0,
        "instructions": len(program.instructions) // 16,
        "constant_bytes": len(program.constants),
        "arena_bytes": program.arena_bytes,
        "compile_seconds": round(compiled, 3),
        "events": json.dumps(events.tolist()),
        "inside": inside.record(found),
    }


def _rung(task: dict[str, Any]) -> dict[str, Any]:
    """Cycles and bytes of a network on one configuration at a rung of the ladder."""
    config, timing = NpuConfig.from_dict(task["config"]), MemoryTiming(**task["timing"])
    with _compiling:
        graph = _own_graph(task)
        run_passes(graph, FRONTEND[-1:])
        return rungs.evaluate(graph, config, _options(task, timing), task["rung"])


def _verify(task: dict[str, Any]) -> dict[str, Any]:
    """Runs a network on the RTL and on the cycle-level simulator."""
    config, timing = NpuConfig.from_dict(task["config"]), MemoryTiming(**task["timing"])
    program = _compile(task, config, timing)
    simulated = run_npu_steps(program, CycleDevice(config, timing, functional=False)).cycles
    device = RtlDevice(config, timing)
    try:
        rtl = run_npu_steps(program, device).cycles
    finally:
        device.close()
    return {"simulated_cycles": simulated, "rtl_cycles": rtl}


def _model(task: dict[str, Any]) -> dict[str, Any]:
    """Builds the Verilated RTL of a configuration, for runs to come."""
    build(NpuConfig.from_dict(task["config"]))
    return {}


def _synthesise(task: dict[str, Any]) -> dict[str, Any]:
    config = NpuConfig.from_dict(task["config"])
    found = synthesise(config, task["family"], task["tool"])
    return {name: getattr(found, name) for name in ("lut", "ff", "dsp", "bram", "fmax_mhz")}


_KINDS = {"cycles": _cycles, "rung": _rung, "verify": _verify, "model": _model, "synthesis": _synthesise}


def _compile(task: dict[str, Any], config: NpuConfig, timing: MemoryTiming) -> Program:
    with _compiling:
        graph = _own_graph(task)
        return compile_graph(graph, config, _options(task, timing), measure=functools.partial(measure, timing=timing))


def _options(task: dict[str, Any], timing: MemoryTiming) -> CompileOptions:
    return CompileOptions(effort=task["effort"], memory=timing, small_weights=task.get("small_weights", False))


def _own_graph(task: dict[str, Any]) -> Graph:
    """A copy of a task's network. Raises `OtherSources` if the command runs other sources."""
    if task["sources"] != sources_digest():
        raise OtherSources("runs other sources of Tilewright than the command; start it from the same version")
    return copy.deepcopy(_graph(task["network"]))


@functools.lru_cache(maxsize=16)
def _graph(digest: str) -> Graph:
    """A network after the passes that do not depend on the configuration, once per worker: but for the last one, which
    must not run twice, as the compiler runs all of them."""
    if digest not in _models:
        raise UsageError(f"the worker has no model {digest}")
    graph = ModelSource(_models[digest]).graph()
    run_passes(graph, FRONTEND[:-1])
    return graph
