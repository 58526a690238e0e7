"""An input that shows a difference: random inputs on the functional simulator, until outputs differ.

The yardstick is the same model compiled for the CPU alone, whose kernels compute the quantised graph another way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

import tilewright as tw
from tilewright.isa.device import DeviceError
from tilewright.isa.program import Program


@dataclass(frozen=True)
class Witness:
    """An input for which a program is wrong.

    Attributes:
        seed: `tilewright.random_inputs(program, seed)` makes it.
        output, place: first element that differs.
        wanted, found: its value by the graph and by the program.
        error: error of the machine instead of values, "" if it ran.
    """

    seed: int
    output: str = ""
    place: tuple[int, ...] = ()
    wanted: float = 0.0
    found: float = 0.0
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"random input {self.seed} ends with: {self.error}"
        at = ", ".join(map(str, self.place))
        return f"random input {self.seed} gives {self.output}[{at}] = {self.found:g} instead of {self.wanted:g}"


def search(model: str | bytes, checked: Program, inputs: int) -> Witness | None:
    """The first of so many random inputs for which a program differs from the model's graph on the CPU, None if there
    is none.

    Args:
        checked: the program; it runs with the CPU kernels of one that is compiled now, so that it need not be trusted.
    """
    shapes = {t.name: list(t.shape) for t in checked.inputs}
    yardstick = tw.compile_program(model, checked.config, shapes, cpu_only=True)
    own = tw.compile_program(model, checked.config, shapes)
    program = checked
    if own.steps == checked.steps and own.buffers == checked.buffers:
        program = replace(own, instructions=checked.instructions, constants=checked.constants)
    device, host = tw.Device("functional", program.config), tw.Device("functional", yardstick.config)
    for seed in range(inputs):
        given = tw.random_inputs(program, seed)
        try:
            found = device.run(program, given)
        except DeviceError as error:
            return Witness(seed, error=str(error))
        wanted = host.run(yardstick, given)
        for name, value in wanted.items():
            differs = np.asarray(found[name]) != np.asarray(value)
            differs &= ~(np.asarray(value) != np.asarray(value))
            if differs.any():
                place = tuple(int(i) for i in np.argwhere(differs)[0])
                return Witness(seed, name, place, float(value[place]), float(found[name][place]))
    return None
