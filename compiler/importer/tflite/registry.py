"""Table of import handlers by TFLite operator, filled by the family files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.importer.tflite.builder import Builder
    from compiler.importer.tflite.schema import FileOp

Handler = Callable[["Builder", "FileOp"], None]
HANDLERS: dict[str, Handler] = {}


def handles(*ops: str) -> Callable[[Handler], Handler]:
    """Registers a function as the importer of `ops`."""

    def register(handler: Handler) -> Handler:
        for op in ops:
            HANDLERS[op] = handler
        return handler

    return register
