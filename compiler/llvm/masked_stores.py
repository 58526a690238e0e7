"""Works around a fault of LLVM 22: masked stores of which only one lane exists.

LLVM makes one store of an element of them. Where the vector was narrowed just before (`vpmovqd` and its like), it
stores the element in its former width: 8 bytes for a 32-bit integer that came from 64 bits. So kernels wrote a few
bytes behind the ends of rows. Here such stores become stores of one element.
"""

from __future__ import annotations

import re

_STORE = re.compile(
    r"^  (?:tail )?call void @llvm\.masked\.store\.\w+\.p0\("
    r"(?P<type><\d+ x (?P<element>\w+)>) (?P<value>%[\w.]+), "
    r"ptr (?:nonnull )?align (?P<align>\d+) (?P<pointer>%[\w.]+|@[\w.]+), "
    r"<\d+ x i1> <(?P<mask>[^>]*)>\).*$",
    re.MULTILINE,
)


def single_lanes_written_out(text: str) -> str:
    """Replaces masked stores of one lane in an optimised module with stores of an element."""
    count = 0

    def element(match: re.Match[str]) -> str:
        nonlocal count
        lanes = [bit == "i1 true" for bit in match["mask"].split(", ")]
        if sum(lanes) != 1:
            return match[0]
        count += 1
        lane, name, type_ = lanes.index(True), f"%single.{count}", match["element"]
        return "\n".join(
            [
                f"  {name}.at = getelementptr {type_}, ptr {match['pointer']}, i64 {lane}",
                f"  {name} = extractelement {match['type']} {match['value']}, i64 {lane}",
                f"  store {type_} {name}, ptr {name}.at, align {match['align'] if not lane else 1}",
            ]
        )

    return _STORE.sub(element, text)
