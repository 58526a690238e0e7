"""Reads TOSA as MLIR text, by xDSL: the generic form, and the custom assembly that `iree-opt` and torch-mlir print.

Only here is xDSL used, and only for its grammar of operations, types, attributes and regions. TOSA's own assembly is
read leniently: its attributes are accepted as `name(value)`, `name<value>`, `name = value` and in braces, since
releases of LLVM print them differently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.common.installation import require
from tilewright.common.text import one_line, suggest
from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.importer.tosa.lowering import advice
from tilewright.compiler.importer.tosa.records import DTYPES, Block, Shapes, TosaModule, TosaOp, TypeOf
from tilewright.compiler.importer.tosa.resources import blobs, divided, elements

#: Operations around the TOSA ones that need not be in a text.
_OTHERS = ("builtin.module", "func.func", "func.return")
_FOREIGN = re.compile("not registered|custom format")
_VERSION = re.compile(r"specification_version\s*=\s*\"?([\w.]+)")
#: What xDSL says where a line begins with a word that is no operation, and what is said.
_BARE = ("Operation builtin.unregistered does not have a custom format.", "no operation begins before this")
#: Comments and strings. xDSL's own pattern takes exponential time where a string has no end.
_STRING = re.compile(r'//[^\n]*|(?P<start>")[^"\\\n\v\f]*(?:\\(?:["nt\\]|[0-9A-Fa-f]{2})[^"\\\n\v\f]*)*(?P<end>")?')
#: Integers of many bits, for which xDSL takes as much memory.
_WIDE = re.compile(r"[\sx<:,(][su]?i(\d{5,})\b")
_NAME = re.compile(r'(?:^|[=\s"])([a-z_]\w*)\.([a-z_0-9.]+)')


def read(text: str, known: Sequence[str], shapes: Shapes | None = None) -> TosaModule:
    """Reads a program.

    Args:
        text: MLIR text: a module with one function, or the function alone.
        known: names of TOSA's operations, without the dialect.
        shapes: of arguments whose batch, their first size, is left open; 1 if not given.

    Raises:
        CompileError: damaged text, with the place. UnsupportedError: other dialects, open shapes, several functions.
    """
    version = _VERSION.search(text)
    if version is not None and not re.match(r"(V_)?1[._]\d", version[1]):
        line = text[: version.start()].count("\n") + 1
        raise UnsupportedError(f"line {line}: TOSA {version[1]}; 1.x is accepted")
    if not text.strip():
        raise CompileError("the text is empty")
    text, section = divided(text)
    module, lines = parse(text, known)
    functions = [op for op in module.walk() if op.name == "func.func"]
    if len(functions) != 1:
        names = ", ".join(f.sym_name.data for f in functions) or "none"
        where = f"line {lines[id(functions[1])]}: " if functions else ""
        raise UnsupportedError(f"{where}{len(functions)} functions ({names}); a module with one func.func is accepted")
    return _Reader(lines, blobs(section)).function(functions[0], shapes or {})


def parse(text: str, known: Sequence[str]) -> tuple[Any, dict[int, int]]:
    """The parsed module, and the line of each operation by its identity.

    Raises:
        CompileError: damaged text, with the place. UnsupportedError: operations of other dialects in custom assembly.
    """
    xdsl = _machinery()
    for string in _STRING.finditer(text):
        if string["start"] and not string["end"]:
            line, column = text.count("\n", 0, string.start()) + 1, string.start() - text.rfind("\n", 0, string.start())
            raise CompileError(f"line {line}, column {column}: damaged MLIR text: a string without its end")
    wide = _WIDE.search(text)
    if wide is not None:
        line = text.count("\n", 0, wide.start()) + 1
        raise UnsupportedError(f"line {line}: integers of {wide[1]} bits; elements of {', '.join(DTYPES)} are accepted")
    parser = xdsl.parser(xdsl.context(tuple(known)), text)
    try:
        return parser.parse_module(), parser.lines
    except xdsl.errors as error:
        line, column = _place(error)
        where = f"line {line}, column {column}: " if line else ""
        found = text.splitlines()[line - 1] if 0 < line <= len(text.splitlines()) else ""
        name = _NAME.search(found)
        message = str(getattr(error, "msg", "") or error)
        if name is not None and f"{name[1]}.{name[2]}" not in _OTHERS and _FOREIGN.search(message):
            raise _unknown(line, name[1], name[2], known) from error
        raise CompileError(f"{where}damaged MLIR text: {one_line(message.replace(*_BARE))}") from error
    except RecursionError as error:
        raise CompileError("damaged MLIR text: nested too deeply") from error


def generic(text: str, known: Sequence[str]) -> str:
    """A text in the generic form, which other releases of MLIR read, too."""
    text, section = divided(text)
    module, _ = parse(text, known)
    return f"{_machinery().generic(module)}\n{section}"


def _unknown(line: int, dialect: str, name: str, known: Sequence[str]) -> UnsupportedError:
    """The error for an operation that is none of TOSA's."""
    if dialect == "tosa":
        return unknown_operation(f"line {line}: tosa.{name}", name, known)
    return UnsupportedError(f"line {line}: {dialect}.{name} is no TOSA: {advice(dialect)}")


