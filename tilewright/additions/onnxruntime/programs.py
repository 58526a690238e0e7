"""Programs of the sessions, loaded into devices, and run by several threads at once."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Sequence

import numpy as np

from tilewright.common.text import printable
from tilewright.errors import InputError
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import NpuStep, Program
from tilewright.onnxruntime.options import Options
from tilewright.runtime.backends import preset_of
from tilewright.runtime.devices import Device, Runner


class Devices:
    """Runners by device. Whatever has an address is one device, which all sessions share; a simulator is as many as run
    at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[str, tuple[Runner, threading.Lock]] = {}
        self._presets: dict[str, NpuConfig] = {}

    def config(self, options: Options) -> NpuConfig:
        """The configuration to compile for. Raises TilewrightError for an unknown device, or one out of reach."""
        if options.config:
            preset_of(options.device) if "://" in options.device else Device(options.device)
            return NpuConfig.load(options.config)
        with self._lock:
            found = self._presets.get(options.device)
            if found is None:
                found = NpuConfig.load(preset_of(options.device) or "base")
                self._presets[options.device] = found
            return found

    def shared(self, name: str) -> tuple[Runner, threading.Lock] | None:
        """The one runner of a device with an address, and its lock; None for simulators."""
        if "://" not in name:
            return None
        with self._lock:
            if name not in self._shared:
                self._shared[name] = Device(name), threading.Lock()
            return self._shared[name]


class Loaded:
    """A program in a device.

    Args:
        inputs, outputs: names of its tensors in the order of onnxruntime's node.

    Raises:
        TilewrightError: the device is out of reach, or does not take the program.
    """

    def __init__(
        self, program: Program, inputs: Sequence[str], outputs: Sequence[str], options: Options, devices: Devices
    ) -> None:
        self.program, self.inputs, self.outputs = program, list(inputs), list(outputs)
        self._needed = {info.name for info in program.inputs}
        self._device, self._shared = options.device, devices.shared(options.device)
        self._idle: queue.SimpleQueue[Runner] = queue.SimpleQueue()
        self._free = threading.Semaphore(options.runs)
        if self._shared is None:
            runner = Device(self._device)
            runner.load(program)
            self._idle.put(runner)
        else:
            with self._shared[1]:
                self._shared[0].load(program)

    def run(self, values: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[float]]:
        """Outputs for inputs, both in the node's order, and seconds per step. Any number of threads may call it.

        Raises:
            InputError: inputs do not fit. DeviceError: the machine stopped. TilewrightError: the device is gone.
        """
        if len(values) != len(self.inputs):
            raise InputError(f"{self.program.name} takes {len(self.inputs)} inputs, not {len(values)}")
        given = {name: value for name, value in zip(self.inputs, values) if name in self._needed}
        if self._shared is not None:
            with self._shared[1]:
                found = self._shared[0].run_detailed(self.program, given)
        else:
            with self._free:
                runner = self._runner()
                try:
                    found = runner.run_detailed(self.program, given)
                finally:
                    self._idle.put(runner)
        return [found.outputs[name] for name in self.outputs], found.seconds

    def steps(self) -> list[str]:
        """One line for each step of the program: NPU or CPU, and its layers or ops."""
        found = []
        for step in self.program.steps:
            if isinstance(step, NpuStep):
                last = step.first + step.count
                names = [x.name for x in self.program.layers if x.where == "npu" and step.first <= x.first < last]
                found.append(f"NPU: {_joined(names)}")
            else:
                found.append(f"CPU: {_joined(step.ops)}")
        return found

    def _runner(self) -> Runner:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return Device(self._device)

    def close(self) -> None:
        """Closes the simulators."""
        while not self._idle.empty():
            self._idle.get().close()


def _joined(names: Sequence[str]) -> str:
    """Names as a line, the first and the last of many."""
    some = list(names) if len(names) <= 4 else [*names[:2], f"{len(names) - 3} more", names[-1]]
    return printable(", ".join(some)).replace("\t", " ").replace("\n", " ")


class Handles:
    """Loaded programs by the number that the provider knows them by."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._loaded: dict[int, Loaded] = {}

    def add(self, loaded: Loaded) -> bytes:
        number = next(self._numbers)
        self._loaded[number] = loaded
        return number.to_bytes(8, "little")

    def get(self, handle: bytes | memoryview) -> Loaded:
        """Raises `InputError`."""
        number = int.from_bytes(handle, "little")
        if number not in self._loaded:
            raise InputError(f"there is no program {number}")
        return self._loaded[number]

    def drop(self, handle: bytes | memoryview) -> None:
        loaded = self._loaded.pop(int.from_bytes(handle, "little"), None)
        if loaded is not None:
            loaded.close()
