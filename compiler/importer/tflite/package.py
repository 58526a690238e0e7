"""The package `tflite` with its tables loaded one by one.

It has a module per table of the schema, and imports all 187 of them at once, of which a network needs some fifteen.
Here it is a package that loads a module when its table is asked for, and the rest when any other name is.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

_NAME = "tflite"


class _Tables(types.ModuleType):
    """The package for everybody in this process: it answers what the package itself would."""

    def __setattr__(self, name: str, value: object) -> None:
        # Python sets a module that was imported on its package, where this one has the table of that name.
        table = getattr(value, name, value) if isinstance(value, types.ModuleType) else value
        super().__setattr__(name, table)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and importlib.util.find_spec(f"{_NAME}.{name}") is not None:
            importlib.import_module(f"{_NAME}.{name}")
        else:
            self.__class__ = types.ModuleType  # type: ignore[assignment] # complete now
            self.__loader__.exec_module(self)  # type: ignore[union-attr]
        return getattr(self, name)


def _package() -> Any:
    if _NAME not in sys.modules:
        spec = importlib.util.find_spec(_NAME)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {_NAME!r}", name=_NAME)
        made = importlib.util.module_from_spec(spec)
        made.__class__ = _Tables
        sys.modules[_NAME] = made
    return sys.modules[_NAME]


#: The package, whole if it was imported before.
tflite = _package()
