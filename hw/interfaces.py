"""Interfaces: groups of ports that are connected as a whole, by `amaranth.lib.wiring.connect`.

`Out(X())` is the side named in the docstring of X, `In(X())` the other one. `tilewright.hw.connections` finds ports
that were forgotten; `flat_ports` gives the names the ports have in Verilog.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.sizes import pc_bits
from tilewright.isa.config import NpuConfig
from tilewright.isa.fields import HEADER, INSTRUCTION_BITS
from tilewright.isa.instructions import ADDRESS_BITS, REGIONS, Engine
from tilewright.isa.registers import REGISTER_SPACE

#: Bits of an AXI4-Lite byte address.
AXIL_ADDRESS_BITS = (REGISTER_SPACE - 1).bit_length()
#: AxBURST of bursts with rising addresses; AxCACHE: normal, non-cacheable, bufferable.
BURST_INCR, CACHE_NORMAL = 1, 3
#: Width of the register with the length of the program, in instructions.
LENGTH_BITS = 32
#: An error's address, as the host reads it.
ERROR_ADDRESS_BITS = 64
SEMAPHORE_BITS = next(f for f in HEADER if f.name == "wait0").bits
#: Engines with a front end and semaphores, in priority order.
ENGINES: list[Engine] = [e for e in Engine if e != Engine.FETCH]


def bits_for(count: int) -> int:
    """Returns the bits of an index below `count`, at least 1."""
    return max(1, (count - 1).bit_length())


class Channel(wiring.Signature):
    """The sender of one AXI channel: `valid`, `ready`, and the fields that are there with `valid`."""

    def __init__(self, **fields: int) -> None:
        self.fields = tuple(fields)
        super().__init__({"valid": Out(1), "ready": In(1), **{name: Out(bits) for name, bits in fields.items()}})


class Axi4(wiring.Signature):
    """An AXI4 master: one ID, INCR bursts of full-width beats."""

    def __init__(self, config: NpuConfig) -> None:
        address = {"id": 1, "addr": config.axi_address_bits, "len": 8, "size": 3, "burst": 2, "cache": 4, "prot": 3}
        super().__init__(
            {
                "ar": Out(Channel(**address)),
                "aw": Out(Channel(**address)),
                "r": In(Channel(id=1, data=config.axi_data_bits, resp=2, last=1)),
                "w": Out(Channel(data=config.axi_data_bits, strb=config.bus_bytes, last=1)),
                "b": In(Channel(id=1, resp=2)),
            }
        )


class Axi4Lite(wiring.Signature):
    """A master of 32-bit registers; its byte strobes must be all ones (others are ignored)."""

    def __init__(self) -> None:
        super().__init__(
            {
                "aw": Out(Channel(addr=AXIL_ADDRESS_BITS, prot=3)),
                "ar": Out(Channel(addr=AXIL_ADDRESS_BITS, prot=3)),
                "w": Out(Channel(data=32, strb=4)),
                "b": In(Channel(resp=2)),
                "r": In(Channel(data=32, resp=2)),
            }
        )


class Trace(wiring.Signature):
    """Strobes of an engine for timelines: `step` (useful work in this cycle), `start` and `end` of an instruction with
    its index. FETCH: `start` is the dispatch of an instruction into its queue, `end` the END instruction."""

    def __init__(self, config: NpuConfig) -> None:
        pc = Out(pc_bits(config))
        super().__init__({"step": Out(1), "start": Out(1), "start_pc": pc, "end": Out(1), "end_pc": pc})


class Debug(wiring.Signature):
    """A `Trace` per engine."""

    def __init__(self, config: NpuConfig) -> None:
        super().__init__({engine.name.lower(): Out(Trace(config)) for engine in Engine})


class RegisterWrite(wiring.Signature):
    """A register that is written: its place (offset / 4) and its new value."""

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "word": Out(AXIL_ADDRESS_BITS - 2), "data": Out(32)})


class RegionLookup(wiring.Signature):
    """A reader of memory regions: it gives a `number` and gets base and size (bytes) and permissions in the same
    cycle."""

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(
            {
                "number": Out(range(REGIONS)),
                "base": In(config.axi_address_bits),
                "size": In(config.offset_bits),
                "read": In(1),
                "write": In(1),
            }
        )


class RegionAccess(wiring.Signature):
    """A reader of memory regions that only reads memory, or only writes it: `allowed` is that permission."""

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(
            {
                "number": Out(range(REGIONS)),
                "base": In(config.axi_address_bits),
                "size": In(config.offset_bits),
                "allowed": In(1),
            }
        )


class EngineControl(wiring.Signature):
    """The front end of an engine.

    Members:
        configure: `word` is a configuring instruction: a bit for each, in the order of the table.
        start, word, pc: a run instruction; `word` is there in the cycle before too.
        ready: the engine can take one at the end of this cycle.
        halt: stop.
    """

    def __init__(self, config: NpuConfig, configuring: int) -> None:
        super().__init__(
            {
                "configure": Out(configuring),
                "start": Out(1),
                "word": Out(INSTRUCTION_BITS),
                "pc": Out(pc_bits(config)),
                "ready": In(1),
                "halt": Out(1),
            }
        )


class Retire(wiring.Signature):
    """An engine that retires instructions: with `give`, the index of one and the semaphores it signals."""

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(
            {"give": Out(1), "signal0": Out(SEMAPHORE_BITS), "signal1": Out(SEMAPHORE_BITS), "pc": Out(pc_bits(config))}
        )


class Take(wiring.Signature):
    """A front end that asks for semaphores.

    Members:
        want, wait0, wait1: asks for both in this cycle; a bit per semaphore, bit 0 for none. The waits stay in the
            cycle after the grant.
        grant: it gets both (only while it asks).
        lacks0: its first is not there, for diagnosis.
    """

    def __init__(self, semaphores: int) -> None:
        size = semaphores + 1
        super().__init__({"want": Out(1), "wait0": Out(size), "wait1": Out(size), "grant": In(1), "lacks0": In(1)})


class Activity(wiring.Signature):
    """The activity of an engine in this cycle: it makes a step; it has anything at work; it waits for memory instead of
    making a step."""

    def __init__(self) -> None:
        super().__init__({"step": Out(1), "running": Out(1), "stalled": Out(1)})


class EngineEvents(wiring.Signature):
    """The events of an engine that are counted: a step; its next instruction waits for a semaphore; it waits for
    memory."""

    def __init__(self) -> None:
        super().__init__({"step": Out(1), "waiting": Out(1), "stalled": Out(1)})


class Fault(wiring.Signature):
    """An error of an instruction, with an address or a row."""

    def __init__(self, config: NpuConfig, address_bits: int = ADDRESS_BITS) -> None:
        super().__init__({"error": Out(1), "pc": Out(pc_bits(config)), "address": Out(address_bits)})


class ErrorReport(wiring.Signature):
    """The first error: `error` two cycles after it happened, the rest a cycle later."""

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(
            {
                "error": Out(1),
                "code": Out(8),
                "engine": Out(4),
                "pc": Out(pc_bits(config)),
                "address": Out(ERROR_ADDRESS_BITS),
            }
        )


class Waiting(wiring.Signature):
    """An engine that waits for a semaphore: number of the engine, index of its instruction, number of the semaphore."""

    def __init__(self, config: NpuConfig) -> None:
        super().__init__({"valid": Out(1), "engine": Out(4), "pc": Out(pc_bits(config)), "id": Out(8)})


class CoreStatus(wiring.Signature):
    """The state of the core, for control.

    Members:
        finished: the program was complete two cycles before.
        bus_idle: nothing in flight on AXI.
        progress: anything moved in the cycle before.
        pc: next instruction of FETCH.
        error, waiting: see `ErrorReport` and `Waiting`.
    """

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(
            {
                "finished": Out(1),
                "bus_idle": Out(1),
                "progress": Out(1),
                "pc": Out(pc_bits(config)),
                "error": Out(ErrorReport(config)),
                "waiting": Out(Waiting(config)),
            }
        )


class Program(wiring.Signature):
    """The registers with the place of the program: region, offset in bytes, length in instructions."""

    def __init__(self, config: NpuConfig) -> None:
        super().__init__({"region": Out(range(REGIONS)), "offset": Out(config.offset_bits), "length": Out(LENGTH_BITS)})


class ReadPort(wiring.Signature):
    """An engine that reads memory by bursts.

    Members:
        valid, ready, address, beats: a burst is asked for.
        beat, data, bad: a beat of a burst arrives; its data; its response is an error.
        beat_ready, beat_address, idle: only where a beat may have to wait: it is taken; where it comes from; nothing of
            this engine is in flight.
    """

    def __init__(self, config: NpuConfig, *, may_wait: bool) -> None:
        members: dict[str, object] = {
            "valid": Out(1),
            "ready": In(1),
            "address": Out(config.axi_address_bits),
            "beats": Out(config.burst_beats.bit_length()),
            "beat": In(1),
            "data": In(config.axi_data_bits),
            "bad": In(1),
        }
        if may_wait:
            members |= {"beat_ready": Out(1), "beat_address": In(config.axi_address_bits), "idle": In(1)}
        super().__init__(members)


def flat_ports(component: Any) -> Iterator[tuple[str, Any, Value]]:
    """Yields (name, direction, signal) of every port of a component. The name is that in Verilog: the names on the way
    to the port with "_" between them, but none between an AXI channel and its field (`axi_arvalid`)."""

    def walk(signature: Any, owner: Any, prefix: str) -> Iterator[tuple[str, Any, Value]]:
        for name, member in signature.members.items():
            value = getattr(owner, name)
            places = [(f"{prefix}{name}", value)]
            for count in member.dimensions:
                places = [(f"{at}{n}", each[n]) for at, each in places for n in range(count)]
            for at, each in places:
                if member.is_port:
                    yield at, member.flow, Value.cast(each)
                else:
                    inner = member.signature
                    yield from walk(inner, each, at if isinstance(inner, Channel) else f"{at}_")

    return walk(component.signature, component, "")
