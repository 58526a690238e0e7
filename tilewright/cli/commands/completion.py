"""`tilewright completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tilewright.errors import UsageError


@click.command(
    "completion",
    epilog=(
        "\b\nExamples:\n"
        '  eval "$(tilewright completion bash)"                                    in ~/.bashrc\n'
        '  eval "$(tilewright completion zsh)"                                     in ~/.zshrc\n'
        "  tilewright completion fish > ~/.config/fish/completions/tilewright.fish   once\n"
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands, options and names of `tilewright`."""
    made = get_completion_class(shell)
    if made is None:
        raise UsageError(f"this version of click has no completion for {shell}")
    click.echo(made(ctx.find_root().command, {}, "tilewright", "_TILEWRIGHT_COMPLETE").source(), nl=False)
