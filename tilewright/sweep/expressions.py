"""Expressions of a space: arithmetic and comparisons over named numbers, evaluated by `simpleeval`."""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Mapping

import simpleeval

from tilewright.common.text import suggest
from tilewright.errors import UsageError

FUNCTIONS = {"min": min, "max": max, "abs": abs, "log2": math.log2, "sqrt": math.sqrt, "ceil": math.ceil,
             "floor": math.floor, "round": round}  # fmt: skip


class SpaceError(UsageError):
    """A space that cannot be swept: the message names the table, the key, the value and what is accepted."""


class Expression:
    """One expression, parsed and its names checked.

    Args:
        text: such as "scratchpad_bytes <= 300_000".
        known: names it may use.
        where: for messages.

    Attributes:
        names: those it uses.

    Raises:
        SpaceError: no expression, or an unknown name.
    """

    def __init__(self, text: object, known: Collection[str], where: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise SpaceError(f"{where} must be an expression, not {text!r}")
        self.text, self.where = text.strip(), where
        self._evaluator = simpleeval.SimpleEval(functions=FUNCTIONS)
        try:
            tree = ast.parse(self.text, mode="eval")
            self._parsed = self._evaluator.parse(self.text)
        except (SyntaxError, ValueError, MemoryError, RecursionError, simpleeval.InvalidExpression) as error:
            raise SpaceError(f"{where}: {self.text!r} is no expression: {error}") from None
        self._tree = tree
        self.names = _names(tree)
        unknown = sorted(self.names - set(known))
        if unknown:
            raise SpaceError(
                f"{where}: unknown name {unknown[0]!r} in {self.text!r}{suggest(unknown[0], known)}; "
                f"known: {', '.join(sorted(known))}"
            )
        body = tree.body
        self._sides: tuple[Expression, Expression] | None = None
        if (
            isinstance(body, ast.Compare)
            and len(body.ops) == 1
            and isinstance(body.ops[0], ast.LtE | ast.Lt | ast.GtE | ast.Gt)
        ):
            left, right = (Expression(ast.unparse(side), known, where) for side in (body.left, body.comparators[0]))
            self._sides = (left, right) if isinstance(body.ops[0], ast.LtE | ast.Lt) else (right, left)

    def __str__(self) -> str:
        return self.text

    def value(self, values: Mapping[str, float]) -> float:
        """The number (a comparison is True or False). Raises `SpaceError` where arithmetic fails, as in 1 / 0."""
        self._evaluator.names = dict(values)
        try:
            found = self._evaluator.eval(self.text, previously_parsed=self._parsed)
        except (
            ArithmeticError,
            ValueError,
            TypeError,
            MemoryError,
            RecursionError,
            simpleeval.InvalidExpression,
        ) as error:
            raise SpaceError(f"{self.where}: {self.text!r} cannot be evaluated: {error}") from None
        if not isinstance(found, int | float):
            raise SpaceError(f"{self.where}: {self.text!r} gives {type(found).__name__}, not a number")
        return found

    def number(self, values: Mapping[str, float]) -> float:
        """Returns the value as an objective, a number that can be compared. Raises `SpaceError`."""
        found = self.value(values)
        try:
            if math.isfinite(found):
                return float(found)
        except OverflowError:  # a whole number beyond all floats
            found = math.inf
        raise SpaceError(f"{self.where}: {self.text!r} gives {found}, which nothing can be compared with")

    def grows(self, results: Collection[str]) -> bool:
        """Returns True if the value can only grow, or stay, when these names grow: so it is least at their least
        values. No value of a name is negative."""
        return _grows(self._tree.body, set(results), positive=False)

    def bounded_by(self, results: Collection[str]) -> bool:
        """Returns True for a constraint that, broken at the least values of these names, is broken at all others."""
        return self._sides is not None and self._sides[0].grows(results) and not self._sides[1].names & set(results)

    def violation(self, values: Mapping[str, float]) -> float:
        """Returns the violation as a constraint: 0 where it holds, else by how much it fails, relative to the limit
        where there is one."""
        if self.value(values):
            return 0.0
        if self._sides is None:
            return 1.0
        small, large = (side.value(values) for side in self._sides)
        return max((small - large) / max(abs(large), 1.0), 1e-9)


def _names(tree: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - set(FUNCTIONS)


def _grows(node: ast.expr, results: set[str], positive: bool) -> bool:
    """Returns True if a value does not fall when `results` grow, and is not negative where it must be `positive`."""
    if not positive and not _names(node) & results:
        return True
    match node:
        case ast.Constant(value=int() | float() as value):
            return value >= 0
        case ast.Name():
            return True
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _grows(left, results, positive) and _grows(right, results, positive)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return not positive and _grows(left, results, positive) and not _names(right) & results
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _grows(left, results, True) and _grows(right, results, True)
        case ast.BinOp(left=left, op=ast.Div() | ast.FloorDiv() | ast.Pow(), right=right):
            return _grows(left, results, True) and _grows(right, results, True) and not _names(right) & results
        case ast.Call(func=ast.Name(id="min" | "max" | "ceil" | "floor"), args=args):
            return all(_grows(arg, results, positive) for arg in args)
        case ast.Call(func=ast.Name(id="sqrt" | "log2" as function), args=[arg]):
            return (function == "sqrt" or not positive) and _grows(arg, results, True)
    return False
