"""What the commands share: options, loading of models and programs, tables, JSON, progress."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from isa.program import CpuStep, Program
from isa.timing import MemoryTiming
from tilewright.errors import UsageError
from tilewright.files import check_writable, write_text

PROGRESS_AFTER_SECONDS = 2.0
LOGGED_EVERY_SECONDS = 60.0
_PIPED_WIDTH = 160  # columns


def table_console() -> Console:
    """Console for results, on standard output."""
    console = Console(highlight=False, soft_wrap=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPED_WIDTH)


class Shape(click.ParamType):
    """NAME=1,3,224,224"""

    name = "NAME=SIZES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, list[int]]:
        if isinstance(value, tuple):
            return value
        name, equals, text = value.rpartition("=")
        try:
            sizes = [int(x) for x in text.replace("x", ",").split(",")] if text else []
        except ValueError:
            sizes = [-1]
        if not equals or not name or any(x < 0 for x in sizes):
            self.fail(f"{value!r} must be a name and sizes, such as input=1,3,224,224", param, ctx)
        return name, sizes


model_argument = click.argument("model", type=click.Path(path_type=Path))
config_option = click.option(
    "--config", metavar="PRESET|FILE", help="NPU configuration: a preset (see `config list`), .json or .toml file."
)
shape_option = click.option(
    "--shape", "shapes", multiple=True, type=Shape(), help="Shape of an input the model leaves open; repeatable."
)
effort_option = click.option(
    "--effort",
    type=click.IntRange(0, 3),
    default=1,
    show_default=True,
    help="Schedule search: 0 no fusion, 1 fusion by counting, 2 and 3 measure candidates with the cycle simulator.",
)


def tuning_option(flag: str) -> Callable[[Command], Command]:
    """The tuning log, under the name it has in the command; the argument is called `tuning`."""
    return click.option(
        flag,
        "tuning",
        metavar="FILE",
        help='Log of tuned schedules; by default $TILEWRIGHT_TUNING, else the user\'s. "off" uses none.',
    )


json_option = click.option(
    "--json", "json_path", metavar="FILE|-", help="Write the result as JSON; - for standard output, and nothing else."
)

latency_option = click.option(
    "--latency",
    type=click.IntRange(1, 4096),
    default=MemoryTiming().read_latency,
    show_default=True,
    help="Cycles from a read request to its first beat.",
)
interval_option = click.option(
    "--interval",
    type=click.IntRange(1, 64),
    default=MemoryTiming().read_interval,
    show_default=True,
    help="Cycles between beats; 2 is half the bandwidth.",
)


def memory_timing(latency: int, interval: int) -> MemoryTiming:
    """What `--latency` and `--interval` say."""
    return MemoryTiming(read_latency=latency, read_interval=interval, write_interval=interval)


def same_input_once(shapes: tuple[tuple[str, list[int]], ...]) -> dict[str, list[int]]:
    """The --shape options as a dict. Raises `UsageError` for a name given twice."""
    result: dict[str, list[int]] = {}
    for name, sizes in shapes:
        if name in result:
            raise UsageError(f"--shape {name} is given twice")
        result[name] = sizes
    return result


def cpus() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Working:
    """A progress line on standard error, on a terminal, when it takes longer than two seconds.

    Parameters:
        text: what is being done.
        log: where standard error is no terminal, lines with the time since the first: for each text with other words
            before its colon than the one before, and once a minute.
    """

    def __init__(self, text: str, *, log: bool = False) -> None:
        console = Console(stderr=True)
        self._log = log and not console.is_terminal
        self._stage = text
        self._start = self._logged = time.monotonic()
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._task: TaskID = self._progress.add_task(text, total=None)
        self._timer = threading.Timer(PROGRESS_AFTER_SECONDS, self._progress.start) if console.is_terminal else None

    def __enter__(self) -> Working:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._progress.stop()

    def fraction(self, text: str, done: float) -> None:
        """As `update`, the whole being 1."""
        self.update(text, done, 1.0)

    def update(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """What is being done now, and how much of it."""
        stage, now = text.partition(":")[0], time.monotonic()
        if self._log and (stage != self._stage or now - self._logged >= LOGGED_EVERY_SECONDS):
            self._stage, self._logged = stage, now
            minutes, seconds = divmod(int(now - self._start), 60)
            click.echo(f"{minutes:3}:{seconds:02} {text}", err=True)
        self._progress.update(self._task, description=text, completed=done, total=total)


class Notes:
    """Takes what a device says while it waits to the progress line there is at the time."""

    def __init__(self) -> None:
        self.working: Working | None = None

    def __call__(self, text: str | None) -> None:
        if self.working is not None and text is not None:
            self.working.update(text)


@contextlib.contextmanager
def stdout_for_json(json_path: str | None) -> Iterator[None]:
    """While standard output is kept for JSON, whatever else prints goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr) if json_path == "-" else contextlib.nullcontext():
        yield


def prepare_json(json_path: str | None) -> None:
    """Raises `UsageError` if the JSON file could not be written later."""
    if json_path not in (None, "-"):
        check_writable(str(json_path))


def emit_json(json_path: str, value: Any) -> None:
    """Writes JSON to a file or standard output."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    if json_path == "-":
        click.echo(text, nl=False)
    else:
        write_text(json_path, text)


def open_program(
    model: Path,
    config: str | None,
    shapes: tuple[tuple[str, list[int]], ...] = (),
    *,
    json_path: str | None = None,
    keep: str = "outputs",
    **options: Any,
) -> tuple[Program, bool]:
    """The program in a file, or the one compiled from a model with these options of `tilewright.compile`.

    Returns:
        The program, and whether it was compiled now. `config` and `shapes` do not change a program that is already
        compiled; the device checks the configuration.
    """
    import tilewright as tw

    given = same_input_once(shapes)
    if not model.is_file():
        raise UsageError(f"cannot read {model}: {'is a directory' if model.is_dir() else 'no such file'}")
    if Program.is_program(model):
        if given:
            raise UsageError(f"{model} is compiled already: --shape has no effect on it")
        return Program.load(model), False
    with Working(f"compiling {model.name}") as working, stdout_for_json(json_path):
        program = tw.compile_program(model, config or "base", given, keep, progress=working.fraction, **options)
    return program, True


def cpu_ops(program: Program) -> list[str]:
    """The model's nodes that run on the CPU."""
    return [op for step in program.steps if isinstance(step, CpuStep) for op in step.ops]


def totals(program: Program) -> dict[str, Any]:
    """Size and split of a program, for JSON."""
    return {
        "model": program.name,
        "config": program.config.name,
        "fingerprint": program.config.fingerprint,
        "macs": program.macs,
        "npu_macs": program.npu_macs,
        "npu_mac_fraction": program.npu_macs / program.macs if program.macs else 0.0,
        "cpu_ops": cpu_ops(program),
        "instructions": len(program.instructions) // 16,
        "constant_bytes": len(program.constants),
        "arena_bytes": program.arena_bytes,
        "host_bytes": program.host_bytes,
        "compile_seconds": program.compile_seconds,
    }


def human(value: float, unit: str = "") -> str:
    """1234567 as 1.23 M."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.{max(0, 2 - int(math.log10(abs(value) / factor)))}f} {prefix}{unit}"
    return f"{value:g} {unit}".rstrip()


Command = Callable[..., Any]
