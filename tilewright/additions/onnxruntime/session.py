"""Sessions of onnxruntime with the provider in them, for programs that want one in a line."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.common.installation import MissingPackageError, require
from tilewright.errors import UsageError
from tilewright.onnxruntime.library import onnxruntime_library, reports

if TYPE_CHECKING:
    import onnx
    import onnxruntime

PROVIDER = "TilewrightExecutionProvider"
NAME = "tilewright"

_lock = threading.Lock()


def register() -> list[Any]:
    """Makes the provider known to onnxruntime, once, and returns its devices.

    Raises:
        UsageError: onnxruntime is missing, too old, or cannot load the library. BuildError: no C++ compiler.
    """
    ort = _onnxruntime()
    with _lock:
        found = [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER]
        if not found:
            try:
                ort.register_execution_provider_library(NAME, onnxruntime_library())
            except Exception as error:  # onnxruntime has kinds of its own
                raise UsageError(f"onnxruntime does not take the provider: {_line(error)}") from None
            found = [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER]
    return found


def onnxruntime_session(
    model: str | Path | bytes | onnx.ModelProto,
    device: str = "functional",
    *,
    session_options: onnxruntime.SessionOptions | None = None,
    **options: object,
) -> onnxruntime.InferenceSession:
    """An `onnxruntime.InferenceSession` that runs what it can on a device of ours, and the rest itself.

    Args:
        model: file, bytes, or a ModelProto.
        device: any name for `Device`: functional, cycle, rtl, tcp://HOST:PORT, board://ADDRESS.
        session_options: of onnxruntime, left as they are but for the provider, which is added.
        options: of the provider, see `Options`: config, claim, effort, threads, runs, kernels.

    Raises:
        UsageError: see `register`; an option is unknown; or onnxruntime cannot make the session.
    """
    ort = _onnxruntime()
    chosen = ort.SessionOptions() if session_options is None else session_options
    stand_ins: list[str] = []
    if options.get("kernels"):  # the compiler's process may run elsewhere
        options["kernels"] = file = Path(str(options["kernels"])).absolute()
        model, stand_ins = _with_stand_ins(model, file)
    texts = {name: str(value) for name, value in {"device": device, **options}.items()}
    chosen.add_provider_for_devices(register(), texts)
    source = model if isinstance(model, str | bytes) else str(model) if isinstance(model, Path) else None
    try:
        session = ort.InferenceSession(
            model.SerializeToString() if source is None else source,  # type: ignore[union-attr]
            chosen,
            enable_fallback=0,  # an error is one, and not a session without the provider
        )
    except Exception as error:
        raise UsageError(f"onnxruntime makes no session: {_line(error)}") from None
    _require_taken(stand_ins)
    return session


def _with_stand_ins(
    model: str | Path | bytes | onnx.ModelProto, file: Path
) -> tuple[str | Path | bytes | onnx.ModelProto, list[str]]:
    """A model with stand-ins for the nodes that only kernels run, and the names of these nodes."""
    from tilewright.kernel.files import load_kernels  # sessions without kernels need not wait for the compiler
    from tilewright.onnxruntime.stand_ins import with_stand_ins

    kernels = load_kernels(file)
    made, names = with_stand_ins(model, kernels) if any(k.runs_nodes for k in kernels) else (None, [])
    return made or model, names


def _require_taken(stand_ins: Sequence[str]) -> None:
    """Raises UsageError for a node with a stand-in that no kernel runs in the session made last: it would be zeros."""
    found: Any = reports()
    taken = found[-1]["kernels"] if stand_ins and found else []
    for name in stand_ins:
        if name not in taken:
            reasons = [left["reason"] for report in found[::-1] for left in report["left"] if left["node"] == name]
            raise UsageError(f"onnxruntime makes no session: no kernel runs {name!r}: {next(iter(reasons), 'unknown')}")


def onnxruntime_report() -> str:
    """Reports on the last session of this process: a line per program and per node left to onnxruntime. The line of a
    node gives the reason. "" before the first session."""
    found: Any = reports()[-1:]
    lines = []
    for graph in found:
        for program in graph["programs"]:
            share = f"{program['npu_macs'] / program['macs']:.1%}" if program["macs"] else "none"
            lines.append(
                f"{program['nodes']} of {graph['nodes']} nodes on {graph['device']} ({graph['config']}): {share} of "
                f"{program['macs']:,} MACs on the NPU"
            )
        lines += [f"left to onnxruntime: {left['op']} {left['node']!r}: {left['reason']}" for left in graph["left"]]
    return "\n".join(lines)


def _onnxruntime() -> Any:
    try:
        ort = require("onnxruntime")
    except MissingPackageError:
        raise
    except ImportError as error:
        raise UsageError(f"onnxruntime cannot be imported: {error}") from None
    if not hasattr(ort, "register_execution_provider_library"):
        raise UsageError(f"onnxruntime {ort.__version__} has no plugin providers; 1.23 and later have")
    return ort


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
