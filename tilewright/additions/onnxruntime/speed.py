"""Measures the overhead of the execution provider: runs of a session beside `Device.run`, and session creation.

`tilewright bench --onnxruntime`. Runs alternate, so that a busy machine slows both. Seconds are those of the clock and
of processors, in this process and the compiler process together; the overhead is that of the processors' medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.api.compilation import compile_program
from tilewright.common import temporary
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.measure.speed import speed_model
from tilewright.onnxruntime.library import compiler_process
from tilewright.onnxruntime.session import onnxruntime_session
from tilewright.runtime.devices import Device
from tilewright.runtime.inputs import random_inputs


def measure(
    model: str | Path | None = None,
    config: str | Path | NpuConfig = "base",
    shapes: Mapping[str, Sequence[int]] | None = None,
    runs: int = 20,
    sessions: int = 10,
    cycles: int = 0,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Measures on the functional simulator.

    Args:
        model: ONNX file; None for ResNet-18.
        shapes: of inputs that the model leaves open.
        cycles: sessions to make, run and drop, while the resident memory is watched.
    """
    if isinstance(config, NpuConfig):
        raise UsageError("a session takes the name or the file of a configuration")
    name, proto, _ = speed_model(model)
    progress("compiling")
    program = compile_program(proto, config, shapes)
    feeds = random_inputs(program, 1)
    with temporary.Folder() as folder:
        context = Path(folder) / "context.onnx"
        options = _options(shapes, proto)
        options.add_session_config_entry("ep.context_enable", "1")
        options.add_session_config_entry("ep.context_file_path", str(context))
        session = onnxruntime_session(proto, session_options=options, config=str(config))
        progress("running")
        with Device("functional") as device:
            times = {"device": _Times(), "session": _Times(), "from_context": _Times()}
            device.run(program, feeds)
            session.run(None, feeds)
            for _ in range(runs):
                times["device"].take(lambda: device.run(program, feeds))
                times["session"].take(lambda: session.run(None, feeds))
        progress("making sessions")
        for _ in range(sessions):
            times["from_context"].take(lambda: onnxruntime_session(context, session_options=_options(None, proto)))
        memory = _memory(context, feeds, cycles, progress) if cycles else {}
    device_cpu = statistics.median(times["device"].cpu)
    return {
        "model": name,
        "runs": runs,
        "sessions": sessions,
        "overhead": statistics.median(times["session"].cpu) / device_cpu - 1,
        **{f"{what}_seconds": min(t.wall) for what, t in times.items()},
        **{f"{what}_cpu_seconds": statistics.median(t.cpu) for what, t in times.items()},
        **memory,
    }


class _Times:
    """Seconds of single calls, by the clock and of the processors of both processes."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def take(self, call: Callable[[], object]) -> None:
        """Keeps the times of a call; its result is dropped after that."""
        used, start = _cpu_seconds(), time.perf_counter()
        result = call()
        self.wall.append(time.perf_counter() - start)
        self.cpu.append(_cpu_seconds() - used)
        del result


def _cpu_seconds() -> float:
    """Processor seconds of this process and the compiler process. Raises `UsageError` where /proc has none."""
    try:
        tasks = Path(f"/proc/{compiler_process()}/task").iterdir()
        return time.process_time() + sum(int((t / "schedstat").read_text().split()[0]) for t in tasks) / 1e9
    except OSError:
        raise UsageError("processor time of another process is read from /proc, which this machine lacks") from None


def _memory(context: Path, feeds: Mapping[str, Any], cycles: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Resident bytes of both processes after a tenth of the cycles and after all of them."""
    found: dict[str, list[int]] = {"host": [], "compiler": []}
    for i in range(1, cycles + 1):
        session = onnxruntime_session(context, session_options=_options(None, None))
        session.run(None, feeds)
        del session
        if i in (-(-cycles // 10), cycles):
            progress(f"{i} of {cycles} sessions")
            found["host"].append(_resident("self"))
            found["compiler"].append(_resident(str(compiler_process())))
    return {"cycles": cycles, "resident_bytes": found}


def _resident(process: str) -> int:
    line = next(x for x in Path(f"/proc/{process}/status").read_text().splitlines() if x.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def _options(shapes: Mapping[str, Sequence[int]] | None, proto: Any) -> Any:
    """Makes the options of a session, with open dimensions of the inputs fixed."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # others would wait for work on a processor of their own, which is no work
    for value in proto.graph.input if shapes else ():
        for dim, size in zip(value.type.tensor_type.shape.dim, (shapes or {}).get(value.name, ())):
            if dim.dim_param:
                options.add_free_dimension_override_by_name(dim.dim_param, int(size))
    return options