def unknown_operation(label: str, name: str, known: Sequence[str]) -> UnsupportedError:
    """The error for an operation of TOSA that is not read."""
    return UnsupportedError(f"{label} is not supported{suggest(name, known)}; docs/guide/mlir.md lists what is")


def _place(error: Exception) -> tuple[int, int]:
    """Line and column of a parsing error, (0, 0) if it has none."""
    span = getattr(error, "span", None)
    if span is None:
        return 0, 0
    before = span.input.content[: span.start]
    return before.count("\n") + 1, span.start - (before.rfind("\n") + 1) + 1


class _Reader:
    """Turns xDSL's operations into records."""

    def __init__(self, lines: dict[int, int], resources: Mapping[str, str]) -> None:
        self.lines, self.batch, self.open, self.resources = lines, 1, False, resources
        self.types: list[TypeOf] = []
        self.numbers: dict[Any, int] = {}
        self.constants: dict[int, np.ndarray] = {}

    def function(self, function: Any, shapes: Shapes) -> TosaModule:
        name, line = function.sym_name.data, self.lines.get(id(function), 0)
        if len(function.body.blocks) != 1:
            raise UnsupportedError(f"line {line}: {name!r} has {len(function.body.blocks)} blocks; one is accepted")
        arguments = function.body.blocks[0].args
        inputs = _named(function, "arg_attrs", len(arguments), "input")
        self.batch = _batch(dict(zip(inputs, (a.type for a in arguments))), shapes)
        body = self._block(function.body.blocks[0], {"return"}, line)
        if not body.returns:
            raise CompileError(f"line {line}: {name!r} returns nothing")
        outputs = _named(function, "res_attrs", len(body.returns), "output")
        return TosaModule(name, body, self.types, self.constants, inputs, outputs, self.open)

    def _block(self, block: Any, ends: set[str], start: int) -> Block:
        """A block, in an operation that begins in the line `start`."""
        arguments = [self._number(value, start) for value in block.args]
        ops: list[TosaOp] = []
        for op in block.ops:
            line = self.lines.get(id(op), 0)
            name = op.op_name.data if op.name == "builtin.unregistered" else op.name
            dialect, _, short = name.partition(".")
            if short in ends and name in ("func.return", "tosa.yield"):
                return Block(arguments, ops, self._operands(op, f"line {line}: {name}"))
            constant = name == "arith.constant" and op.results[0].type.name == "tensor"
            if dialect != "tosa" and not constant:
                raise _unknown(line, dialect, short, ())
            blocks = []
            given = {**op.properties, **op.attributes}
            attrs = {k: _value(v, f"line {line}: {name}", self.resources) for k, v in given.items() if k[-2:] != "__"}
            operands = self._operands(op, f"line {line}: {name}")
            for region in op.regions:
                if len(region.blocks) != 1:
                    raise CompileError(f"line {line}: {name}: a region of {len(region.blocks)} blocks")
                blocks.append(self._block(region.blocks[0], {"yield"}, line))
            results = [self._number(value, line) for value in op.results]
            if constant or short in ("const", "const_shape"):
                self._constant(results, attrs, line)
            else:
                ops.append(TosaOp(short, operands, results, attrs, blocks, line))
        raise CompileError(f"line {start}: a block without {' or '.join(sorted(ends))} at its end")

    def _operands(self, op: Any, place: str) -> list[int]:
        """The numbers of the operands, all of which stand before."""
        for value in op.operands:
            if value not in self.numbers:
                raise CompileError(f"{place} reads %{value.name_hint or '?'}, which is made after it")
        return [self.numbers[value] for value in op.operands]

    def _number(self, value: Any, line: int) -> int:
        self.numbers[value] = len(self.types)
        self.types.append(_type(value.type, line, self.batch))
        self.open |= "<?x" in str(value.type)
        return self.numbers[value]

    def _constant(self, results: Sequence[int], attrs: dict[str, Any], line: int) -> None:
        values = attrs.get("values", attrs.get("value"))
        if len(results) != 1 or not isinstance(values, np.ndarray):
            raise CompileError(f"line {line}: a constant without values that can be read: {values}")
        wanted = self.types[results[0]]
        if wanted.element == "shape":
            self.constants[results[0]] = values.astype(np.int64).reshape(-1)
            return
        if values.shape != wanted.shape:
            raise CompileError(f"line {line}: values of shape {list(values.shape)} for {wanted}")
        self.constants[results[0]] = np.asarray(values.astype(wanted.dtype))


