"""`explain` and `compare`: where the cycles of a network go, on one machine or on two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from tilewright.api.compilation import compile_program
from tilewright.errors import UsageError
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.program import Program
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.measure import compare as comparing
from tilewright.measure import explain as explaining
from tilewright.measure.clock import Clock, at_board
from tilewright.measure.compare import Comparison
from tilewright.measure.explain import Explanation
from tilewright.store.files import load

if TYPE_CHECKING:
    import onnx

    Model: TypeAlias = "Program | str | Path | bytes | onnx.ModelProto"
    Config: TypeAlias = "NpuConfig | str | Path"


@dataclass(frozen=True)
class _Request:
    """A program or a model, and how a model is compiled and both are run; see `explain`."""

    model: Model
    config: Config | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    board: str | None = None
    board_memory: str | None = None
    memory: MemoryTiming | None = None
    clock_mhz: float | None = None
    trust: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def explain(self) -> Explanation:
        """Compiles what is a model, and runs it."""
        if _is_program(self.model):
            program = self.model if isinstance(self.model, Program) else load(self.model, trust=self.trust)
            given = {"config": self.config, "shapes": self.shapes} | self.options
            for name, value in given.items():
                if value is not None and not (name == "tuning" and value == "off"):
                    raise UsageError(f"{program.name} is compiled already: {name} has no effect on it")
            clock, memory = self._clock_and_memory(program.config)
            return explaining.explain(program, memory, clock)
        assert not isinstance(self.model, Program)
        chosen = self.config if isinstance(self.config, NpuConfig) else NpuConfig.load(self.config or "base")
        clock, memory = self._clock_and_memory(chosen)
        mhz = None if clock is None else clock.mhz
        program = compile_program(self.model, chosen, self.shapes, memory=memory, clock_mhz=mhz, **self.options)
        return explaining.explain(program, memory, clock)

    def _clock_and_memory(self, config: NpuConfig) -> tuple[Clock | None, MemoryTiming]:
        clock = None if self.clock_mhz is None else Clock(self.clock_mhz, "clock_mhz")
        memory = self.memory
        if self.board is not None:
            mhz, beside = at_board(self.board, config, self.clock_mhz, self.board_memory)
            clock, memory = clock or Clock(mhz, self.board), memory or beside
        elif self.board_memory is not None:
            raise UsageError(f"board_memory {self.board_memory!r} is one of a board's: name the board")
        return clock, memory or DEFAULT_MEMORY


def explain(
    model: Model,
    config: Config | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    board: str | None = None,
    board_memory: str | None = None,
    memory: MemoryTiming | None = None,
    clock_mhz: float | None = None,
    trust: bool = False,
    **options: Any,
) -> Explanation:
    """Says where the cycles of a network go, layer by layer, as `tilewright explain` does.

    The program runs on the cycle-level simulator. Every layer is compared with the fewest cycles it could take, and
    every cycle above that has a cause. Energy is that of a model.

    Args:
        model: a `Program`, the file of one, or what `compile_program` takes.
        config: of a model that is compiled now; by default "base".
        shapes: of inputs that the model leaves open, by name.
        board: whose memory and clock the machine has.
        board_memory: another memory of the board, "bram" or "sdram".
        memory: beside the NPU, in place of a board's.
        clock_mhz: that turns cycles into time; by default that of the fastest board known to run the configuration.
        trust: as for `load`.
        options: of `compile_program`, such as `effort`, `objective`, `host` and `tuning`.

    Returns:
        Cycles, bounds, losses, energy and latency: `rows`, `cycles`, `bound`, `to_dict()`.

    Raises:
        TilewrightError: model, configuration or board cannot be used; one line that says why.
    """
    return _Request(model, config, shapes, board, board_memory, memory, clock_mhz, trust, options).explain()


def compare(
    a: Config | Model | Explanation,
    b: Config | Model | Explanation,
    model: Model | None = None,
    *,
    config: Config | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    board: str | None = None,
    board_memory: str | None = None,
    memory: MemoryTiming | None = None,
    clock_mhz: float | None = None,
    trust: bool = False,
    **options: Any,
) -> Comparison:
    """Compares two machines that run a network, or two programs, layer by layer, as `tilewright compare` does.

    Where the tuning log has schedules for one side only, they are left out, with a note.

    Args:
        a, b: two configurations, with `model`; or two programs or models, as `explain` takes them, or what it gave.
        model: the network that two configurations run.
        config: of models among `a` and `b`; by default "base".
        shapes, board, board_memory, memory, clock_mhz, trust, options: as for `explain`.

    Raises:
        UsageError: a configuration beside a program, or configurations without a network.
        TilewrightError: a model, configuration or board cannot be used.
    """
    kinds = [_is_config(a), _is_config(b)]
    if kinds[0] != kinds[1]:
        raise UsageError("give two configurations, or two programs or models, not one of each")
    if kinds[0] and model is None:
        raise UsageError("two configurations need a network: model=...")
    if kinds[0] and config is not None:
        raise UsageError("config has no effect: a and b are the configurations")
    if not kinds[0] and model is not None:
        raise UsageError("model goes with two configurations; a and b are programs or models")

    def side(given: Any) -> Callable[[bool], Explanation]:
        if isinstance(given, Explanation):
            return lambda untuned: given
        of: Any = model if kinds[0] else given
        compiled = not kinds[0] and _is_program(of)
        own = {} if compiled else options
        chosen = given if kinds[0] else None if compiled else config
        fixed = None if compiled else shapes
        request = _Request(of, chosen, fixed, board, board_memory, memory, clock_mhz, trust, own)
        return lambda untuned: (replace(request, options=own | {"tuning": "off"}) if untuned else request).explain()

    return comparing.compare_alike(side(a), side(b))


def _is_program(model: Model) -> TypeGuard[Program | str | Path]:
    return isinstance(model, Program) or (
        isinstance(model, str | Path) and Path(model).is_file() and Program.is_program(model)
    )


def _is_config(given: Any) -> bool:
    if isinstance(given, NpuConfig):
        return True
    return isinstance(given, str | Path) and (str(given) in PRESETS or Path(given).suffix in (".json", ".toml"))
