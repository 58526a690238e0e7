"""Imports all modules of a folder whose files register themselves, so that a new file is all a new entry needs."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable


def import_modules(path: Iterable[str], package: str) -> None:
    """Imports every module of `package`, in the order of their names.

    Args:
        path: the package's `__path__`.
        package: its full name.
    """
    for module in sorted(pkgutil.iter_modules(path), key=lambda m: m.name):
        importlib.import_module(f"{package}.{module.name}")
