"""Sessions of onnxruntime with the provider in them, for programs that want one in a line."""

from __future__ import annotations

import threading
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
    if options.get("kernels"):  # the compiler's process may run elsewhere
        options["kernels"] = Path(str(options["kernels"])).absolute()
    texts = {name: str(value) for name, value in {"device": device, **options}.items()}
    chosen.add_provider_for_devices(register(), texts)
    source = model if isinstance(model, str | bytes) else str(model) if isinstance(model, Path) else None
    try:
        return ort.InferenceSession(
            model.SerializeToString() if source is None else source,  # type: ignore[union-attr]
            chosen,
            enable_fallback=0,  # an error is one, and not a session without the provider
        )
    except Exception as error:
        raise UsageError(f"onnxruntime makes no session: {_line(error)}") from None


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
