"""Joins ELF relocatables into one, as `ld -r` does.

Sections stay apart (a relocatable may have many of one name), so their contents and relocations are copied; only
section and symbol numbers change.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

SYMTAB, STRTAB, RELA, NOBITS, REL, GROUP = 2, 3, 4, 8, 9, 17
ADDRSIG = 0x6FFF4C03  # SHT_LLVM_ADDRSIG, a hint for linkers by symbol number
LINK_ORDER = 0x80
LOCAL, GLOBAL = 0, 1
SECTION, FILE = 3, 4
RESERVED = 0xFF00  # section numbers from here on are not sections


class _Layout(Struct, frozen=True):
    """Record formats of one ELF class. Every record is read as named fields."""

    header: str
    section: str
    symbol: str
    symbol_fields: tuple[str, ...]
    shift: int  # of the symbol number in a relocation's info

    def relocation(self, with_addend: bool) -> struct.Struct:
        word = "Q" if self.shift == 32 else "I"
        return struct.Struct("<" + word * 2 + (word.lower() if with_addend else ""))


_LAYOUTS = {
    1: _Layout("<16sHHIIIIIHHHHHH", "<IIIIIIIIII", "<IIIBBH", ("name", "value", "size", "info", "other", "section"), 8),
    2: _Layout(
        "<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ", ("name", "info", "other", "section", "value", "size"), 32
    ),
}


class _Section(Struct):
    name: bytes
    type: int
    flags: int
    data: bytes
    size: int
    link: int
    info: int
    align: int
    entry: int


class ElfObject(Struct):
    layout: _Layout
    header: tuple[int, ...]
    sections: list[_Section]
    symbols: list[dict[str, int]] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)


def _string(table: bytes, at: int) -> bytes:
    return table[at : table.index(b"\0", at)]


def parse(raw: bytes) -> ElfObject:
    """Parses a relocatable object file. Raises ValueError for other files."""
    if raw[:4] != b"\x7fELF" or raw[4] not in _LAYOUTS or raw[5] != 1:
        raise ValueError("not a little-endian ELF file")
    layout = _LAYOUTS[raw[4]]
    header = struct.unpack_from(layout.header, raw)
    at, size, count, names = header[6], header[11], header[12], header[13]
    rows = [struct.unpack_from(layout.section, raw, at + i * size) for i in range(count)]
    content = [b"" if r[1] == NOBITS else raw[r[4] : r[4] + r[5]] for r in rows]
    sections = [
        _Section(_string(content[names], r[0]), r[1], r[2], data, r[5], r[6], r[7], r[8], r[9])
        for r, data in zip(rows, content)
    ]
    out = ElfObject(layout, header, sections)
    for s in sections:
        if s.type == SYMTAB:
            for values in struct.iter_unpack(layout.symbol, s.data):
                symbol = dict(zip(layout.symbol_fields, values))
                out.symbols.append(symbol)
                out.names.append(_string(content[s.link], symbol["name"]))
        elif s.type == GROUP:
            raise ValueError("section groups are not supported")
    return out


class _Strings:
    def __init__(self) -> None:
        self.raw = bytearray(1)
        self.at = {b"": 0}

    def __call__(self, s: bytes) -> int:
        if s not in self.at:
            self.at[s] = len(self.raw)
            self.raw += s + b"\0"
        return self.at[s]


def join(objects: Sequence[bytes], entry: str, visible: str | None = None) -> bytes:
    """Joins `objects` into one relocatable.

    References between them are resolved; of their symbols only `entry` stays visible, as `visible` if given.

    Raises:
        ValueError: not ELF, or a name defined twice.
    """
    parsed = [parse(raw) for raw in objects]
    layout, header = parsed[0].layout, parsed[0].header
    strings = _Strings()
    sections = [_Section(b"", 0, 0, b"", 0, 0, 0, 0, 0)]
    sources: list[tuple[ElfObject, int, _Section]] = []  # object, new number, section as it was
    numbers: list[dict[int, int]] = []
    once: set[tuple[bytes, bytes]] = set()
    for o in parsed:
        numbers.append({0: 0})
        for i, s in enumerate(o.sections):
            if s.type in (0, SYMTAB, STRTAB, ADDRSIG):
                continue
            if s.name in (b".note.GNU-stack", b".ARM.attributes", b".riscv.attributes"):
                if (s.name, s.data) in once:
                    continue
                once.add((s.name, s.data))
            numbers[-1][i] = len(sections)
            sources.append((o, len(sections), s))
            sections.append(_Section(s.name, s.type, s.flags, s.data, s.size, 0, 0, s.align, s.entry))

    # Symbols: locals first, the entry point and what is defined nowhere last.
    rows: list[tuple[bytes, dict[str, int]]] = [(b"", dict.fromkeys(layout.symbol_fields, 0))]
    outer: list[tuple[bytes, dict[str, int]]] = []
    defined: dict[bytes, int] = {}
    taken: set[bytes] = set()
    moved: list[dict[int, int]] = []
    for o, number in zip(parsed, numbers):
        moved.append({0: 0})
        for i, (symbol, name) in enumerate(zip(o.symbols, o.names)):
            section, kind = symbol["section"], symbol["info"] & 15
            bound = symbol["info"] >> 4
            dropped = section not in number and section < RESERVED
            if i == 0 or kind == FILE or dropped or (bound != LOCAL and section == 0):
                continue
            symbol = {**symbol, "section": number.get(section, section)}
            if bound != LOCAL:
                if name in defined:
                    raise ValueError(f"symbol {name.decode()!r} is defined twice")
                if name.decode() == entry:
                    defined[name] = -1
                    outer.append((name, symbol))
                    continue
                defined[name] = len(rows)
                symbol |= {"info": (LOCAL << 4) | kind, "other": 0}
            elif name in taken and kind != SECTION:
                name += b".%d" % len(rows)  # LLVM's loader looks local symbols up by name, too
            taken.add(name)
            moved[-1][i] = len(rows)
            rows.append((name, symbol))
    first_global = len(rows)
    for old, symbol in outer:
        defined[old] = len(rows)
        rows.append((visible.encode() if visible is not None else old, symbol))
    for o, to in zip(parsed, moved):
        for i, (symbol, name) in enumerate(zip(o.symbols, o.names)):
            if i and i not in to and symbol["info"] >> 4 != LOCAL:
                if name not in defined:
                    defined[name] = len(rows)
                    rows.append((name, symbol))
                to[i] = defined[name]

    symtab = len(sections)
    by_object = {id(o): k for k, o in enumerate(parsed)}
    for o, at, s in sources:
        k = by_object[id(o)]
        if s.type in (RELA, REL):
            record = layout.relocation(s.type == RELA)
            mask = (1 << layout.shift) - 1
            out = bytearray()
            for where, info, *addend in record.iter_unpack(s.data):
                out += record.pack(where, moved[k][info >> layout.shift] << layout.shift | info & mask, *addend)
            sections[at].data, sections[at].link = bytes(out), symtab
            sections[at].info = numbers[k][s.info]
        elif s.flags & LINK_ORDER:
            sections[at].link = numbers[k][s.link]
    table = bytearray()
    for name, symbol in rows:
        row = {**symbol, "name": strings(name)}
        table += struct.pack(layout.symbol, *(row[f] for f in layout.symbol_fields))
    entry_size = struct.calcsize(layout.symbol)
    sections.append(_Section(b".symtab", SYMTAB, 0, bytes(table), 0, symtab + 1, first_global, 8, entry_size))
    sections.append(_Section(b".strtab", STRTAB, 0, b"", 0, 0, 0, 1, 0))
    titles = [strings(s.name) for s in sections]
    sections[-1].data = bytes(strings.raw)

    out = bytearray(struct.calcsize(layout.header))
    heads = []
    for title, s in zip(titles, sections):
        if s.type:
            out += bytes(-len(out) % max(s.align, 1))
        size = s.size if s.type == NOBITS else len(s.data)
        at = len(out) if s.type else 0
        heads.append(struct.pack(layout.section, title, s.type, s.flags, 0, at, size, s.link, s.info, s.align, s.entry))
        out += s.data
    out += bytes(-len(out) % 8)
    fields = list(header)
    fields[6], fields[12], fields[13] = len(out), len(sections), len(sections) - 1
    out[: struct.calcsize(layout.header)] = struct.pack(layout.header, *fields)
    return bytes(out) + b"".join(heads)
