"""TOSA's grammar for xDSL: one class per operation, all of which are read in the same lenient way."""

from __future__ import annotations

import bisect
import math
import struct
from io import StringIO
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, IntegerAttr, StringAttr, UnregisteredAttr, UnregisteredOp
from xdsl.dialects.func import Func
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException

from tilewright.compiler.limits import MAX_ELEMENTS

errors = (ParseError, VerifyException, DiagnosticException, ValueError, KeyError, AttributeError, TypeError, IndexError)

_WORDS = {"rounding_mode": "rounding_mode", "mode": "resize_mode", "nan_mode": "nan_mode"}


def context(names: tuple[str, ...]) -> Context:
    """A context with the builtin, func and tosa dialects; the generic form of others is read, too."""
    made = Context(allow_unregistered=True)
    made.load_dialect(Builtin)
    made.load_dialect(Func)
    for name in (*names, "const", "const_shape", "yield"):
        made.load_op(_operation(f"tosa.{name}"))
    made.load_op(_operation("arith.constant"))  # torch-mlir leaves some among TOSA's
    return made


class parser(Parser):
    """xDSL's parser, which notes the line of each operation: `lines`, by the identity of the operation."""

    def __init__(self, ctx: Context, text: str) -> None:
        super().__init__(ctx, text)
        self.lines: dict[int, int] = {}
        self._starts = [0, *(k + 1 for k, c in enumerate(text) if c == "\n")]
        self._kept: list[Operation] = []  # identities of operations are unique while they live

    def parse_operation(self) -> Operation:
        start = self._current_token.span.start
        op = super().parse_operation()
        self._kept.append(op)
        self.lines[id(op)] = bisect.bisect_right(self._starts, start)
        return op

    def parse_ranked_shape(self) -> tuple[list[int], Attribute]:
        """Sizes and element of a type. A constant of one value is written out by xDSL, so its size is looked at."""
        sizes, element = super().parse_ranked_shape()
        count = math.prod(max(n, 1) for n in sizes)
        if count > MAX_ELEMENTS:
            self.raise_error(f"a tensor of {count} elements; up to {MAX_ELEMENTS} are accepted")
        return sizes, element

    def parse_dense_int_or_fp_elements_attr(self, type: Any) -> Any:
        start = self.pos
        try:
            return super().parse_dense_int_or_fp_elements_attr(type)
        except struct.error:
            self.raise_error("a value beyond the range of its type", start, self.pos)
        except NotImplementedError:
            self.raise_error("constants of a type that has none", start, self.pos)

    def _parse_dialect_resource_handle(self, dialect_name: str, interface: Any) -> str:
        """The name as the text has it: xDSL's own makes it unlike those of all texts before."""
        return str(self.parse_identifier(context_msg=" for resource handle"))


def _operation(full: str) -> type[Operation]:
    class TosaOperation(UnregisteredOp):
        """An operation of TOSA in custom assembly: operands, attributes, types, regions."""

        name = full

        @classmethod
        def parse(cls, parser: Any) -> Any:
            return _custom(cls, parser)

    return TosaOperation


def _custom(cls: Any, p: Any) -> Any:
    """Reads what stands behind the name of an operation."""
    if cls.name in ("tosa.cond_if", "tosa.while_loop"):
        return _with_regions(cls, p)
    if cls.name == "arith.constant":
        given, start, value = p.parse_optional_attr_dict(), p.pos, p.parse_attribute()
        if not hasattr(value, "get_type"):
            p.raise_error("a constant without a value and its type", start, p.pos)
        return cls.create(result_types=[value.get_type()], attributes={**given, "value": value})
    operands = _operands(p)
    attributes = _attributes(p)
    if cls.name == "tosa.yield":
        types = (
            p.parse_comma_separated_list(p.Delimiter.NONE, p.parse_type) if p.parse_optional_punctuation(":") else []
        )
        return cls.create(operands=p.resolve_operands(operands, types, p.pos))
    if p.parse_optional_punctuation(":") is None:
        values: Any = attributes.get("values", attributes.get("value"))
        if not hasattr(values, "get_type"):
            p.raise_error("no values and no types behind the operation", p.pos, p.pos)
        return cls.create(result_types=[values.get_type()], attributes=attributes)
    inputs, results = _function_type(p)
    return cls.create(operands=p.resolve_operands(operands, inputs, p.pos), result_types=results, attributes=attributes)


def _operands(p: Any) -> list[Any]:
    found = []
    while (operand := p.parse_optional_unresolved_operand()) is not None:
        found.append(operand)
        if p.parse_optional_punctuation(",") is None:
            break
    return found


