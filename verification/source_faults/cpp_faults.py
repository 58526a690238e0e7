"""Faults in C++: another operator or number in a line of the native simulators."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.common.paths import ROOT

#: What becomes what; only where it stands between blanks, which pointers, templates and signs do not.
_OPERATORS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+",
    "*": "+", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "+=": "-=", "-=": "+=",
}  # fmt: skip
_TOKEN = re.compile(
    r'(?P<skip>//.*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\')'
    rf"|(?<= )(?P<operator>{'|'.join(sorted(map(re.escape, _OPERATORS), key=len, reverse=True))})(?= )"
    r"|\b(?P<number>\d+)(?=u?\b)"
)
#: Lines that are no code of a function, or stop the compiler, not the simulator.
_LEFT_ALONE = re.compile(r"^\s*(#|//|\*|/\*|template|static_assert|constexpr|using|namespace|alignas|asm)")


@dataclass(frozen=True)
class Fault:
    """A fault in a C++ source.

    Attributes:
        path: of the source.
        line: of the source, from 1 on.
        code: of the line.
        column: where the change begins.
        old, new: what was there and what is.
        number: of it among those in lines that are the same, from 1 on.
    """

    path: Path
    line: int
    code: str
    column: int
    old: str
    new: str
    number: int = 1

    @property
    def what(self) -> str:
        """The change, in words."""
        return f"{self.old} -> {self.new}"

    @property
    def name(self) -> str:
        """A name for the fault that changes of other lines do not change."""
        name = f"{self.path.name} {self.code.strip()} {self.column} {self.what}"
        return name if self.number == 1 else f"{name} #{self.number}"

    @property
    def where(self) -> str:
        """File and line of the fault, as editors take them."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    def text(self) -> str:
        """Returns the source with the fault."""
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        assert self.code[self.column :].startswith(self.old)
        lines[self.line - 1] = self.code[: self.column] + self.new + self.code[self.column + len(self.old) :] + "\n"
        return "".join(lines)


def faults_of(path: Path) -> list[Fault]:
    """Returns all faults that can be put into a file."""
    found = []
    same: Counter[str] = Counter()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if _LEFT_ALONE.match(line):
            continue
        same[line] += 1
        for token in _TOKEN.finditer(line):
            if old := token["operator"]:
                found.append(Fault(path, number, line, token.start(), old, _OPERATORS[old], same[line]))
            elif old := token["number"]:
                found.append(Fault(path, number, line, token.start(), old, str(int(old) + 1), same[line]))
    return found
