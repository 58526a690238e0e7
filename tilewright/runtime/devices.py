"""`Device`: devices by name, and `Runner`, which runs programs on one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tilewright.common.allocator import MemoryFull
from tilewright.common.shown import Shown
from tilewright.errors import InputError, UsageError
from tilewright.isa import device as isa_device
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters
from tilewright.isa.program import Program
from tilewright.runtime.backends import find
from tilewright.runtime.checks import check_config
from tilewright.runtime.executor import Executor, RunResult, initial_states
from tilewright.runtime.forcing import kept_tensors
from tilewright.runtime.inputs import misfit

HELD_BYTES = 256 << 20
"""Memory of programs held beside each other."""


def _as_config(config: NpuConfig | str | Path) -> NpuConfig:
    return config if isinstance(config, NpuConfig) else NpuConfig.load(config)


class ModelInParts(Protocol):
    """A model that is no single program but runs on a `Runner` as a series of them: a `DynamicModel`."""

    name: str

    def run(self, runner: Runner, inputs: Mapping[str, Any] | Any, **options: Any) -> RunResult:
        """Runs once; see `DynamicModel.run`."""
        ...


class Runner(Shown):
    """A device and the program loaded in it. Not thread-safe.

    Made by `Device`. The last program stays loaded; running another one replaces it. What a program keeps from one run
    to the next stays until `close`, also while other programs run; see `states` and `reset_state`. Without a
    configuration of its own a simulator takes that of each program.

    Attributes:
        name: of the device.
        counters: what the last run counted, None before the first.
    """

    def __init__(self, name: str, config: NpuConfig | None, make: Callable[[NpuConfig], isa_device.Device]) -> None:
        self.name = name
        self.counters: Counters | None = None
        self._pinned = config
        self._make = make
        self._device: isa_device.Device | None = make(config) if config is not None else None
        self._executor: Executor | None = None
        self._held: dict[int, Executor] = {}
        self._parked: dict[int, tuple[Program, dict[str, np.ndarray]]] = {}  # states of programs that are not loaded
        self._last: RunResult | None = None

    def __repr__(self) -> str:
        config = self.config
        return f"Device({self.name!r}, config={config.name if config else None!r})"

    def facts(self) -> dict[str, Any]:
        """Returns facts about the device, for notebooks."""
        config = self.config
        return {
            "name": self.name,
            "config": config.name if config else "that of the program",
            "program": self._executor.program.name if self._executor is not None else "none",
        }

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the device; the next run opens it again."""
        self._held.clear()
        self._parked.clear()
        reopened = self._pinned is not None and not self._close_device()
        self._device = self._make(self._pinned) if reopened and self._pinned is not None else None

    def _close_device(self) -> bool:
        """Forgets the programs and closes the device. False: it cannot be closed."""
        self._executor = None
        self._unload_all()
        close = getattr(self._device, "close", None)
        if close is not None:
            close()
        return close is not None

    @property
    def config(self) -> NpuConfig | None:
        """The device's configuration, None as long as no program has decided it."""
        return self._device.config if self._device is not None else self._pinned

    def load(self, program: Program) -> Executor:
        """Puts the program into the device, unless it is there already. What else is there goes, except on boards,
        where programs stay as long as there is room.

        Raises:
            ConfigMismatchError: it is for another configuration. MemoryFull: it is too large for the device.
        """
        if getattr(self._device, "closed", False):  # the link failed; what the board holds is not known
            self._close_device()
            self._device = None
        if self._executor is not None and self._executor.program is program:
            return self._executor
        self._executor = None
        fits = self._device is not None and self._device.config.fingerprint == program.config.fingerprint
        if self._device is not None and not fits and self._pinned is not None:
            check_config(program, self._device)
        if self._device is None or not fits:
            self._close_device()
            self._device = self._make(self._pinned or program.config)
        if getattr(self._device, "keeps_programs", False):
            self._executor = self._resident(program)
        else:
            self._unload_all()  # their memory is given back
            self._executor = Executor(program, self._device, states=self._taken(program))
            self._held[id(program)] = self._executor
        return self._executor

    def _resident(self, program: Program) -> Executor:
        """The program in a device that keeps several; those used longest ago make room. Equal programs, say of the same
        file loaded twice, are there once."""
        assert self._device is not None
        known = next((key for key, e in self._held.items() if e.program is program or e.program == program), None)
        found = self._held.pop(known) if known is not None else None
        while found is None:
            try:
                found = Executor(program, self._device, beside=True, states=self._taken(program))
            except MemoryFull:
                if not self._held:
                    raise
                self._park(oldest := self._held.pop(next(iter(self._held))))
                oldest.unload()
        self._held[id(program)] = found
        return found

    def hold(self, program: Program) -> Executor:
        """Loads a program beside the programs held already, up to `HELD_BYTES` of them: for models of many programs."""
        keeps = getattr(self._device, "keeps_programs", False)
        found = self._held.get(id(program))
        if found is not None and not keeps:
            return found
        same = self._device is not None and self._device.config.fingerprint == program.config.fingerprint
        if same and keeps:
            return self._resident(program)
        if not same or program.footprint + sum(e.program.footprint for e in self._held.values()) > HELD_BYTES:
            return self.load(program)
        assert self._device is not None
        self._held[id(program)] = found = Executor(program, self._device, beside=True, states=self._taken(program))
        return found

    def _unload_all(self) -> None:
        """Forgets the programs in the device, but not their states."""
        for executor in self._held.values():
            self._park(executor)
        self._held.clear()

    def _park(self, executor: Executor) -> None:
        """Saves the states of a program that leaves the device, for its next run."""
        if executor.program.states:
            self._parked[id(executor.program)] = executor.program, executor.states()

    def _taken(self, program: Program) -> dict[str, np.ndarray] | None:
        """The saved states of a program that comes back; None for one that has not run."""
        return self._parked[id(program)][1] if id(program) in self._parked else None

    def states(self, program: Program) -> dict[str, np.ndarray]:
        """Copies of what a program keeps from one run to the next, by name; the values of a first run before it."""
        held = self._held.get(id(program))
        if held is not None:
            return held.states()
        kept = self._taken(program)
        return initial_states(program) if kept is None else {name: value.copy() for name, value in kept.items()}

    def reset_state(self, program: Program, values: Mapping[str, np.ndarray] | None = None) -> None:
        """Makes the next run of a program the first one, or one that begins with these values.

        Args:
            values: as `states` gives them, so that one program serves several streams in turns.

        Raises:
            InputError: values of other names, shapes or types.
        """
        given = initial_states(program) if values is None else {n: np.array(v) for n, v in values.items()}
        infos = {state.name: state.begin for state in program.states}
        problems = [f"there is no state {name!r}" for name in given if name not in infos]
        problems += [f"state {name!r} is missing" for name in infos if name not in given]
        problems += [misfit(infos[n], v.dtype, v.shape, f"state {n!r}") for n, v in given.items() if n in infos]
        if any(problems):
            raise InputError(f"{program.name}: {'; '.join(filter(None, problems))}")
        held = self._held.get(id(program))
        if held is not None:
            held.set_states(given)
        elif program.states:
            self._parked[id(program)] = program, given

    def run(
        self,
        program: Program | ModelInParts,
        inputs: Mapping[str, Any] | np.ndarray,
        *,
        force: Mapping[str, np.ndarray] | None = None,
        entry: str | None = None,
        **options: Any,
    ) -> dict[str, np.ndarray]:
        """Runs a program once and returns its outputs by name.

        Args:
            program: from `compile` or `load`. Dynamic models also take lists, None and strings; see `DynamicModel.run`.
            inputs: arrays by name, of exactly the program's shapes and types; a bare array if there is one input.
            force: tensors to overwrite as soon as they are made; see `tilewright.runtime.forcing`.
            entry: of a program with several entry points, the one to run.
            options: for the device: `watchdog` and `timeout` (cycles), others as the device has.

        Raises:
            InputError: names, shapes or types do not fit. ConfigMismatchError: program of another configuration.
            DeviceError: the machine stopped; the message names layer and instruction.
        """
        return self.run_detailed(program, inputs, force=force, entry=entry, **options).outputs

    def run_detailed(
        self, program: Program | ModelInParts, inputs: Mapping[str, Any] | np.ndarray, **options: Any
    ) -> RunResult:
        """Runs a program once, as `run`; the result has counters and times too."""
        if not isinstance(program, Program):
            if options.pop("force", None) or options.pop("entry", None):
                raise UsageError(f"{program.name}: a model compiled in parts has no tensors to force, nor entry points")
            self._last = None
            result = program.run(self, inputs, **options)
            self.counters = result.counters
            return result
        executor = self.load(program)
        self._last = None
        self._last = executor.run(inputs, **options)
        self.counters = self._last.counters
        return self._last

    def tensors(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Tensors the last run left in memory: all that are kept, or those named.

        Programs compiled with keep="all" keep every quantised tensor; others share memory between tensors.

        Raises:
            UsageError: nothing ran, or a tensor is unknown or not kept.
        """
        executor = self._executor
        if executor is None or self._last is None:
            raise UsageError("no program has run on this device, so it holds no tensors")
        kept = kept_tensors([*executor.program.inputs, *executor.program.outputs, *executor.program.tensors])
        chosen = list(kept) if names is None else [names] if isinstance(names, str) else list(names)
        known = {t.name for t in executor.program.tensors}
        for name in chosen:
            if name not in kept:
                why = 'is not kept in memory; compile with keep="all"' if name in known else "is not in the program"
                raise UsageError(f"tensor {name!r} {why}")
        return {name: executor.get(kept[name]) for name in chosen}


def open_device(name: str, config: NpuConfig | str | Path | None = None, **options: Any) -> isa_device.Device:
    """A device by name, without a runner. Without a configuration a simulator is `base`, a board what it is.

    Raises:
        UsageError: unknown or unavailable device. TilewrightError: it cannot be opened.
    """
    backend, address = find(name)
    chosen = _as_config(config) if config is not None else None if backend.scheme else NpuConfig.load("base")
    return backend.make(chosen, address, **options)


def Device(name: str = "functional", config: NpuConfig | str | Path | None = None, **options: Any) -> Runner:
    """A device by name, ready to run programs.

    Args:
        name: "functional" (see `tilewright backends`).
        config: preset, file or `NpuConfig` the device is built with; by default that of the program it runs.
        options: for the device.

    Raises:
        UsageError: unknown or unavailable device; the message lists those there are.
    """
    backend, address = find(name)
    return Runner(name, None if config is None else _as_config(config), lambda c: backend.make(c, address, **options))
