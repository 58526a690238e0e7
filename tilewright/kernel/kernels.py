"""Kernel: a function on the machine, called with numpy arrays, alone or in networks."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tilewright.compiler.graph.ops.kernel import NodeFacts, QKernel
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.kernel.built import Arrays, Built
from tilewright.kernel.errors import KernelError, raising_line, user_line
from tilewright.kernel.network import KernelLayer, LayerFacts, Matcher
from tilewright.kernel.trace import Function, Trace, trace

T = TypeVar("T")
Config = NpuConfig | str | Path
NodeMatcher = Callable[[NodeFacts], Mapping[str, Any] | None]


class Kernel:
    """A kernel: a function of a `Chip`, tensors in DRAM and, by keyword, constants.

    Attributes:
        name: name of the function.
    """

    def __init__(self, function: Function) -> None:
        functools.update_wrapper(self, function)
        self.function, self.name = function, function.__name__
        kinds = inspect.Parameter
        parameters = [*inspect.signature(function).parameters.values()]
        positional = [p.name for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
        self.constants = {p.name: p for p in parameters if p.kind is kinds.KEYWORD_ONLY}
        self._inputs = positional[1:]
        self._reference: Callable[..., Any] | None = None
        self._match: Matcher | None = None
        self._ops: dict[str, NodeMatcher] = {}
        if not positional or any(p.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD) for p in parameters):
            raise KernelError(
                f"{self.name}: a kernel takes the chip, tensors, and constants behind *: def {self.name}(k, x, *, w)",
                user_line(),
            )
        reserved = {"config", "device", "memory"} & self.constants.keys()
        if reserved:
            raise KernelError(f"{self.name}: {min(reserved)} is what a call names the machine by", user_line())

    def __repr__(self) -> str:
        return f"kernel {self.name}{inspect.signature(self.function)}"

    def __call__(self, *inputs: Any, config: Config = "base", device: str = "functional", **constants: Any) -> Arrays:
        """Runs the kernel on int8 arrays; see `build` and `Built.run`."""
        return self.build(*inputs, config=config, **constants).run(*inputs, device=device)

    def build(
        self, *inputs: Any, config: Config = "base", memory: MemoryTiming = DEFAULT_MEMORY, **constants: Any
    ) -> Built:
        """Makes the program for some shapes and constants.

        Args:
            inputs: int8 arrays or their shapes, [N, C, H, W] or [rows, channels].
            config: preset, file or `NpuConfig`.
            memory: timing of the memory beside the machine.
            constants: the kernel's keyword arguments.

        Raises:
            KernelError: the kernel cannot be right; the message names its line.
        """
        found = self._trace(inputs, config, memory, constants)
        return Built(found.program, found.tiles, memory)

    def _trace(
        self, inputs: Sequence[Any], config: Config, memory: MemoryTiming, constants: Mapping[str, Any]
    ) -> Trace:
        if len(inputs) != len(self._inputs):
            raise KernelError(
                f"{self.name} takes {len(self._inputs)} tensors ({', '.join(self._inputs)}), not {len(inputs)}",
                user_line(),
            )
        self._require_constants(constants)
        shapes = {name: _shape(name, given) for name, given in zip(self._inputs, inputs, strict=True)}
        machine = config if isinstance(config, NpuConfig) else NpuConfig.load(config)
        return trace(self.function, self.name, machine, shapes, constants, memory)

    def _require_constants(self, constants: Mapping[str, Any]) -> None:
        """Raises `KernelError` for constants that are missing, and for others than the kernel has."""
        missing = [n for n, p in self.constants.items() if p.default is p.empty and n not in constants]
        unknown = [n for n in constants if n not in self.constants]
        if missing or unknown:
            what = f"needs {', '.join(missing)}" if missing else f"has no {', '.join(unknown)}"
            raise KernelError(
                f"{self.name} {what}: its constants are {', '.join(self.constants) or 'none'}", user_line()
            )

    def reference(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the function of numpy arrays that the kernel must equal; it takes the kernel's arguments but the chip.

        A reference that takes fewer constants is called without the others, such as sizes of tiles.
        """
        self._reference = function
        return function

    def replaces(self, match: Matcher) -> Matcher:
        """Sets the function that decides which layers of networks the kernel takes the place of.

        It is asked about layers that read as many tensors as the kernel takes.

        Args:
            match: takes `LayerFacts`; returns the kernel's constants for the layer, None to leave it as it is.
        """
        self._match = match
        return match

    def runs(self, *ops: str) -> Callable[[NodeMatcher], NodeMatcher]:
        """Sets the ops of ONNX models that the kernel runs, such as "com.me::Deform", by a function that is asked.

        The function takes `NodeFacts`; it returns the kernel's constants for the node, None to leave it.
        """

        def register(match: NodeMatcher) -> NodeMatcher:
            self._ops |= dict.fromkeys(ops, match)
            return match

        return register

    @property
    def takes_part(self) -> bool:
        """True if the kernel can take the place of layers of networks, or run nodes of them."""
        return self._match is not None or bool(self._ops)

    def layer_for(self, layer: Layer, config: NpuConfig) -> Layer | None:
        """Returns the layer that makes the same tensor by the kernel; None to leave the layer as it is.

        Raises:
            KernelError: the kernel has neither `replaces` nor `runs`, or other constants than `replaces` returns.
        """
        if not self.takes_part:
            raise KernelError(f"{self.name} takes no layers and no nodes: write @{self.name}.replaces or .runs")
        if self._match is None:
            return None
        facts = LayerFacts.of(layer)
        if facts is None or len(facts.shapes) != len(self._inputs):
            return None
        constants = self._match(facts)
        if constants is None:
            return None
        self._require_constants(constants)
        return KernelLayer.of(layer, self.name, self.function, constants)

    @property
    def runs_nodes(self) -> bool:
        """True if it runs nodes of ONNX models."""
        return bool(self._ops)

    def runs_op(self, op: str) -> bool:
        """Returns True if it may run nodes of an op of ONNX models, such as "com.me::Deform"."""
        return op in self._ops

    def constants_for(self, node: NodeFacts) -> Mapping[str, Any] | None:
        """Returns its constants for a node; None to leave the node to others, as one with another number of tensors.

        Raises:
            KernelError: the function of `runs` fails, or returns other constants than the kernel has.
        """
        if len(node.tensors) != len(self._inputs):
            return None
        try:
            constants = self._ops[node.op](node)
        except Exception as error:
            raise KernelError(
                f"{self.name} for {node.label}: {type(error).__name__}: {error}", raising_line(error)
            ) from error
        if constants is not None:
            self._require_constants(constants)
        return constants

    def result_shape(self, node: NodeFacts, constants: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Returns the shape of a node's result, by the reference; None without one."""
        if self._reference is None:
            return None
        found = self.expected([np.zeros(value.shape or (), np.int8) for value in node.tensors], constants)
        return tuple(np.shape(found))

    def layer_of(self, op: QKernel, inputs: Sequence[View], output: View) -> Layer:
        """Returns the layer in which it runs a node of a model."""
        return KernelLayer.of_node(op, self.function, inputs, output)

    def expected(self, inputs: Sequence[np.ndarray], constants: Mapping[str, Any]) -> Any:
        """Returns the result by the reference, of inputs and of those constants that it takes.

        Raises:
            KernelError: there is no reference.
        """
        if self._reference is None:
            raise KernelError(f"{self.name} has no reference: write one below @{self.name}.reference")
        taken = inspect.signature(self._reference).parameters
        known = {n: p.default for n, p in self.constants.items() if p.default is not p.empty} | dict(constants)
        return self._reference(*inputs, **{n: value for n, value in known.items() if n in taken})

    def check(
        self,
        *inputs: Any,
        config: Config = "base",
        devices: Sequence[str] = ("functional", "cycle"),
        runs: int = 3,
        seed: int = 0,
        **constants: Any,
    ) -> Built:
        """Compares the kernel with its reference on edges and on random values; returns what was built.

        Args:
            inputs: shapes or arrays of the inputs.
            devices: names of devices.
            runs: number of runs with random values, besides those with the lowest, the highest and zero values.
            seed: seed of the random values.

        Raises:
            KernelError: there is no reference, or a value differs; the message says where.
        """
        if self._reference is None:
            raise KernelError(f"{self.name} has no reference: write one below @{self.name}.reference")
        built = self.build(*inputs, config=config, **constants)
        shapes = [_shape(name, given) for name, given in zip(self._inputs, inputs, strict=True)]
        for title, arrays in _values(shapes, runs, seed):
            wanted = self.expected(arrays, constants)
            for device in devices:
                found = built.run(*arrays, device=device)
                self._compare(found, wanted, built.program, f"{title} on {device}")
        return built

    def _compare(self, found: Any, wanted: Any, program: Program, where: str) -> None:
        """Raises `KernelError` if a result differs from that of the reference."""
        pairs = zip(_tuple(found), _tuple(wanted), program.outputs, strict=True)
        for a, b, info in pairs:
            b = np.asarray(b)
            if a.shape != b.shape:
                raise KernelError(f"{self.name}: {info.name} has shape {a.shape}, that of the reference {b.shape}")
            wrong = np.argwhere(a != b)
            if len(wrong):
                at = tuple(int(i) for i in wrong[0])
                raise KernelError(
                    f"{self.name}: {len(wrong)} of {a.size} values of {info.name} differ, {where}; the first at "
                    f"{list(at)} is {a[at]}, not {b[at]}"
                )

    def tune(
        self, *inputs: Any, config: Config = "base", memory: MemoryTiming = DEFAULT_MEMORY, **constants: Any
    ) -> tuple[Built, dict[str, Any]]:
        """Finds the fastest of some choices by exact cycles.

        Args:
            inputs, config, memory: as for `build`.
            constants: a constant with several choices is a `Choices`; choices that do not fit are left out.

        Returns:
            The fastest program, and the choices made for it, by name.

        Raises:
            KernelError: no choice fits; the message is that of the last one.
        """
        open_ = {name: value for name, value in constants.items() if isinstance(value, Choices)}
        best: tuple[Built, dict[str, Any]] | None = None
        last: KernelError | None = None
        for values in itertools.product(*(choices.values for choices in open_.values())):
            chosen = dict(zip(open_, values, strict=True))
            try:
                built = self.build(*inputs, config=config, memory=memory, **constants | chosen)
            except KernelError as error:
                last = error
                continue
            if best is None or built.cycles < best[0].cycles:
                best = built, chosen
        if best is None:
            raise last or KernelError(f"{self.name}: there are no choices")
        return best


@dataclass(frozen=True)
class Choices:
    """Values of a constant of which `Kernel.tune` takes the fastest."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        object.__setattr__(self, "values", values)


def kernel(function: Function) -> Kernel:
    """Makes a function a kernel. It takes a `Chip`, tensors in DRAM, and behind `*` constants; it returns tensors.

    Examples:
        >>> @kernel
        ... def double(k, x):
        ...     y = k.tensor(x.shape)
        ...     tile = k.load(x.at())
        ...     k.add(tile, tile, into=y.at())
        ...     return y
    """
    return Kernel(function)


def chunks(total: int, size: int) -> Iterator[range]:
    """Yields the ranges of `size` that 0..total-1 is cut into; the last may be shorter. Raises `KernelError`."""
    if size < 1:
        raise KernelError(f"chunks must have a size of 1 or more, not {size}", user_line())
    for first in range(0, total, size):
        yield range(first, min(first + size, total))


def ahead(steps: Iterable[T]) -> Iterator[T]:
    """Makes each value of a generator one ahead: it is given out after the next one is made.

    Engines work in order. Where a step ends with VECTOR and is followed by a product of its result, the array would
    wait; made a step ahead, it works on the next one meanwhile.
    """
    for step, _ in itertools.pairwise(itertools.chain(steps, [None])):
        yield step  # type: ignore[misc]  # None is the last one, which no pair begins with


def _values(shapes: Sequence[tuple[int, ...]], runs: int, seed: int) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yields (title, int8 arrays) of inputs: edges first."""
    for value in (-128, 127, 0):
        yield f"with all values {value}", [np.full(shape, value, np.int8) for shape in shapes]
    random = np.random.default_rng(seed)
    for number in range(runs):
        arrays = [random.integers(-128, 128, shape, np.int8) for shape in shapes]
        yield f"with random values {number} of seed {seed}", arrays


def _shape(name: str, given: Any) -> tuple[int, ...]:
    """Returns the shape of an input given as an array or a shape. Raises `KernelError`."""
    if isinstance(given, np.ndarray):
        if given.dtype != np.int8:
            raise KernelError(f"{name} must be int8, not {given.dtype}", user_line())
        given = given.shape
    shape: tuple[int, ...] = tuple(int(size) for size in given)
    if len(shape) not in (2, 4) or min(shape) < 1:
        raise KernelError(
            f"{name} must be [N, C, H, W] or [rows, channels], none empty, not {list(shape)}", user_line()
        )
    return shape


def _tuple(values: Any) -> tuple[Any, ...]:
    """Returns one result or several as a tuple."""
    return values if isinstance(values, tuple) else (values,)
