"""CPU seconds of compiles of whole networks, beside those of Vela, Arm's compiler for the Ethos-U, where it is there.

`tilewright bench --compile`. Both compilers are processes of their own, so that what they import and start counts. Ours
finds no program and no CPU kernel in its cache, but the native code that all compiles share. CPU seconds are those of a
process and all that it starts, as a busy machine makes hardly more of them; medians are reported.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.api.build import NATIVE
from tilewright.common import temporary
from tilewright.common.processes import Command, run
from tilewright.common.store import cache_folder
from tilewright.errors import UsageError
from tilewright.measure.speed import cpu_seconds
from tilewright.store.files import check_readable, is_tflite

ACCELERATOR = "ethos-u65-256"
#: Folders of the cache with the native code that all compiles share.
_SHARED = ("compiler", "simulator")


def networks(model: Path | None = None) -> list[tuple[str, Path]]:
    """Name and file of a network, or of each in the folder $TILEWRIGHT_MODELS. Raises `UsageError` if there is none."""
    if model is not None:
        check_readable(model)
        return [(model.name, model)]
    named = os.environ.get("TILEWRIGHT_MODELS")
    folder = Path(named or ".")
    found = sorted(path for kind in ("onnx", "tflite") for path in folder.rglob(f"*.{kind}")) if named else []
    if not found:
        raise UsageError("--compile needs networks: set TILEWRIGHT_MODELS to a folder with .onnx or .tflite files, or "
                         "give --model")  # fmt: skip
    return [(str(path.relative_to(folder)), path) for path in found]


def measure(
    model: Path | None = None,
    *,
    config: str = "base",
    shapes: Mapping[str, Sequence[int]] | None = None,
    runs: int = 5,
    progress: Callable[..., None] = lambda *_: None,
) -> dict[str, Any]:
    """Compiles networks `runs` times each.

    Args:
        model: a network in place of those of `networks`.
        config: preset or file of the configuration.
        shapes: of the model's inputs, where it leaves sizes open.

    Returns:
        `networks`, each with name, bytes, `seconds` and `cpu_seconds`, those of Vela for a TFLite model, and `ratio`,
        ours over Vela's CPU seconds; None for what is not known, with the reason as `error` or `vela_error`. Beside
        them `vela`, its version, None where no command `vela` is on the PATH.
    """
    chosen = networks(model)
    for build in NATIVE:
        progress("building native code")
        build()
    options = [part for name, sizes in (shapes or {}).items() for part in ("--shape", f"{name}={_listed(sizes)}")]
    vela = shutil.which("vela")
    rows = []
    for index, (name, path) in enumerate(chosen):
        progress(f"compiling {name}", index, len(chosen))
        row: dict[str, Any] = {"name": name, "bytes": path.stat().st_size}
        command = ["compile", str(path.absolute()), "-o", "out.twp", "--config", config, *options]
        row |= _compiled([sys.executable, "-P", "-m", "tilewright", *command], runs, _own_environment)
        row |= dict.fromkeys(("vela_seconds", "vela_cpu_seconds", "ratio"))
        if vela is not None and is_tflite(path):
            progress(f"compiling {name}: Vela", index, len(chosen))
            asked = [vela, str(path.absolute()), "--accelerator-config", ACCELERATOR, "--output-dir", "."]
            row |= {f"vela_{key}": value for key, value in _compiled(asked, runs, _others_environment).items()}
            if row["cpu_seconds"] and row["vela_cpu_seconds"]:
                row["ratio"] = row["cpu_seconds"] / row["vela_cpu_seconds"]
        rows.append(row)
    version = None if vela is None else run(Command([vela, "--version"])).output.decode(errors="replace").strip()
    return {"config": config, "runs": runs, "vela": version, "accelerator": ACCELERATOR, "networks": rows}


def _compiled(command: Sequence[str], runs: int, environment: Callable[[Path], Mapping[str, str]]) -> dict[str, Any]:
    """Medians of runs of a compiler, each in an empty folder; None, and the last line of what it says, where it fails.

    Args:
        environment: of a run in the folder.
    """
    times = []
    for _ in range(runs):
        with temporary.Folder() as folder:
            begun, used = time.perf_counter(), cpu_seconds()
            outcome = run(Command(command, environment=environment(Path(folder)), folder=Path(folder)))
            times.append((time.perf_counter() - begun, cpu_seconds() - used))
        if outcome.status:
            said = (outcome.errors or outcome.output).decode(errors="replace").strip().splitlines()
            return {"seconds": None, "cpu_seconds": None, "error": said[-1] if said else f"status {outcome.status}"}
    seconds, cpu = (statistics.median(column) for column in zip(*times))
    return {"seconds": seconds, "cpu_seconds": cpu}


def _own_environment(folder: Path) -> Mapping[str, str]:
    """Variables with a cache that has nothing but the native code that all compiles share."""
    cache = folder / "cache"
    cache.mkdir()
    for name in _SHARED:
        (cache / name).symlink_to(cache_folder().absolute() / name)
    paths = os.pathsep.join(path for path in sys.path if path)
    own = {"TILEWRIGHT_CACHE": str(cache), "TILEWRIGHT_TUNING": "off", "PYTHONPATH": paths}
    return os.environ | own


def _others_environment(folder: Path) -> Mapping[str, str]:
    """Variables without the folders of our modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _listed(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))
