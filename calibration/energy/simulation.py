"""`GateDevice`: a device that simulates a netlist and counts toggles, behind the harness of the RTL simulation."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.energy.netlist import Netlist
from tilewright import isa
from tilewright.common.native import Library, shared_library
from tilewright.hw.sim import device
from tilewright.hw.sim.device import NO_LIMIT, RtlDevice, load_library
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import HostMemory
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming

_NATIVE = Path(__file__).resolve().parent / "native"
_HARNESS = Path(device.__file__).resolve().parent / "harness.cpp"
_INCLUDE = Path(isa.__file__).parent / "include"
_COUNTS = ("nets", "gates", "nodes", "flops", "clock_gates", "memories", "async_reads", "unit_delay")
_ARRAYS = (
    "order", "inputs", "truth", "output", "flop_d", "flop_q", "flop_clock", "flop_init", "gate_enable", "memory",
    "ports", "toggles", "enabled", "accesses",
)  # fmt: skip


class _Gates(ctypes.Structure):
    """The C struct `tw_gates` of native/Vnpu.h."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in _COUNTS),
        *((name, ctypes.c_void_p) for name in _ARRAYS),
        ("cycles", ctypes.c_uint64),
    ]


@dataclass
class Activity:
    """Counts from START to the interrupt, summed over runs.

    Attributes:
        cycles: clock cycles.
        toggles: toggles of each net, uint64 [nets].
        enabled: cycles in which each clock gate was open, uint64 [clock gates].
        accesses: accesses through each port, uint64 [ports], memory by memory, read ports before write ports. A read
            counts if its row is another one than before, or was written since.
    """

    cycles: int
    toggles: np.ndarray
    enabled: np.ndarray
    accesses: np.ndarray


class GateDevice(RtlDevice):
    """A netlist of one configuration, simulated gate by gate. See `tilewright.hw.sim.device.RtlDevice`.

    Args:
        config: configuration that the netlist was made of.
        netlist: gates, registers and memories.
        timing: timing of the external memory.
        glitches: every gate takes one unit of time, and toggles before a net settles count too.

    Raises:
        BuildError: no C++ compiler.
    """

    name = "gates"

    def __init__(
        self, config: NpuConfig, netlist: Netlist, timing: MemoryTiming | None = None, *, glitches: bool = False
    ) -> None:
        self.config, self.timing, self.limit = config, timing or DEFAULT_MEMORY, NO_LIMIT
        self.memory = HostMemory()
        self.events = []
        sources = [*_NATIVE.glob("*.h"), _HARNESS, *_INCLUDE.glob("*.h")]
        flags = ["-O3", "-march=native", "-Wall", f"-DTW_BUS_BYTES={config.bus_bytes}", f"-I{_NATIVE}", f"-I{_INCLUDE}"]
        name = f"gates{config.bus_bytes}"
        path = shared_library(Library(_HARNESS, flags, sources, "simulator", name, "the gate simulator"))
        self._library = load_library(path)
        ports = self._library.tw_gates_ports
        ports.restype = ctypes.c_char_p
        names = ports().decode().split()
        self._activity = Activity(
            0,
            np.zeros(netlist.nets, np.uint64),
            np.zeros(len(netlist.gate_enable), np.uint64),
            np.zeros(sum(len(m.reads) + len(m.writes) for m in netlist.memories), np.uint64),
        )
        lists = {
            "memory": _memories(netlist),
            "ports": [n for name in names for n in (len(netlist.ports.get(name, [])), *netlist.ports.get(name, []))],
        }
        arrays = {name: np.array(values, np.int32) for name, values in lists.items()} | {
            "order": netlist.order, "inputs": netlist.gate_inputs, "truth": netlist.gate_truth,
            "output": netlist.gate_output, "flop_d": netlist.flop_d, "flop_q": netlist.flop_q,
            "flop_clock": netlist.flop_clock, "flop_init": netlist.flop_init, "gate_enable": netlist.gate_enable,
            "toggles": self._activity.toggles, "enabled": self._activity.enabled,
            "accesses": self._activity.accesses,
        }  # fmt: skip
        self._arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}  # the library keeps none
        counts = (
            netlist.nets, len(netlist.gate_cell), len(netlist.order), len(netlist.flop_cell), len(netlist.gate_enable),
            len(netlist.memories), len(netlist.async_reads), int(glitches),
        )  # fmt: skip
        pointers = {name: self._arrays[name].ctypes.data for name in _ARRAYS}
        self._gates = _Gates(**dict(zip(_COUNTS, counts)), **pointers)
        self._library.tw_gates_load(ctypes.byref(self._gates))
        self._own(self._library.tw_rtl_create(), self._library.tw_rtl_destroy)

    @property
    def activity(self) -> Activity:
        """The counts of all runs so far."""
        self._activity.cycles = int(self._gates.cycles)
        return self._activity


def _memories(netlist: Netlist) -> list[int]:
    """Returns the memories as numbers, in the order in which native/Vnpu.h reads them."""
    found: list[int] = []
    for memory in netlist.memories:
        bits = len((memory.reads or memory.writes)[0][0])
        found += [memory.width, memory.size, bits, len(memory.reads), len(memory.writes)]
        for address, data, enable, clocked in memory.reads:
            found += [enable, int(clocked), *address, *data]
        for address, data, enables in memory.writes:
            found += [*address, *data, *enables]
    return found + [number for pair in netlist.async_reads for number in pair]