def _attributes(p: Any) -> dict[str, Any]:
    """Attributes in any of the forms that releases of LLVM print."""
    found: dict[str, Any] = {}
    while True:
        if p.parse_optional_punctuation("<") is not None:
            p.parse_punctuation("{")
            _entries(p, found)
            p.parse_punctuation(">")
        elif p.parse_optional_punctuation("{") is not None:
            _entries(p, found)
        elif (name := p.parse_optional_identifier()) is not None:
            found[name] = _after_name(p)
            p.parse_optional_punctuation(",")
        elif p.parse_optional_punctuation(",") is None:
            return found


def _entries(p: Any, found: dict[str, Attribute]) -> None:
    while p.parse_optional_punctuation("}") is None:
        name = p.parse_identifier_or_str_literal()
        found[name] = _after_name(p) if p.parse_optional_punctuation("=") is None else _attribute(p)
        p.parse_optional_punctuation(",")


def _after_name(p: Any) -> Attribute:
    """The value behind a name: `(value)`, `<VALUE>`, `= value`; a name alone is true."""
    if p.parse_optional_punctuation("(") is not None:
        value = _attribute(p)
        p.parse_punctuation(")")
        return value
    if p.parse_optional_punctuation("<") is not None:
        value = StringAttr(p.parse_identifier())
        p.parse_punctuation(">")
        return value
    if p.parse_optional_punctuation("=") is not None:
        return _attribute(p)
    return IntegerAttr(1, 1)


def _attribute(p: Any) -> Attribute:
    """A value; a bare word such as SINGLE_ROUND is text."""
    found = p.parse_optional_attribute()
    if found is None:
        return StringAttr(p.parse_identifier())
    assert isinstance(found, Attribute)
    return found


def _function_type(p: Any) -> tuple[list[Any], list[Any]]:
    """`(types) -> types`, or one type for operands and result alike."""
    inputs = p.parse_optional_comma_separated_list(p.Delimiter.PAREN, p.parse_type)
    if inputs is None:
        single = p.parse_type()
        if p.parse_optional_punctuation("->") is None:
            return [single], [single]
        inputs = [single]
    else:
        p.parse_punctuation("->")
    results = p.parse_optional_comma_separated_list(p.Delimiter.PAREN, p.parse_type)
    return inputs, [p.parse_type()] if results is None else results


def _with_regions(cls: Any, p: Any) -> Any:
    """Reads `%c (%a = %x) : type (types) -> types {..} else {..}`, or of a loop `(%a = %x) : (..) -> .. {} do {}`."""
    condition = p.parse_optional_unresolved_operand()
    pairs = p.parse_optional_comma_separated_list(p.Delimiter.PAREN, lambda: _pair(p)) or []
    _attributes(p)
    p.parse_punctuation(":")
    types = []
    if condition is not None:
        types.append(p.parse_type())
        inputs = p.parse_optional_comma_separated_list(p.Delimiter.PAREN, p.parse_type) or []
        if inputs or pairs:
            p.parse_punctuation("->")
        else:
            p.parse_optional_punctuation("->")
        found = p.parse_optional_comma_separated_list(p.Delimiter.PAREN, p.parse_type)
        results = [p.parse_type()] if found is None else found
    else:
        inputs, results = _function_type(p)
    operands = p.resolve_operands([condition] * bool(types) + [v for _, v in pairs], [*types, *inputs], p.pos)
    regions = [_region(p, pairs, inputs)]
    for word in ("else", "do"):
        if p.parse_optional_keyword(word) is not None:
            regions.append(_region(p, pairs, inputs))
    return cls.create(operands=operands, result_types=results, regions=regions)


def _pair(p: Any) -> tuple[Any, Any]:
    argument = p.parse_argument(expect_type=False)
    p.parse_punctuation("=")
    return argument, p.parse_unresolved_operand()


def _region(p: Any, pairs: list[tuple[Any, Any]], types: list[Any]) -> Any:
    """A region, whose first block has the operation's arguments where it names none itself."""
    rest = p.lexer.input.content[p._current_token.span.end :]
    if rest.lstrip().startswith("^") or not pairs:
        return p.parse_region()
    return p.parse_region([argument.resolve(t) for (argument, _), t in zip(pairs, types)])


def generic(module: Operation) -> str:
    """A module in the generic form, which all releases of LLVM read alike. The words of TOSA become its attributes."""
    for op in module.walk():
        if isinstance(op, UnregisteredOp) and "op_name__" not in op.attributes:
            op.attributes["op_name__"] = StringAttr(op.name)
            for key, kind in _WORDS.items():
                if isinstance(word := op.attributes.get(key), StringAttr):
                    made = UnregisteredAttr.with_name_and_type(f"tosa.{kind}", False)
                    op.attributes[key] = made(f"tosa.{kind}", False, False, word)
    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(module)
    return stream.getvalue()


__all__ = ["context", "errors", "generic", "parser"]
