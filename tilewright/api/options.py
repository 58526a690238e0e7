"""`ProgramOptions`: everything that may be chosen about a compilation, from the command line to the program cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.compiler.options import CompileOptions
from tilewright.errors import UsageError
from tilewright.isa.timing import DEFAULT_MEMORY
from tilewright.tuning.log import TuningLog, open_log
from tilewright.tuning.objective import Objective

if TYPE_CHECKING:
    import onnx

    from tilewright.api.source import ModelSource


@dataclass(frozen=True, kw_only=True)
class ProgramOptions(CompileOptions):
    """Choices about a compilation from a model to a program, beside the model, the configuration and shapes.

    Attributes:
        keep, effort, cpu_only, keep_weights, threads, kernels, print_after, print_form: as for `CompileOptions`.
            Threads and `print_after` are for programs of this machine.
        host: machine the CPU kernels are for ("aarch64-linux", ...; see `tilewright.compiler.cpu.target.HOSTS`), None
            for this one. With a host the program carries the C header of its runtime; see `tilewright.export_c`.
        clock_mhz: of the NPU: with a host, light ops run where they are done sooner. None for 100.
        memory: that schedules are made for, such as that of a board; None for the default of the simulators. The values
            are the same with every memory.
        constants: values of inputs to fix now, by name.
        states: inputs of an ONNX model that become states of the program, which it keeps from run to run, such as the
            cache of keys and values of a language model: the output that sets each for the next run, by the name of
            the input; "auto" for inputs called past... with outputs called present....
        entries: shapes of inputs of each entry point by its name: computations of one program that share constants and
            states, such as "prefill" and "decode" of a language model. `Device.run` names one.
        rising: inputs whose values rise by one, such as the positions of a prompt's tokens: their rows of caches and
            tables are next to each other, and the NPU puts and reads them by itself. Other values are refused then.
        last: outputs of which only the last row, along the last axis but one, is wanted, such as the logits of a
            prompt: nothing that only other rows need is computed.
        staged: long loops and large branches are refused (StagingError), not unrolled and run in vain.
        batch: size of batches that an ONNX model and its shapes leave open: a first dimension without a size, unless
            its name says that it is none. The program has a note of it. None refuses them as other open dimensions.
        cache: keep the program on disk, and take it from there.
        tuning: log of schedules found by `tilewright tune`, applied where they save cycles; None for $TILEWRIGHT_TUNING
            or the user's, "off" for none. Each is for one machine beside one memory.
        schedule: file of `tilewright schedule`, whose decisions are taken as they stand; None to search.
        objective: what schedules are compared by at efforts 2 and 3, and whose log of the user is meant: "cycles" (the
            default), "energy" or "energy-delay". For cycles, weights are coded where that saves time
            (`NpuConfig.weight_codes`), otherwise where it saves bytes.
        progress: called with what is being done and the fraction done.

    Raises:
        UsageError: a value that is not accepted. CompileError: an unknown host.
    """

    constants: Mapping[str, Any] | None = None
    states: Mapping[str, str] | str | None = None
    entries: Mapping[str, Mapping[str, Sequence[int]]] | None = None
    rising: Sequence[str] = ()
    last: Sequence[str] = ()
    staged: bool = False
    batch: int | None = 1
    cache: bool = True
    tuning: str | Path | None = None
    schedule: str | Path | None = None
    objective: str | None = None
    progress: Callable[[str, float], None] | None = None
    small_weights: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        timed = self.host is not None and self.clock_mhz is not None
        settled = {
            "clock_mhz": self.clock_mhz if timed else CompileOptions.clock_mhz,
            "memory": self.memory or DEFAULT_MEMORY,
            "print_after": tuple(self.print_after),
            "kernels": tuple(self.kernels),
            "small_weights": self.goal is not Objective.CYCLES,
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)
        super().__post_init__()

    @property
    def goal(self) -> Objective:
        """The objective. Raises `UsageError` for an unknown one."""
        return Objective.named(self.objective or Objective.CYCLES)

    @property
    def compiler(self) -> CompileOptions:
        """The options that go to the compiler of a graph."""
        return CompileOptions(**{each.name: getattr(self, each.name) for each in fields(CompileOptions)})

    def check_entries(self) -> None:
        """Raises `UsageError` for what a program with entry points cannot have."""
        if not self.entries:
            return
        if self.keep != "outputs" or self.host is not None or self.print_after or self.keep_weights:
            raise UsageError(
                "entry points are for programs of this machine that keep outputs: no keep, host, print_after or "
                "keep_weights"
            )
        if self.tuning not in (None, "off"):
            raise UsageError("schedules of a log (tuning) are for programs without entry points")
        if self.schedule is not None:
            raise UsageError("a schedule is for programs without entry points")
        if self.objective not in (None, "cycles"):
            raise UsageError(f"entry points are compiled for cycles, not for {self.objective}")

    def log(self) -> TuningLog | None:
        """The tuning log that the program is compiled with. Raises `UsageError` for one of another objective."""
        if self.keep != "outputs" or self.cpu_only or self.print_after:
            return None
        found = open_log(self.tuning, self.goal)
        if found is not None and self.objective is not None:
            found.require(self.goal)
        return found

    def source(
        self, model: str | Path | bytes | onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None
    ) -> ModelSource:
        """A model as the importers read it, with what options say about it."""
        from tilewright.api.source import ModelSource  # onnx takes 0.3 s to import

        return ModelSource(
            model, shapes, self.constants, self.staged, self.states, self.batch, self.kernels, self.rising, self.last
        )

    def key(self) -> list[Any]:
        """The options that decide the program's bytes, for the key of the program cache; not the content of the log."""
        constants = {n: (str(np.asarray(v).dtype), np.asarray(v).tolist()) for n, v in (self.constants or {}).items()}
        states = dict(self.states) if isinstance(self.states, Mapping) else self.states
        entries = [(n, {k: list(v) for k, v in shapes.items()}) for n, shapes in (self.entries or {}).items()]
        # A program of one image is the same with and without a size for open batches, if none is open.
        sized = [] if self.batch in (None, 1) else [self.batch]
        extra = [[*self.rising], [*self.last]] if self.rising or self.last else []
        return [constants, states, entries, asdict(self.compiler), *sized, *extra]
