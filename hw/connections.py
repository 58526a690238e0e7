"""Finds ports that nobody drives or nobody reads: a connection that was forgotten.

A port that is meant to be left alone is named in `unread`, with the reason beside it. A component whose ports are not
all needed by everyone has their names in an attribute `optional`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from amaranth.hdl import Elaboratable, Fragment, Instance, Module, Value
from amaranth.hdl._ir import Design, IOBufferInstance, PortDirection
from amaranth.hdl._mem import MemoryInstance
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from tilewright.hw.interfaces import flat_ports


class ConnectionError(Exception):
    """Ports without a driver or a reader."""


class _Unread(Elaboratable):
    """Marks values as read, in the module it is added to; makes no hardware."""

    _MustUse__silence = True  # nothing is lost where a design is elaborated in part only

    def __init__(self, values: tuple[Value, ...]) -> None:
        self.values = values

    def elaborate(self, platform: object) -> Module:
        return Module()


def unread(m: Module, *values: Any) -> None:
    """Marks ports that `m` leaves alone on purpose: its own inputs, or outputs of its parts."""
    m.submodules += _Unread(tuple(Value.cast(value) for value in values))


def _signals(value: Any) -> list[Any]:
    return list(Value.cast(value)._rhs_signals())


class _Uses:
    """The fragments that drive and read each signal, by their numbers in a walk from the top down."""

    def __init__(self, top: Fragment) -> None:
        self.driven: dict[int, list[int]] = defaultdict(list)
        self.read: dict[int, list[int]] = defaultdict(list)
        #: Components with the first place within and the first behind them, and the names on the way to them.
        self.components: list[tuple[wiring.Component, int, int, tuple[str, ...]]] = []
        self._place = 0
        self._walk(top, ())

    def _walk(self, fragment: Fragment, path: tuple[str, ...]) -> None:
        place = self._place
        self._place += 1
        drives, reads = (lambda s: self.driven[id(s)].append(place)), (lambda s: self.read[id(s)].append(place))
        for statements in fragment.statements.values():
            for signal in statements._lhs_signals():
                drives(signal)
            for signal in statements._rhs_signals():
                reads(signal)
        inputs: list[Any] = []
        outputs: list[Any] = []
        if isinstance(fragment, Instance):
            for value, kind in fragment.ports.values():
                if kind != "io" and isinstance(value, Value):
                    (inputs if kind == "i" else outputs).append(value)
        elif isinstance(fragment, MemoryInstance):
            for port in fragment._read_ports:
                inputs += [port._addr, port._en]
                outputs.append(port._data)
            for port in fragment._write_ports:
                inputs += [port._addr, port._en, port._data]
        elif isinstance(fragment, IOBufferInstance):
            inputs += [value for value in (fragment.o, fragment.oe) if value is not None]
            outputs += [fragment.i] if fragment.i is not None else []
        for origin in fragment.origins or ():
            if isinstance(origin, _Unread):
                inputs += origin.values
        for value in outputs:
            for signal in _signals(value):
                drives(signal)
        for value in inputs:
            for signal in _signals(value):
                reads(signal)
        for n, (part, name, _) in enumerate(fragment.subfragments):
            self._walk(part, (*path, name or f"part {n}"))
        for origin in fragment.origins or ():
            if isinstance(origin, wiring.Component):
                self.components.append((origin, place, self._place, path))


def check(top: Fragment) -> None:
    """Looks at every port of every component of an elaborated design.

    Raises:
        ConnectionError: names each port that has no driver or no reader.
    """
    uses = _Uses(top)
    wrong: list[str] = []
    for component, first, end, path in uses.components:
        optional = getattr(component, "optional", ())
        for names, member, port in component.signature.flatten(component):
            if names[0] in optional:
                continue
            for signal in _signals(port):
                driven = [first <= place < end for place in uses.driven[id(signal)]]
                read = [first <= place < end for place in uses.read[id(signal)]]
                inside, outside = any(driven), not all(driven)
                read_inside, read_outside = any(read), not all(read)
                where = ".".join([*path, *map(str, names)])
                if member.flow == Out:
                    missing = [] if inside else ["is not driven"]
                    missing += [] if read_outside or not path else ["is read by nobody"]
                else:
                    missing = [] if outside or not path else ["is not connected"]
                    missing += [] if read_inside else ["is not used inside"]
                wrong += [f"{where} {what}" for what in missing]
    if wrong:
        raise ConnectionError("; ".join(sorted(wrong)))


def design(component: Any, name: str) -> Design:
    """Elaborates a component as top module `name`, with the port names of `tilewright.hw.interfaces.flat_ports`, and
    checks it.

    Raises:
        ConnectionError: see `check`.
    """
    ports = {
        port: (value, PortDirection.Output if flow == Out else PortDirection.Input)
        for port, flow, value in flat_ports(component)
    }
    made: Design = Fragment.get(component, None).prepare(ports=ports, hierarchy=(name,))
    check(made.fragment)
    return made
