"""`tilewright trust`."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli import arguments, terminal
from tilewright.cli.group import Group
from tilewright.store import trust


@click.group(
    "trust",
    cls=Group,
    epilog=(
        "\b\nExamples:\n"
        "  tilewright trust show > me.pub           on the machine that compiles\n"
        "  tilewright trust add me.pub --name ada   on the machine that runs what it compiled\n"
        "  tilewright trust list\n"
    ),
)
def command() -> None:
    """Whose compiled programs may run native code here.

    Programs are signed with your own key when they are compiled. Kernels of program files run if they are signed by
    you or with a key that you trust; others need --trust.
    """


@command.command("show", epilog="\b\nExamples:\n  tilewright trust show > me.pub\n")
def show() -> None:
    """Print your public key, for others to trust."""
    click.echo(trust.own_public_key(), nl=False)


@command.command("add", epilog="\b\nExamples:\n  tilewright trust add me.pub --name ada\n")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", help="What to call it; by default the name of the file.")
def add(file: Path, name: str | None) -> None:
    """Trust the public key in FILE from now on."""
    click.echo(f"programs signed by {trust.add(file, name)} may run here")


@command.command("remove", epilog="\b\nExamples:\n  tilewright trust remove ada\n")
@click.argument("name")
def remove(name: str) -> None:
    """Trust the key NAME no more."""
    trust.remove(name)
    click.echo(f"{name} is trusted no more")


@command.command("list", epilog="\b\nExamples:\n  tilewright trust list --json -\n")
@arguments.json_option
def list_keys(json_path: str | None) -> None:
    """List the keys you trust."""
    terminal.prepare_json(json_path)
    keys = [{"name": name, "file": str(path)} for name, path in trust.trusted()]
    if terminal.emit_json(json_path, {"own": str(trust.folder()), "trusted": keys}):
        for key in keys:
            click.echo(f"{key['name']}  {key['file']}")
        click.echo(f"your own key is in {trust.folder()}")
