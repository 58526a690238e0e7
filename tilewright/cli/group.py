"""The root command group: turns every way to fail into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from common.errors import TilewrightError

MISMATCH, MISTAKE, FAULT, INTERRUPTED = 1, 2, 3, 130


def _say(text: str) -> None:
    click.echo(f"tilewright: error: {' '.join(text.split())}", err=True)


class Cli(click.Group):
    """A group whose commands return an exit code or None and raise on errors.

    Args:
        modules: by command, the module that has it as `command`; imported when it is asked for.
    """

    def __init__(self, *arguments: Any, modules: dict[str, str] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._modules = modules or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._modules, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._modules:
            command: click.Command = importlib.import_module(self._modules[cmd_name]).command
            return command
        return super().get_command(ctx, cmd_name)

    def main(  # type: ignore[override]
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
        sys.exit(self._guarded(args, prog_name, complete_var, **extra))

    def _guarded(
        self, args: Sequence[str] | None, prog_name: str | None, complete_var: str | None, **extra: Any
    ) -> int:
        debug = os.environ.get("TILEWRIGHT_DEBUG", "") not in ("", "0")
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            return code if isinstance(code, int) else 0
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.ctx.get_help() if error.ctx else error.format_message())
            return 0
        except click.ClickException as error:
            _say(_usage_text(error))
            return MISTAKE
        except (click.Abort, KeyboardInterrupt):
            _say("interrupted")
            return INTERRUPTED
        except (TilewrightError, OSError) as error:
            if debug:
                traceback.print_exc()
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


def _usage_text(error: click.ClickException) -> str:
    text = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        text = f"{text.rstrip('.')} (see {error.ctx.command_path} --help)"
    return text


def _os_text(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
