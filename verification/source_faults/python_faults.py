"""Faults in Python functions: another operator or number, a condition turned round, a call that is left out.

They are put into functions that are loaded, by another code object, so that a fault costs no import.
"""

from __future__ import annotations

import ast
import functools
import gc
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tests.common.paths import ROOT, imported_path

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_CALLED = {"min": "max", "max": "min", "all": "any", "any": "all"}
#: Messages, types, and what is only looked at while a module is imported.
_LEFT_ALONE = (ast.Raise, ast.JoinedStr, ast.Assert)


@dataclass(frozen=True)
class Fault:
    """A fault in a Python source.

    Attributes:
        path: of the source.
        function: that it is in, with the classes around it.
        index: among those of the function.
        line: of the source.
        what: is different.
    """

    path: Path
    function: str
    index: int
    line: int
    what: str

    @property
    def name(self) -> str:
        """A name for the fault that changes of other functions do not change."""
        return f"{self.path.relative_to(ROOT)} {self.function} {self.index} {self.what}"

    @property
    def where(self) -> str:
        """File and line of the fault, as editors take them."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    @property
    def code(self) -> str:
        """The line of the source."""
        return self.path.read_text(encoding="utf-8").splitlines()[self.line - 1]


def faults_of(path: Path) -> list[Fault]:
    """Returns all faults that can be put into a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        Fault(path, name, index, line, what)
        for name, function in _functions(tree)
        for index, (line, what, _) in enumerate(_changes(function))
    ]


def _functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods; what is defined in a function belongs to it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield inside + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{inside}{node.name}.")


def _changes(function: ast.FunctionDef) -> list[tuple[int, str, Callable[[], None]]]:
    """(line, what, make it) of each."""
    found: list[tuple[int, str, Callable[[], None]]] = []

    def add(node: Any, what: str, attribute: str, value: Any) -> None:
        found.append((node.lineno, what, functools.partial(setattr, node, attribute, value)))

    def look(node: ast.AST) -> None:
        if isinstance(node, _LEFT_ALONE) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return
        if isinstance(node, ast.keyword) and node.arg == "strict":  # says only what is so
            return
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
            other = _COMPARED[type(node.ops[0])]()
            add(node, f"{type(node.ops[0]).__name__} -> {type(other).__name__}", "ops", [other])
        elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _COMPUTED:
            new = _COMPUTED[type(node.op)]()
            add(node, f"{type(node.op).__name__} -> {type(new).__name__}", "op", new)
        elif isinstance(node, ast.BoolOp):
            joined = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            add(node, f"{type(node.op).__name__} -> {type(joined).__name__}", "op", joined)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            add(node, f"{node.value} -> {node.value + 1}", "value", node.value + 1)
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            add(node, f"{node.value} -> {not node.value}", "value", not node.value)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in _CALLED:
            add(node, f"{node.id} -> {_CALLED[node.id]}", "id", _CALLED[node.id])
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)) and isinstance(
            node.test, (ast.Name, ast.Attribute, ast.Call)
        ):
            turned = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
            add(node, "condition turned round", "test", turned)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            add(node, "not -> nothing", "op", ast.UAdd())
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            # The name `super` gives a method its class, which code put in its place must have, too.
            names = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
            nothing: ast.expr = ast.Name("super", ast.Load()) if "super" in names else ast.Constant(None)
            add(node, "call left out", "value", ast.copy_location(nothing, node.value))
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "type_params"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        look(child)

    for part in function.body:  # not what arguments are by default: that is no code of the function
        look(part)
    return found


def put_in(fault: Fault) -> None:
    """Changes the function in this process for good; what `functools` keeps of any function is forgotten."""
    tree = ast.parse(fault.path.read_text(encoding="utf-8"))
    _changes(dict(_functions(tree))[fault.function])[fault.index][2]()
    imported = imported_path(fault.path)
    importlib.import_module(".".join(Path(imported).relative_to(ROOT).with_suffix("").parts))
    new = codes(compile(ast.fix_missing_locations(tree), imported, "exec"))[fault.function]
    gc.unfreeze()  # what is frozen is in no list
    place = imported, fault.function
    functions = [f for f in gc.get_objects() if isinstance(f, FunctionType) and _place(f.__code__) == place]
    assert functions, f"{fault.path}: no {fault.function}"
    for function in functions:
        function.__code__ = new
    forget()


def forget(package: str = "") -> None:
    """Clears the `functools` caches of the functions of a package, or of all."""
    for kept in gc.get_objects():
        if isinstance(kept, functools._lru_cache_wrapper) and kept.__module__.startswith(package):
            kept.cache_clear()


def _place(code: CodeType) -> tuple[str, str]:
    return code.co_filename, code.co_qualname


def codes(module: CodeType) -> Mapping[str, CodeType]:
    """Returns the code of each function and method of a module, by name; of two with one name the last."""
    found: dict[str, CodeType] = {}
    for code in module.co_consts:
        if isinstance(code, CodeType):
            found[code.co_qualname] = code
            if "<locals>" not in code.co_qualname:
                found |= codes(code)
    return found
