"""`tilewright tune --cpu`: schedules of the CPU kernels, by measurement on this processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from tilewright.api.source import ModelSource
from tilewright.cli import terminal
from tilewright.compiler.cpu import Target, findings
from tilewright.compiler.cpu.tune import tune
from tilewright.compiler.passes import run_passes
from tilewright.errors import UsageError

_ROWS = 20  # of the table


def run(model: Path, shapes: dict[str, list[int]], budget: float, log: str | None, json_path: str | None) -> None:
    """Searches the kernels of all nodes of a model as they are with everything on the CPU.

    Args:
        log: file the findings are added to; None for the one that every compile reads.
    """
    file = Path(log) if log is not None else findings.path()
    if file is None or log == "off":
        raise UsageError(f"the log is switched off (--log or {findings.ENVIRONMENT}); name one with --log FILE")
    if log is not None:
        terminal.prepare_output(file)
    target = Target.host()
    with terminal.Working(f"tuning {model.name}") as working, terminal.stdout_for_json(json_path):
        graph = ModelSource(model, shapes).graph()
        run_passes(graph)
        found = tune(graph, target, budget, progress=working.fraction)
        better = [k for k in found.kernels if k.best != k.default]
        try:
            findings.add((k.finding(target) for k in better), file)
        except OSError as error:
            raise UsageError(f"cannot write the log {file}: {error.strerror}") from None
    if not terminal.emit_json(json_path, found.to_dict() | {"log": str(file), "processor": findings.processor(target)}):
        return
    console = terminal.table_console()
    console.print(_table(found.kernels))
    before, after = found.default_seconds, found.seconds
    text = f"{model.name}: {len(found.kernels)} kernels, {len(better)} made faster"
    if better:
        text += f": {before * 1e3:.2f} ms alone, tuned {after * 1e3:.2f} ({after / before - 1:+.1%}); written to {file}"
    left = found.left
    console.print(text + (f"; no time for {left} more" if left else ""), markup=False, soft_wrap=True)


def _table(kernels: list[Any]) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    shown.add_column("kernel", overflow="fold", max_width=52)
    for heading in ("times", "ms", "tuned", "tried"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("schedule", overflow="fold", max_width=30)
    by_time = sorted(kernels, key=lambda k: -k.default_seconds * k.count)
    for k in by_time[:_ROWS]:
        changed = ", ".join(f"{name}={value}" for name, value in k.changes.items())
        milliseconds = (f"{k.default_seconds * 1e3:.3f}", f"{k.seconds * 1e3:.3f}")
        shown.add_row(k.label, str(k.count), *milliseconds, str(k.tried), changed or "default")
    return shown
