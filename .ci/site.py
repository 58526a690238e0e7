"""Builds the documentation site in build/site, without the network: `make site`.

A browser shows it, with its search, from `python -m http.server -d build/site`.

The Markdown pages of the repository are copied as they stand, so that their links hold, and beside them come pages
made of the sources: all commands, from the parser of the command line, the Python API, that of kernels and the NPU as
a component of Amaranth, from the docstrings.
A link or an anchor that leads nowhere is an error.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

import tilewright as tw
from tilewright import kernel
from tilewright.cli import cli

ROOT = Path(__file__).resolve().parents[1]
SOURCE, CONFIG = ROOT / "build" / "site-source", ROOT / "build" / "mkdocs.yml"
#: What pages link to and show besides other pages.
FILES = ("LICENSE", "docs/images/*", "examples/digits/network.py")


def main() -> None:
    """Writes the site; ends with the exit code of mkdocs."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for path in [*pages(), *(path for pattern in FILES for path in ROOT.glob(pattern))]:
        copy = SOURCE / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    reference = SOURCE / "reference"
    reference.mkdir()
    (reference / "commands.md").write_text(commands_page())
    (reference / "api.md").write_text(api_page())
    (reference / "kernels.md").write_text(kernels_page())
    (reference / "amaranth.md").write_text(amaranth_page())
    CONFIG.write_text(configuration())
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(CONFIG)]
    quiet = dict(os.environ, NO_MKDOCS_2_WARNING="1")  # else the theme announces its successor in every build
    sys.exit(subprocess.run(command, env=quiet, check=False).returncode)


def pages() -> list[Path]:
    """The pages of the repository."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split() if not name.startswith(".github/")]


def configuration() -> str:
    """`mkdocs.yml` with absolute paths, and every decision in its place."""
    text = (ROOT / "mkdocs.yml").read_text()
    decisions = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs" / "decisions").glob("*.md"))]
    text = text.replace("DECISIONS", f"[{', '.join(sorted(decisions, key=lambda name: 'README' not in name))}]")
    for place in ("build/site-source", "build/site"):
        text = re.sub(rf": {place}$", f": {ROOT / place}", text, flags=re.MULTILINE)
    return text.replace("paths: [.]", f"paths: [{ROOT}]")


def commands_page() -> str:
    """Every command with its options, as the parser has them."""
    lines = [
        "# Commands",
        "",
        "Made of the parser; `tilewright COMMAND --help` says the same. Exit codes: [errors](../docs/errors.md).",
    ]
    for name, command in commands("tilewright", cli):
        with click.Context(command, info_name=name) as context:
            lines += ["", f"## {name}", "", "```", command.get_usage(context).removeprefix("Usage: "), "```", ""]
            lines += [plain(inspect.cleandoc(command.help or "").partition("\f")[0])]
            rows = [p.get_help_record(context) for p in command.get_params(context)]
            found = [(option, text) for option, text in filter(None, rows) if not option.endswith("--help")]
            if found:
                lines += ["", "| option | what |", "|---|---|"]
                lines += [f"| `{option}` | {cell(text)} |" for option, text in found]
            if command.epilog:
                examples = inspect.cleandoc(command.epilog.replace("\b\n", "")).removeprefix("Examples:")
                lines += ["", "```", inspect.cleandoc(examples), "```"]
    return "\n".join([*lines, ""])


def commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yields a command by its whole name, and those below it."""
    yield name, command
    if isinstance(command, click.Group):
        with click.Context(command, info_name=name) as context:
            for below in command.list_commands(context):
                found = command.get_command(context, below)
                if found is not None and not found.hidden:
                    yield from commands(f"{name} {below}", found)


def plain(text: str) -> str:
    """Help text as Markdown: what looks like a tag is none."""
    return re.sub(r"\n?\b\n", "\n", text.replace("<", "&lt;")).replace("\b", "")


def cell(text: str) -> str:
    """Help text as a cell of a table."""
    return " ".join(plain(text).split()).replace("|", "\\|").replace("  [", " [")


def documented(home: str, title: str, *options: str) -> list[str]:
    """The lines that mkdocstrings takes for what a docstring says, under a title."""
    chosen = ", ".join([f"heading: {title}", f"toc_label: {title}", "heading_level: 2", *options])
    return [f"::: {home}", f"    options: {{{chosen}}}", ""]


def api_page() -> str:
    """The public names of `tilewright`, classes last, each with what its docstring says."""
    named = sorted(tw.__all__, key=lambda name: (inspect.isclass(getattr(tw, name)), name))
    lines = ["# Python", "", "`import tilewright as tw`; what follows are all names of `tw`.", ""]
    for name in named:
        found = getattr(tw, name)
        home = found.__name__ if inspect.ismodule(found) else f"{found.__module__}.{found.__qualname__}"
        lines += documented(home, f"tw.{name}")
    return "\n".join(lines)


def kernels_page() -> str:
    """The public names of `tilewright.kernel`, each with what its docstring says."""
    lines = ["# Kernels", "", "`from tilewright import kernel as tk`; how: [kernels](../docs/guide/kernels.md).", ""]
    for name in sorted(kernel.__all__, key=lambda name: (inspect.isclass(getattr(kernel, name)), name)):
        found = getattr(kernel, name)
        lines += documented(f"{found.__module__}.{found.__qualname__}", f"tk.{name}", "inherited_members: true")
    return "\n".join(lines)


#: The NPU in Amaranth: its component, and the signatures of its ports.
COMPONENT = (
    "npu.Npu",
    *(f"interfaces.{name}" for name in ("Axi4", "Axi4Lite", "Channel", "Debug", "Trace", "flat_ports")),
)


def amaranth_page() -> str:
    """The component and the signatures of its ports, each with what its docstring says."""
    lines = ["# Amaranth", "", "How it is used: [I integrate RTL](../docs/guide/rtl.md#amaranth).", ""]
    for name in COMPONENT:
        lines += documented(f"tilewright.hw.{name}", name)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
