"""The solver Bitwuzla as a process that reads SMT-LIB from standard input, for smtbmc.

The wheel `bitwuzla` holds the library without its program, and its parser keeps no push levels between two inputs:
assertions go through the interface of the library, only terms and declarations through the parser.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator


def commands(lines: Iterable[str]) -> Iterator[str]:
    """Commands of an SMT-LIB text, without comments. Names in |bars| hold no brackets in what Yosys writes."""
    text, depth = "", 0
    for line in lines:
        line = line.partition(";")[0]
        text += line
        depth += line.count("(") - line.count(")")
        if depth == 0 and text.strip():
            yield text.strip()
            text = ""


def terms(text: str) -> list[str]:
    """Returns the terms of a list, without its brackets."""
    found: list[str] = []
    depth = 0
    for part in re.findall(r"\|[^|]*\||[()]|[^\s()|]+|\s+", text):
        if depth == 0 and not part.isspace():
            found.append("")
        if found and not (depth == 0 and part.isspace()):
            found[-1] += part
        depth += (part == "(") - (part == ")")
    return found


def main() -> None:
    """Answers check-sat and get-value until (exit) or the end of the input."""
    if "--help" in sys.argv:
        print("--lang")  # what smtbmc looks for to know the version
        return
    import bitwuzla

    options = bitwuzla.Options()
    options.set(bitwuzla.Option.PRODUCE_MODELS, True)
    parser = bitwuzla.Parser(bitwuzla.TermManager(), options)
    parser.parse("(set-logic QF_ABV)(push 0)", False, False)  # makes the solver
    solver = parser.bitwuzla()
    for command in commands(sys.stdin):
        name, _, rest = command[1:-1].partition(" ")
        if name == "assert":
            solver.assert_formula(parser.parse_term(rest))
        elif name == "push":
            solver.push(int(rest))
        elif name == "pop":
            solver.pop(int(rest))
        elif name == "check-sat":
            print(str(solver.check_sat()).rpartition(".")[2].lower(), flush=True)
        elif name == "get-value":  # of all terms of a trace at once
            values = (f"({term} {solver.get_value(parser.parse_term(term))})" for term in terms(rest.strip()[1:-1]))
            print(f"({' '.join(values)})", flush=True)
        elif name == "exit":
            return
        elif name not in ("set-option", "set-logic"):
            parser.parse(command, False, False)


if __name__ == "__main__":
    main()
