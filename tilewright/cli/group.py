"""The root command group: turns every way to fail into one line and an exit code."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from common import interrupts
from common.errors import TilewrightError
from tilewright.cli.printed import open_standard_streams, printed

MISMATCH, MISTAKE, FAULT = 1, 2, 3
#: As of a process that SIGPIPE ended: what read standard output is gone.
UNREAD = 128 + signal.SIGPIPE


_LONGEST = 4000


def one_line(text: str) -> str:
    """A message as one printable line: what of a stranger's file stands in it can be long, or no text at all."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens
        click.echo(f"tilewright: error: {one_line(text)}", err=True)


class Cli(click.Group):
    """A group whose commands return an exit code or None and raise on errors.

    Args:
        summaries: what the group's help says of each command. A command is `command` of the module of its name in
            `package`, imported when it is asked for.
        package: with the modules of the commands.
    """

    def __init__(
        self, *arguments: Any, summaries: dict[str, str] | None = None, package: str = "", **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._summaries, self._package = summaries or {}, package

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._summaries, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._summaries:
            with interrupts.end_at_once():
                module = importlib.import_module(f"{self._package}.{cmd_name.replace('-', '_')}")
            command = module.command
            assert isinstance(command, click.Command)
            return command
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, none of which is imported for it."""
        room = formatter.width - 6 - max((len(name) for name in self._summaries), default=0)
        rows = [
            (name, click.Command(name, help=text).get_short_help_str(room)) for name, text in self._summaries.items()
        ]
        if not rows:
            super().format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl(rows)

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
        with interrupts.heard_at_once(), printed():
            code = self._guarded(args, prog_name, complete_var, **extra)
            if code == 0:
                code = _flushed()
        sys.exit(code)

    def _guarded(
        self, args: Sequence[str] | None, prog_name: str | None, complete_var: str | None, **extra: Any
    ) -> int:
        output = sys.stdout
        debug = os.environ.get("TILEWRIGHT_DEBUG", "") not in ("", "0")
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            if interrupts.told_to_end():
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
            _say(_usage_text(error))
            return MISTAKE
        except (click.Abort, KeyboardInterrupt):
            _say(interrupts.message())
            return interrupts.status()
        except (TilewrightError, OSError) as error:
            if debug:
                traceback.print_exc()
            if isinstance(error, BrokenPipeError) and _flushed() == UNREAD:
                return UNREAD
            _say(_os_text(error) if isinstance(error, OSError) else str(error))
            return MISTAKE
        except Exception as error:
            if debug:
                traceback.print_exc()
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{os.path.basename(where.filename)}:{where.lineno}"
            hint = "" if debug else " (set TILEWRIGHT_DEBUG=1 for the traceback)"
            _say(f"internal fault: {type(error).__name__} at {place}: {error}{hint}")
            return FAULT


def _flushed() -> int:
    """An exit code: what was printed is written out, as far as somebody reads it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _to_nowhere()
        return UNREAD
    except OSError as error:
        _say(f"cannot write to standard output: {error.strerror or error}")
        _to_nowhere()
        return MISTAKE
    return 0


def _to_nowhere() -> None:
    """Standard output is not written to any more, also not with what Python flushes at its end."""
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
