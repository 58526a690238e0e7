"""The registry of import handlers by (domain, op), filled by the files of the op families."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.compiler.importer.onnx.builder import Handler

HANDLERS: dict[tuple[str, str], Handler] = {}


def handles(*ops: str, domain: str = "") -> Callable[[Handler], Handler]:
    """Registers a function as the importer of `ops` of `domain`."""

    def register(handler: Handler) -> Handler:
        for op in ops:
            HANDLERS[domain, op] = handler
        return handler

    return register