def _named(function: Any, key: str, count: int, stem: str) -> list[str]:
    """The names of arguments or results: those that converters leave in attributes, else numbered ones."""
    names = []
    given = function.properties.get(key)
    for k in range(count):
        found = None
        if given is not None and k < len(given.data):
            attrs = given.data[k].data
            for name in ("ml_program.identifier", "tf_saved_model.index_path", "tilewright.name"):
                inner = attrs.get(name)
                inner = getattr(inner, "data", None)
                inner = inner[0].data if isinstance(inner, tuple | list) and inner else inner
                found = inner if isinstance(inner, str) else found
        name = found or (stem if count == 1 else f"{stem}_{k}")
        names.append(name if name not in names else f"{name}.{k}")
    return names


def _batch(arguments: dict[str, Any], shapes: Shapes) -> int:
    """The batch that the shapes of arguments say, 1 if they say none. Raises UnsupportedError for other shapes."""
    found: dict[int, str] = {}
    for name, given in shapes.items():
        if name not in arguments:
            raise UnsupportedError(f"shape of {name!r}: the arguments are {', '.join(arguments)}")
        sizes = tuple(int(n) for n in arguments[name].get_shape())
        if len(given) != len(sizes) or any(n not in (size, -1) and size >= 0 for n, size in zip(given, sizes)):
            raise UnsupportedError(f"shape {list(given)} of {name!r}: the text has {arguments[name]}")
        if sizes and sizes[0] < 0:
            found[int(given[0])] = name
    if len(found) > 1 or any(n < 1 for n in found):
        raise UnsupportedError(f"batches {', '.join(f'{n} of {name}' for n, name in found.items())}; one is accepted")
    return next(iter(found), 1)


def _type(given: Any, line: int, batch: int) -> TypeOf:
    """The type of a tensor or shape, with the batch where the first size is left open.

    Raises:
        UnsupportedError: other types, and other sizes left open.
    """
    text = str(given)
    if text.startswith("!tosa.shape"):
        return TypeOf("shape", (int(re.sub(r"\D", "", text) or 0),))
    if given.name != "tensor":
        raise UnsupportedError(f"line {line}: {text}; ranked tensors are accepted")
    element = str(given.element_type)
    if element.startswith("!quant"):
        raise UnsupportedError(f"line {line}: {text}: quantised types of older TOSA; {advice('quant')}")
    if element not in DTYPES:
        raise UnsupportedError(f"line {line}: {text}; elements of {', '.join(DTYPES)} are accepted")
    shape = tuple(int(n) for n in given.get_shape())
    if any(n < 0 for n in shape[1:]):
        raise UnsupportedError(f"line {line}: {text} leaves a size behind the batch open; export fixed shapes")
    if 0 in shape:
        raise UnsupportedError(f"line {line}: {text}; sizes of 1 and above are accepted")
    shape = (batch, *shape[1:]) if shape and shape[0] < 0 else shape
    return TypeOf(element, shape)


def _value(attribute: Any, place: str, resources: Mapping[str, str]) -> Any:
    """An attribute as a Python value; text where it is of no kind that TOSA uses."""
    kind = attribute.name
    if kind == "dense":
        element = str(attribute.type.element_type)
        shape = tuple(attribute.type.get_shape())
        dtype = DTYPES.get(element, np.dtype(np.int64))
        if not int(np.prod(shape)):
            return np.zeros(shape, dtype)
        values = np.array(attribute.get_values())
        values = np.resize(values, shape) if attribute.is_splat() else values.reshape(shape)
        bits = int(element[1:]) if element[1:].isdigit() and dtype.kind == "i" else 0
        if bits and bits < 64:  # one spelt without a sign, such as 255 : i8
            values = ((values.astype(np.int64) + (1 << (bits - 1))) & ((1 << bits) - 1)) - (1 << (bits - 1))
        return np.asarray(values).astype(dtype)
    if kind == "dense_resource":
        element, shape = str(attribute.type.element_type), tuple(attribute.type.get_shape())
        dtype = DTYPES.get(element, np.dtype(np.int64))
        return elements(resources, attribute.resource_handle.data, dtype, shape, place)
    if hasattr(attribute, "get_values"):  # array<i64: 1, 1>
        return [int(v) for v in attribute.get_values()]
    if kind in ("integer", "float"):
        value = attribute.value.data
        return bool(value) if str(attribute.type) == "i1" else value
    if kind == "string":
        return attribute.data
    if kind == "array":
        return [_value(v, place, resources) for v in attribute.data]
    found = re.search(r"<\s*\"?([A-Z_0-9]+)\"?\s*>", str(attribute))
    return found[1] if found else str(attribute)


@lru_cache(maxsize=1)
def _machinery() -> Any:
    """The part of the importer that needs xDSL. Raises MissingPackageError with the command that installs it."""
    require("xdsl")
    from tilewright.compiler.importer.tosa import grammar

    return grammar
