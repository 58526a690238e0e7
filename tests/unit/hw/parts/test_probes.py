"""Probes are declared while a component is elaborated, and each is described in its docstring."""

import re
from typing import Any

import pytest

from tilewright.hw.issue.fetch import Fetch
from tilewright.hw.issue.front_end import FrontEnd
from tilewright.hw.issue.semaphores import Semaphores
from tilewright.hw.memory.axi_read import AxiRead
from tilewright.hw.memory.axi_write import AxiWrite
from tilewright.hw.parts.probes import probes
from tilewright.hw.parts.queue import HeadQueue, Queue
from tilewright.hw.transfer.load import Load
from tilewright.hw.transfer.load_data import LoadData
from tilewright.hw.transfer.store import Store
from tilewright.hw.vector.vector import Vector
from tilewright.isa.config import preset
from tilewright.isa.instructions import Engine

CONFIG = preset("nano")
COMPONENTS = [
    Queue(8, 3),
    HeadQueue(8, 3),
    FrontEnd(CONFIG, Engine.GEMM),
    AxiWrite(CONFIG, 4),
    *(made(CONFIG) for made in (Semaphores, Fetch, AxiRead, LoadData, Load, Store)),
    Load(CONFIG).walker,
    Vector(CONFIG).elaborate(None).submodules.steps,
]


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda c: type(c).__name__)
def test_each_is_described(component: Any) -> None:
    component.elaborate(None)
    text = type(component).__doc__.split("    Probes:\n")[1]
    described = {
        name for names in re.findall(r"(?:^|  )([a-z_]+(?:, [a-z_]+)*): ", text, re.M) for name in names.split(", ")
    }
    assert described == set(vars(probes(component)))


def test_there_are_none_before_the_component_is_elaborated() -> None:
    with pytest.raises(ValueError, match=r"^Queue shows no probes: it declares none, or is not elaborated yet$"):
        probes(Queue(8, 3))
