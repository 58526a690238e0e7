"""Checks that what the documentation names exists: files, modules, links, commands, `make` targets."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import importlib.util
import re
from itertools import pairwise
from pathlib import Path

import click
import pytest

from tests.common.paths import PARTS
from tests.unit.docs.pages import ROOT, Page, commands, decisions, pages, read, tracked
from tilewright.cli import cli
from tilewright.compiler.options import printable

FILES = tracked()
#: Names under which nothing can be imported any more are looked for as well.
PACKAGES = ("tilewright", *PARTS)
#: Folders of the repository with the sources of the packages.
FOLDERS = PACKAGES
TOP = {name.split("/")[0] for name in FILES if "/" in name}
#: Files that the pages tell the reader to write, or that commands write.
OF_THE_READER = {"own.py", "mydevice.py"}
#: Pages whose names are of their time.
HISTORY = {"CHANGELOG.md"}
PAGES = [page for page in pages() if page.path.name not in HISTORY]
each_page = pytest.mark.parametrize("page", PAGES, ids=str)


def missing_path(text: str) -> bool:
    """Whether inline code is a path into the repository that leads nowhere; `*`, FAMILY and NAME stand for any
    name."""
    if re.fullmatch(r"[\w-]+\.py", text):
        return text not in OF_THE_READER and not any(name.endswith("/" + text) for name in FILES)
    if "/" not in text or not re.fullmatch(r"[\w./*-]+", text) or text.split("/")[0] not in TOP:
        return False
    pattern = re.sub(r"FAMILY|NAME", "*", text.rstrip("/"))
    return not any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name, pattern + "/*") for name in FILES)


def missing_name(text: str) -> bool:
    """Whether inline code is a dotted name of a package here that cannot be found."""
    found = re.match(r"(?:[a-z_]+)(?:\.\w+)+", text)
    if not found or found.group().split(".")[0] not in {*PACKAGES, "tw"}:
        return False
    parts = found.group().replace("tw.", "tilewright.", 1).split(".")
    if parts[-1] in ("py", "md", "toml", "h", "json"):
        return False
    if parts[0] in PARTS:  # to be imported from `tilewright`
        return True
    count = len(parts)
    while count and not _is_module(".".join(parts[:count])):
        count -= 1
    here = importlib.import_module(".".join(parts[:count])) if count else None
    for name in parts[count:]:
        if not hasattr(here, name) and name not in getattr(here, "__annotations__", {}):
            return True
        here = getattr(here, name, None)
    return False


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@each_page
def test_paths(page: Page) -> None:
    words = [word for _, text in page.blocks for word in text.split()]
    in_blocks = [word.rstrip(",)") for word in words]
    assert [text for text in [*page.code, *in_blocks] if missing_path(text)] == []


@each_page
def test_dotted_names(page: Page) -> None:
    assert [text for text in page.code if missing_name(text)] == []


@each_page
def test_imports_of_examples(page: Page) -> None:
    for language, text in page.blocks:
        if language != "python":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
                assert not [a.name for a in node.names if missing_name(f"{node.module}.{a.name}")], ast.unparse(node)


@pytest.mark.parametrize("page", [*PAGES, *decisions()], ids=str)
def test_links(page: Page) -> None:
    anchors = {other.path: other.anchors for other in [*pages(), *decisions()]}
    for link in page.links:
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (ROOT / page.path.parent / file).resolve().relative_to(ROOT) if file else page.path
        assert (ROOT / target).exists(), link
        assert not anchor or anchor in anchors[Path(target)], link


@each_page
def test_commands(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `tilewright` command parses. Files need not exist; nothing is run."""
    monkeypatch.setattr(click.Path, "convert", lambda self, value, param, ctx: value)
    for words, complete in commands(page, "tilewright"):
        arguments = ["1" if word == "N" else word.strip("[]") for word in words]
        for option, name in pairwise(arguments):
            assert option != "--print-after" or name in {"all", *printable()}, name
        try:
            context = cli.make_context("tilewright", arguments)
            while isinstance(context.command, click.Group):
                name, command, rest = context.command.resolve_command(context, context._protected_args + context.args)
                assert name and command
                context = command.make_context(name, rest, parent=context)
        except (click.exceptions.NoArgsIsHelpError, click.exceptions.Exit):  # the latter after --help or --version
            continue
        except (click.MissingParameter, click.BadOptionUsage) as error:
            assert not complete, f"tilewright {' '.join(arguments)}: {error.format_message()}"
        except click.UsageError as error:
            raise AssertionError(f"tilewright {' '.join(arguments)}: {error.format_message()}") from error


@each_page
def test_make_targets(page: Page) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for arguments, _ in commands(page, "make"):
        if "-C" not in arguments:
            assert {word for word in arguments if "=" not in word} <= targets, arguments


@each_page
def test_modules_to_run(page: Page) -> None:
    for program in ("python", "python3"):
        for arguments, _ in commands(page, program):
            if arguments[:1] == ["-m"]:
                assert _is_module(arguments[1]), arguments
            elif arguments and arguments[0].endswith(".py") and arguments[0] not in OF_THE_READER:
                assert (ROOT / arguments[0]).exists(), arguments


@each_page
def test_every_page_is_listed(page: Page) -> None:
    if page.path.parts[0] == "docs" and page.path != Path("docs/README.md"):
        index = next(other for other in PAGES if other.path == Path("docs/README.md"))
        assert str(page.path.relative_to("docs")) in index.links


def test_environment_variables() -> None:
    """docs/README.md lists the variables that the packages and calibrations read, and no others."""
    sources = [
        (ROOT / name).read_text(encoding="utf-8")
        for name in FILES
        if name.split("/")[0] in (*FOLDERS, "calibration") and name.endswith(".py")
    ]
    read_by_us = {name for text in sources for name in re.findall(r"\bTILEWRIGHT_[A-Z_]+\b", text)}
    listed = {name for name in read(Path("docs/README.md")).code if name.startswith("TILEWRIGHT_")}
    by_scheme = {"TILEWRIGHT_BOARD"}  # f"TILEWRIGHT_{scheme}" of devices with addresses
    assert listed == by_scheme | {name for name in read_by_us if not name.endswith(("_H", "_"))}


def test_recipes_are_short() -> None:
    """CONTRIBUTING.md: every way to add something has an example in the tests and at most five files."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipes = re.findall(r"^## Adding (.*?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(recipes) >= 4
    for name, recipe in recipes:
        assert len(re.findall(r"^\d\. ", recipe, re.MULTILINE)) <= 5, name
        assert re.search(r"`tests/unit/[\w/]+/test_\w+\.py`", recipe), name


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    """The checks above see a wrong name of each kind."""
    assert missing_path("docs/nowhere.md") and missing_path("nowhere.py") and not missing_path("docs/isa.md")
    assert (
        missing_name("isa.nowhere")
        and missing_name("tw.nowhere")
        and not missing_name("tilewright.isa.config.NpuConfig.name")
    )
    path = tmp_path / "page.md"
    path.write_text("# A `b` c!\n\n[x](y.md#z) `make all`\n\n```\n$ make a \\\n  b && tilewright run x; make c\n```\n")
    page = read(path)
    assert (page.anchors, page.links) == ({"a-b-c"}, ["y.md#z"])
    assert [words for words, _ in commands(page, "make")] == [["a", "b"], ["c"], ["all"]]
    assert list(commands(page, "tilewright")) == [(["run", "x"], True)]
