"""`Job`: a run as `tilewright run` is asked for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tilewright as tw
from tilewright.checking.report import CheckReport
from tilewright.checking.tolerance import Tolerance
from tilewright.cli.input_files import InputFiles
from tilewright.cli.programs import Request
from tilewright.cli.terminal import Notes, Working, prepare_output, stdout_for_json
from tilewright.compiler.errors import OpenShapeError, StagingError
from tilewright.errors import UsageError
from tilewright.isa.program import Program
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.runtime.backends import find, preset_of
from tilewright.runtime.devices import Device, Runner
from tilewright.simulator.cycle import CycleDevice
from tilewright.simulator.timeline import write_timeline

if TYPE_CHECKING:
    from tilewright.dynamic.model import DynamicModel
    from tilewright.measure.clock import Clock

#: Backends whose cycles depend on the memory beside the NPU.
_TIMED = ("cycle", "rtl")


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The files that are written while a program runs.

    Attributes:
        timeline: file for the time of every instruction; needs the cycle-level simulator.
        trace_file, fst: file for a waveform, of which `fst` must end in .fst; needs the RTL.
        trace_window: A:B, the cycles of the waveform.
    """

    timeline: Path | None = None
    trace_file: Path | None = None
    fst: Path | None = None
    trace_window: str | None = None

    def device_options(self, backend: str, model: Path) -> dict[str, Any]:
        """Options of the device for what is to be recorded.

        Args:
            model: names the waveform's file where none is given.

        Raises:
            UsageError: another device, a window that is not A:B, a file that cannot be written.
        """
        if self.timeline is not None:
            if backend != "cycle":
                raise UsageError(f"--timeline needs a clock: add --backend cycle (not {backend!r})")
            prepare_output(self.timeline)
        if self.trace_file is None and self.fst is None and self.trace_window is None:
            return {}
        if backend != "rtl":
            what = "--fst, --trace-file and --trace-window need signals"
            raise UsageError(f"{what}: add --backend rtl (not {backend!r})")
        if self.fst is not None and self.trace_file is not None:
            raise UsageError("one waveform is written: give --fst or --trace-file, not both")
        if self.fst is not None and self.fst.suffix != ".fst":
            raise UsageError(f"--fst must be a file that ends in .fst, not {str(self.fst)!r}")
        options: dict[str, Any] = {"trace_file": self.trace_file or self.fst or Path(f"{model.stem}.vcd")}
        prepare_output(options["trace_file"])
        if self.trace_window is not None:
            first, colon, last = self.trace_window.partition(":")
            if not (colon and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
                raise UsageError(f"--trace-window must be A:B with cycles A < B, not {self.trace_window!r}")
            options["trace_window"] = int(first), int(last)
        return options


@dataclass
class Job:
    """A program with its inputs on a device, and what the run has shown.

    Attributes:
        request: what the program was made from.
        program: one program, or a model that is compiled while it runs.
        compiled: whether it was compiled now, so that `request.model` is the model.
        inputs: by name.
        runner: the device.
        entry: the entry point that is run, of a program with several.
        notes: takes what the device says while it waits.
        clock, timing: of the NPU and its memory, as asked for; no clock where nothing is said of it.
        outputs, seconds: of the run.
        report: of the check, if there was one.
    """

    request: Request
    program: Program | DynamicModel
    compiled: bool
    inputs: dict[str, Any]
    runner: Runner
    notes: Notes
    entry: str | None = None
    clock: Clock | None = None
    timing: MemoryTiming = DEFAULT_MEMORY
    outputs: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    report: CheckReport | None = None

    @staticmethod
    def prepare(
        request: Request,
        files: InputFiles,
        backend: str,
        recording: Recording,
        json_path: str | None = None,
        whole: bool = False,
        entry: str | None = None,
    ) -> Job:
        """Opens the device, compiles and gathers the inputs.

        Args:
            whole: one program is needed, for what is to be looked at inside; else long loops and branches that are not
                taken are left to a model compiled while it runs.
            entry: the entry point to run.

        Raises:
            TilewrightError: one of them cannot be had.
        """
        find(backend)  # an unknown device is named before anything is read
        options, notes = recording.device_options(backend, request.model), Notes()
        if backend.startswith("tcp://"):
            options["notify"] = notes
        if request.config is None and not request.is_program:
            request = replace(request, config=preset_of(backend))
        if files.arrays:
            request = replace(request, options=replace(request.options, batch=None))  # that of the arrays
        clock, timing = _clock_and_memory(request, backend)
        if backend in _TIMED:
            options["timing"] = timing
        with Working(f"opening {backend}", log=True) as working:
            if backend == "rtl":
                options["progress"] = working.estimate
            runner = Device(backend, None if request.config is None else request.machine, **options)
        try:
            program, compiled = request.open(json_path, not whole)
            if program.entries and entry is None:
                raise UsageError(
                    f"{request.model} has the entry points {', '.join(e.name for e in program.entries)}: name one by "
                    "--entry, or run a language model by tilewright generate"
                )
            inputs = files.of_program(program.entry(entry))
            return Job(request, program, compiled, inputs, runner, notes, entry, clock, timing)
        except (OpenShapeError, StagingError) as reason:
            if entry is not None:
                raise UsageError(f"--entry is for a compiled program with entry points, not {request.model}") from None
            model, inputs = _with_inputs(request, files, reason, json_path, whole)
            return Job(request, model, True, inputs, runner, notes, None, clock, timing)

    @property
    def entry_program(self) -> Program | DynamicModel:
        """The program that runs: one entry point of several, or the whole."""
        return self.program.entry(self.entry) if isinstance(self.program, Program) else self.program

    def run(self, timeline: Path | None = None) -> None:
        """Runs once and writes the time of every instruction to `timeline`."""
        if timeline is not None and not isinstance(self.program, Program):
            raise UsageError(f"--timeline shows one program; {self.request.model} is compiled in parts while it runs")
        with Working(f"running {self.program.name}") as self.notes.working:
            if isinstance(self.program, Program):
                self.runner.load(self.program)
            options: dict[str, Any] = {"trace": True} if timeline is not None else {}
            if self.entry is not None:
                options["entry"] = self.entry
            start = time.perf_counter()
            self.outputs = self.runner.run(self.program, self.inputs, **options)
            self.seconds = time.perf_counter() - start
        if timeline is not None and isinstance(self.program, Program):
            device = self.runner.load(self.program).device
            assert isinstance(device, CycleDevice)
            write_timeline(timeline, self.program.ops(), self.program.entry(self.entry).layers, device.traces)

    def check(self, mode: str, model: Path, json_path: str | None = None, tolerance: Tolerance | None = None) -> None:
        """Compares with the reference runtime on `model`: "outputs", or "all" tensors."""
        shapes = self.request.given_shapes
        if isinstance(self.program, Program):
            shapes = {t.name: list(t.shape) for t in self.program.inputs}
        with Working("comparing with the reference"), stdout_for_json(json_path):
            self.report = tw.check(
                model, self.inputs, shapes=shapes, keep=mode, device=self.runner, program=self.program,
                effort=self.request.options.effort, constants=self.request.constants, tolerance=tolerance,
                kernels=self.request.options.kernels,
            )  # fmt: skip


def _clock_and_memory(request: Request, backend: str) -> tuple[Clock | None, MemoryTiming]:
    """Clock and memory timing of a request. Raises `UsageError` for a memory that changes nothing."""
    if not request.is_program or not request.names_memory:
        return request.clock_and_memory(request.machine)
    if backend not in _TIMED:
        raise UsageError(
            f"{request.model} is compiled already: --board, --memory, --latency and --interval change only the cycles "
            f"of --backend {' and '.join(_TIMED)} (not {backend!r})"
        )
    return request.clock_and_memory(request.compiled.config)


def _with_inputs(
    request: Request, files: InputFiles, reason: OpenShapeError | StagingError, json_path: str | None, whole: bool
) -> tuple[Program | DynamicModel, dict[str, Any]]:
    """A model that is no single program without its inputs: one program if their shapes are all it lacked, else a
    dynamic model.

    Args:
        reason: why there is no program without inputs.
        whole: as for `Job.prepare`.
    """
    dynamic = tw.DynamicModel(
        request.model, request.machine, request.given_shapes, constants=request.constants,
        effort=request.options.effort,
    )  # fmt: skip
    lacks_shapes = isinstance(reason, OpenShapeError)
    inputs = files.of_model(dynamic.inputs, reason if lacks_shapes else None)
    if lacks_shapes:
        try:
            shapes = {name: list(array.shape) for name, array in inputs.items()}
            return request.compile(shapes, json_path, not whole), inputs
        except StagingError:
            pass
    decoder = {"--state": request.states, "--rising": request.options.rising, "--last": request.options.last}
    for option, chosen in decoder.items():
        if chosen:
            raise UsageError(f"{request.model} is compiled in parts while it runs: {option} needs one program")
    return dynamic, inputs
