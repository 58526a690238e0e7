"""Faults by what the prover says of them, and inputs that show them on the functional simulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tilewright as tw
from tests.reference.random_quantized import random_quantized_graph
from tilewright.api.options import ProgramOptions
from tilewright.api.source import ModelSource
from tilewright.isa.config import PRESETS
from tilewright.isa.program import Program
from tilewright.prove.checker.compare import prove
from tilewright.prove.checker.graph import QuantisedGraph
from tilewright.prove.compiled import quantised_graph
from tilewright.runtime.devices import Runner
from tilewright.simulator.functional import FunctionalDevice
from verification.program_faults.bounded import BoundedNames
from verification.program_faults.climb import climbing, extremes, levels

Arrays = dict[str, np.ndarray]


class _UsedMemory(FunctionalDevice):
    """The functional simulator with random bytes in its memory: what nobody stored shows so."""

    def allocate(self, nbytes: int) -> int:
        address = super().allocate(nbytes)
        self.write(address, np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8))
        return address


@dataclass
class Subject:
    """A proved program, inputs, and its outputs for these: those of the quantised graph.

    Attributes:
        name: network and configuration.
        inputs: by how they are made.
        machine: the functional simulator, behind `device`.
        network: of a random graph, whose inputs that climb, and levels, are tried where no other shows a fault.
    """

    name: str
    graph: QuantisedGraph
    program: Program
    inputs: dict[str, Arrays]
    wanted: list[Arrays]
    machine: FunctionalDevice
    device: Runner
    network: onnx.ModelProto | None = None

    @cached_property
    def further(self) -> Subject | None:
        """The same with inputs that climb, and levels."""
        if self.network is None:
            return None
        inputs = {**dict(climbing(self.network, self.program)), **dict(levels(self.program))}
        inputs |= dict(extremes(self.program))
        found = replace(self, inputs=inputs, wanted=[], network=None)
        found.wanted.extend(found.run(self.program, number) for number in range(len(found.inputs)))
        return found

    def run(self, program: Program, number: int) -> Arrays:
        """Outputs for the input of this number, in scratchpads of random bytes: what nobody wrote shows so."""
        random = np.random.default_rng(number)
        for array in self.machine.scratchpads.arrays().values():
            array.view(np.uint8)[...] = random.integers(0, 256, array.view(np.uint8).shape, np.uint8)
        return dict(self.device.run(program, list(self.inputs.values())[number]))


@dataclass(frozen=True)
class Judgement:
    """The fate of a fault.

    Attributes:
        program, kind, what: where it is, one of `KINDS`, and in words.
        found: "shown": rejected, and an input shows it; "order": rejected as no semaphore orders two accesses, or one
            is taken or given too often; "unsaid": rejected as it reaches beyond a memory, reads what nobody wrote, or
            has no rule, without an input that shows it; "open": rejected as names differ, without such an input;
            "same": proved, if need be with the ranges of
            the program's own sums, so that no input can show it, and none did; "missed": proved, and an input shows it.
        reason: of the prover, "" for a proof.
        shown: the input, and what it changes.
    """

    program: str
    kind: str
    what: str
    found: str
    reason: str = ""
    shown: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def subject(name: str, model: Path | bytes, config: str, inputs: int) -> Subject | str:
    """A proved program with so many random inputs and some extreme ones, or why its program is not proved."""
    graph = quantised_graph(ModelSource(model), PRESETS[config], ProgramOptions().compiler)
    program = tw.compile_program(model, config, tuning="off", cache=False)
    verdict = prove(graph, program, seed=1)
    if not verdict.proved:
        return verdict.reason
    given = dict(_inputs(program, inputs))
    machine = _UsedMemory(program.config)
    found = Subject(
        f"{name}@{config}", graph, program, given, [], machine, Runner("functional", program.config, lambda _: machine)
    )
    found.wanted.extend(found.run(program, number) for number in range(len(given)))
    return found


def random_subject(seed: int, inputs: int) -> Subject | str:
    """The program of a random quantised graph on a preset, as `subject` has it."""
    presets = sorted(PRESETS)
    model = random_quantized_graph(seed).model
    found = subject(f"graph{seed}", model, presets[seed % len(presets)], inputs)
    return found if isinstance(found, str) else replace(found, network=model)


def _inputs(program: Program, count: int) -> Iterator[tuple[str, Arrays]]:
    """Inputs by how they are made: random ones, the ends of these, and steps between the ends."""
    for seed in range(count):
        yield f"random input {seed}", tw.random_inputs(program, seed)
    some = tw.random_inputs(program, 0)
    for name, choose in (
        ("greatest", lambda v: np.full_like(v, v.max())),
        ("least", lambda v: np.full_like(v, v.min())),
        ("least and greatest in turns", lambda v: np.where(np.indices(v.shape).sum(axis=0) % 2, v.min(), v.max())),
    ):
        yield f"input of the {name} values", {k: choose(v).astype(v.dtype) for k, v in some.items()}


def shown(case: Subject, program: Program) -> str:
    """The first input for which a program has other outputs, or stops; "" if there is none."""
    for number, (name, right) in enumerate(zip(case.inputs, case.wanted, strict=True)):
        try:
            found = case.run(program, number)
        except tw.TilewrightError as error:
            return f"{name}: {str(error)[:200]}"
        for output, value in right.items():
            differs = (found[output] != value) & ~((found[output] != found[output]) & (value != value))
            if differs.any():
                place = tuple(int(i) for i in np.argwhere(differs)[0])
                at = ", ".join(map(str, place))
                return f"{name}: {output}[{at}] = {found[output][place]:g}, not {value[place]:g}"
    return ""


def judge(case: Subject, kind: str, what: str, program: Program, seed: int) -> Judgement:
    """The fate of a fault.

    Args:
        seed: of the proof.
    """
    verdict, seen = prove(case.graph, program, seed), shown(case, program)
    if verdict.difference is not None and not seen:  # by the ranges of its own sums it may be equivalent
        verdict = prove(case.graph, program, seed, kind=BoundedNames)
    if not (verdict.proved or seen or "semaphore" in verdict.reason) and case.further is not None:
        seen = shown(case.further, program)
    if verdict.proved:
        found = "missed" if seen else "same"
    elif seen:
        found = "shown"
    elif "semaphore" in verdict.reason:
        found = "order"
    else:
        found = "open" if verdict.difference is not None else "unsaid"
    return Judgement(case.name, kind, what, found, verdict.reason, seen)
