"""The root command group: turns every way to fail into one line and an exit code."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import click

from tilewright.cli.blas_threads import one_thread
from tilewright.cli.printed import Printed, open_standard_streams, printed
from tilewright.common import interrupts
from tilewright.common.errors import TilewrightError
from tilewright.common.installation import told
from tilewright.common.quiet import warnings_in_a_line
from tilewright.common.text import suggest
from tilewright.registry import LazyCommand, load

MISMATCH, MISTAKE, FAULT = 1, 2, 3
#: As of a process that SIGPIPE ended: what read standard output is gone.
UNREAD = 128 + signal.SIGPIPE


_LONGEST = 4000


def one_line(text: str) -> str:
    """A message as one printable line: what of a stranger's file stands in it can be long, or no text at all."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _print_error(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens
        click.echo(f"tilewright: error: {one_line(text)}", err=True)


class Group(click.Group):
    """A group that lists the first sentence of each command uncut, and suggests a name for an unknown command.

    Args:
        lazy: commands that are imported when they are called, by name.
        headings: names of commands by the heading that they are listed under; all under one by default.
    """

    def __init__(
        self,
        *arguments: Any,
        lazy: Mapping[str, LazyCommand] | None = None,
        headings: Mapping[str, Sequence[str]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._lazy = lazy or {}
        self._headings = headings or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self._lazy, *super().list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        place = self._lazy[cmd_name].place
        several = place.startswith("tilewright.quantize.")  # which multiplies large matrices
        with interrupts.end_at_once(), contextlib.nullcontext() if several else one_thread():
            command = load(place)
        assert isinstance(command, click.Command)
        return command

    def summaries(self, ctx: click.Context) -> dict[str, str]:
        """First sentence of each command's help, by name. No lazy command is imported for it."""
        found = {name: self._lazy[name].summary for name in self._lazy}
        for name in super().list_commands(ctx):
            command = super().get_command(ctx, name)
            if command is not None and not command.hidden:
                found[name] = command.get_short_help_str(sys.maxsize)
        return {name: found[name] for name in self.list_commands(ctx) if name in found}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        summaries = self.summaries(ctx)
        for heading, names in (self._headings or {"Commands": [*summaries]}).items():
            with formatter.section(heading):
                formatter.write_dl([(name, summaries[name]) for name in names])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if self.get_command(ctx, args[0]) is not None or args[0].startswith("-"):
                raise
            hint = suggest(args[0], self.list_commands(ctx))
            raise click.UsageError(f"No such command {args[0]!r}{hint}", ctx) from error


class Cli(Group):
    """The root group: its commands return an exit code or None and raise on errors, and are listed as they are given.

    Under `--json -` an error is a JSON object on standard output too, with its line as `error` and the `exit_code`.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *click.Group.list_commands(self, ctx)]

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs and exits; with `standalone_mode=False` returns or raises like click."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        open_standard_streams()
        with interrupts.interruptible(), warnings_in_a_line(), printed() as output:
            code = self._guarded(output, args, prog_name, complete_var, **extra)
            if code == 0:
                code = _flushed()
            else:  # what cannot be written is said by now, and would change the code as Python ends
                try:
                    sys.stdout.flush()
                except OSError:
                    _to_nowhere()
        sys.exit(code)

    def _guarded(
        self, output: Printed, args: Sequence[str] | None, prog_name: str | None, complete_var: str | None, **extra: Any
    ) -> int:
        debug = os.environ.get("TILEWRIGHT_DEBUG", "") not in ("", "0")
        given = list(sys.argv[1:] if args is None else args)

        def fail(text: str, code: int) -> int:
            _print_error(text)
            if json_on_stdout(given) and not output.used:
                try:
                    print(json.dumps({"error": one_line(text), "exit_code": code}, indent=2), file=output, flush=True)
                except OSError:
                    _to_nowhere()
            return code

        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            if interrupts.termination_requested():
                return interrupts.status()
            return code if isinstance(code, int) else 0
        except SystemExit as error:
            # What rich and click make of a pipe that nobody reads; click puts in another standard output.
            if isinstance(error.__context__, BrokenPipeError) or sys.stdout is not output:
                sys.stdout = output
                _to_nowhere()
                return UNREAD
            raise
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.ctx.get_help() if error.ctx else error.format_message())
            return 0
        except click.ClickException as error:
            return fail(_usage_text(error), MISTAKE)
        except (click.Abort, KeyboardInterrupt):
            return fail(interrupts.message(), interrupts.status())
        except (TilewrightError, OSError) as error:
            if debug:
                traceback.print_exc()
            if isinstance(error, BrokenPipeError) and _flushed() == UNREAD:
                return UNREAD
            return fail(_os_text(error) if isinstance(error, OSError) else str(error), MISTAKE)
        except Exception as error:
            if debug:
                traceback.print_exc()
            if isinstance(error, ModuleNotFoundError) and (missing := told(error, _EXTRAS.get(given[0], ""))):
                return fail(str(missing), MISTAKE)
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{os.path.basename(where.filename)}:{where.lineno}"
            hint = "" if debug else " (set TILEWRIGHT_DEBUG=1 for the traceback)"
            return fail(f"internal fault: {type(error).__name__} at {place}: {error}{hint}", FAULT)


#: The extra of a command that needs several packages which compiling and simulating do not.
_EXTRAS = {"fpga": "fpga", "sweep": "sweep", "report": "sweep"}


def json_on_stdout(arguments: Sequence[str]) -> bool:
    """True if the command line asks for JSON on standard output, whether or not it can be parsed."""
    given = list(arguments)[: list(arguments).index("--") if "--" in arguments else None]
    return "--json=-" in given or ("--json", "-") in itertools.pairwise(given)


def _flushed() -> int:
    """Flushes standard output, as far as somebody reads it; returns an exit code."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _to_nowhere()
        return UNREAD
    except OSError as error:
        _print_error(f"cannot write to standard output: {error.strerror or error}")
        _to_nowhere()
        return MISTAKE
    return 0


def _to_nowhere() -> None:
    """Redirects standard output to nowhere, also for what Python flushes at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _usage_text(error: click.ClickException) -> str:
    text = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        text = f"{text.rstrip('.')} (see {error.ctx.command_path} --help)"
    return text


def _os_text(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
