"""Packages that are functions too.

`tilewright.quantize` and `tilewright.sweep` are packages, and once one of them was imported that is what the name
stands for. So the package itself is what is called: `tilewright.quantize(...)` calls the function of that name in it.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any


class CallableModule(ModuleType):
    """A package that passes calls on to the function in it that has its name."""

    def _function(self) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Calls the function of the module's name."""
        return self._function()(*arguments, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._function())


def make_callable(name: str) -> None:
    """Makes a module that is being imported, called `name`, a `CallableModule`."""
    sys.modules[name].__class__ = CallableModule
