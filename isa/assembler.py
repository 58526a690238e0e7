"""Assembler and disassembler: one instruction a line, `NAME field=value ...`; a round trip loses nothing.

Fields that are 0 are left out. Values are decimal, hexadecimal or a member of the field's enumeration; `#` starts a
comment.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.isa.encoding import EncodingError, Op, op


def disassemble_one(operation: Op) -> str:
    """Disassembles one instruction to a line of assembly."""
    parts = [operation.name]
    for name, f in operation.instruction.by_name.items():
        value = operation[name]
        if name == "opcode" or (value == 0 and f.enum is None):
            continue
        text = str(value)
        if f.enum is not None and value in f.enum._value2member_map_:
            text = f.enum(value).name
        parts.append(f"{name}={text}")
    return " ".join(parts)


def disassemble(operations: Iterable[Op]) -> str:
    """Disassembles instructions to assembly text, one instruction a line."""
    return "".join(disassemble_one(o) + "\n" for o in operations)


def assemble(text: str, where: str = "assembly") -> list[Op]:
    """Assembles text to instructions.

    Raises:
        EncodingError: a line is wrong; names line, token and the accepted values.
    """
    operations = []
    for number, line in enumerate(text.splitlines(), 1):
        tokens = line.split("#", 1)[0].split()
        if not tokens:
            continue
        try:
            operations.append(_assemble_one(tokens))
        except EncodingError as error:
            raise EncodingError(f"{where}:{number}: {error}") from None
    return operations


def _assemble_one(tokens: list[str]) -> Op:
    empty = op(tokens[0])
    values: dict[str, int] = {}
    for token in tokens[1:]:
        name, equals, text = token.partition("=")
        if not equals:
            raise EncodingError(f"expected field=value, not {token!r}")
        if name in values:
            raise EncodingError(f"field {name!r} given twice")
        f = empty.instruction.by_name.get(name)
        if f is not None and f.enum is not None and text in f.enum.__members__:
            values[name] = int(f.enum[text])
            continue
        try:
            values[name] = int(text, 0)
        except ValueError:
            names = f" or one of {', '.join(f.enum.__members__)}" if f is not None and f.enum is not None else ""
            raise EncodingError(f"{name} must be an integer{names}, not {text!r}") from None
    operation = op(tokens[0], **values)
    operation.encode()
    return operation
