"""The layer that puts rows into a cache."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.npu.layers.elementwise import ElementLayer


@dataclass
class RowsLayer(ElementLayer):
    """A copy of rows of a table, which its output has as columns: other layers would not find them in bands."""

    by_channel = False

    @property
    def fusible(self) -> bool:
        return False


@dataclass
class PutLayer(ElementLayer):
    """A copy to a view whose region begins at another row of the cache in every run.

    So it is a layer of its own: what it writes is read as weights, from memory.
    """

    by_channel = False

    @property
    def fusible(self) -> bool:
        return False
