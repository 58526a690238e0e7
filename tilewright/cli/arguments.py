"""Arguments and options that several commands have, and what their values mean."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from tilewright.errors import UsageError
from tilewright.isa.config import PRESETS
from tilewright.store.files import check_readable

Command = Callable[..., Any]


def gather(kind: type, name: str) -> Callable[[Command], Command]:
    """Hands the command one object of a dataclass, as its argument `name`, in place of those that are its fields.

    A field with the metadata "of" is an object of that dataclass, gathered from arguments that are no fields of `kind`.
    """
    fields = {field.name for field in dataclasses.fields(kind)}
    inner = {field.name: field.metadata["of"] for field in dataclasses.fields(kind) if "of" in field.metadata}

    def taken(names: set[str], given: dict[str, Any]) -> dict[str, Any]:
        return {field: given.pop(field) for field in names & given.keys()}

    def wrap(command: Command) -> Command:
        @functools.wraps(command)
        def call(**given: Any) -> Any:
            found = taken(fields, given)
            for field, of in inner.items():
                found[field] = of(**taken({each.name for each in dataclasses.fields(of)}, given))
            return command(**given, **{name: kind(**found)})

        return call

    return wrap


class Shape(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """The type of --shape: NAME=1,3,224,224."""

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


class FloatRange(click.FloatRange):
    """A range of numbers, which NaN is none of: it compares with no limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if found is not None and math.isnan(found):
            self.fail(f"{value!r} is not in the range {self._describe_range()}", param, ctx)
        return found


def completes(names: Iterable[str], files: bool = False) -> Callable[..., list[CompletionItem]]:
    """Returns a function that completes a word in a shell: by names that begin like it, else, if wanted, by
    files."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return found or ([CompletionItem(incomplete, type="file")] if files else [])

    return complete


model_argument = click.argument("model", type=click.Path(path_type=Path))
config_option = click.option(
    "--config",
    metavar="PRESET|FILE",
    shell_complete=completes(PRESETS, files=True),
    help="NPU configuration: a preset (see `config list`), .json or .toml file.",
)
shape_option = click.option(
    "--shape", "shapes", multiple=True, type=Shape(), help="Shape of an input the model leaves open; repeatable."
)
host_option = click.option(
    "--host",
    metavar="NAME",
    help="Machine the CPU kernels are for: x86_64-linux, aarch64-linux, armv7-linux or riscv64-linux; "
    "by default this one with all its features.",
)


class Entry(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """The type of --entry: NAME:INPUT=1,64[:INPUT=...]."""

    name = "NAME:INPUT=SIZES"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, dict[str, list[int]]]:
        if isinstance(value, tuple):
            return value
        name, *shapes = value.split(":")
        if not name or not shapes:
            self.fail(f"{value!r} must be a name and shapes of inputs, such as prefill:input_ids=1,64", param, ctx)
        return name, dict(Shape().convert(text, param, ctx) for text in shapes)


entry_option = click.option(
    "--entry",
    "entries",
    multiple=True,
    type=Entry(),
    help="Entry point of the program, with shapes of its own; several share constants and states; repeatable.",
)
_state_option = click.option(
    "--state",
    "states",
    multiple=True,
    metavar="auto|IN=OUT",
    help="Input that becomes a state, kept from run to run, and the output that sets it, such as the cache of a "
    "language model; auto for those called past... and present...; repeatable.",
)
_rising_option = click.option(
    "--rising",
    multiple=True,
    metavar="NAME",
    help="Input whose values rise by one, such as the positions of a prompt's tokens, so that the NPU finds their rows "
    "by itself; runs refuse other values; repeatable.",
)
_last_option = click.option(
    "--last",
    multiple=True,
    metavar="NAME",
    help="Output of which only the last row is wanted, such as the logits of a prompt; repeatable.",
)


def decoder_options(command: Command) -> Command:
    """The options of language models: --state, --rising and --last."""
    return _state_option(_rising_option(_last_option(command)))


effort_option = click.option(
    "--effort",
    type=click.IntRange(0, 3),
    default=1,
    show_default=True,
    help="Schedule search: 0 no fusion, 1 fusion by counting, 2 and 3 measure candidates with the cycle simulator.",
)


def _kernels(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[Any, ...]:
    """The kernels in the file that the option names."""
    if value is None:
        return ()
    from tilewright.kernel.files import load_kernels  # the back end and the simulators

    return load_kernels(value)


kernels_option = click.option(
    "--kernels",
    callback=_kernels,
    metavar="FILE",
    help="Python file with kernels that take the place of layers or run nodes, see tilewright.kernel.",
)

objective_option = click.option(
    "--for",
    "objective",
    type=click.Choice(("cycles", "energy", "energy-delay")),
    help="What is to be small; by default cycles. Energy is that of `explain`, energy-delay its product with cycles.",
)


def tuning_option(flag: str) -> Callable[[Command], Command]:
    """The tuning log, under the name it has in the command; the argument is called `tuning`."""
    return click.option(
        flag,
        "tuning",
        metavar="FILE",
        help='Log of tuned schedules; by default $TILEWRIGHT_TUNING, else the user\'s. "off" uses none.',
    )


def check_log(tuning: str | Path | None) -> None:
    """Raises `UsageError` where a log is named from which schedules are taken, and there is none."""
    if tuning not in (None, "off"):
        check_readable(str(tuning))


trust_option = click.option(
    "--trust", is_flag=True, help="Run the native code of a program file whoever made it; see `trust`."
)
json_option = click.option(
    "--json", "json_path", metavar="FILE|-", help="Write the result as JSON; - for standard output, and nothing else."
)

clock_option = click.option(
    "--clock",
    "clock_mhz",
    type=FloatRange(0, 10_000, min_open=True),
    metavar="MHZ",
    help="Clock for times; default: that of the fastest board known to run the configuration.",
)


def same_input_once(shapes: tuple[tuple[str, list[int]], ...]) -> dict[str, list[int]]:
    """The --shape options as a dict. Raises `UsageError` for a name given twice."""
    result: dict[str, list[int]] = {}
    for name, sizes in shapes:
        if name in result:
            raise UsageError(f"--shape {name} is given twice")
        result[name] = sizes
    return result


def states_of(given: tuple[str, ...]) -> dict[str, str] | str | None:
    """The --state options as `tilewright.compile_program` takes them. Raises `UsageError` for what is no pair."""
    if not given or given == ("auto",):
        return given[0] if given else None
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, output = text.partition("=")
        if not (name and equals and output) or name in pairs:
            raise UsageError(f"states are auto, once, or INPUT=OUTPUT for each input, not {text!r}")
        pairs[name] = output
    return pairs


def cpus() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
