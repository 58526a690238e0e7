"""Files of kernels that commands take."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from tilewright.errors import UsageError
from tilewright.kernel.kernels import Kernel


def load_kernels(path: str | Path) -> tuple[Kernel, ...]:
    """Runs a Python file and returns its kernels that take the place of layers, in their order.

    Raises:
        UsageError: the file cannot be run, or has no such kernel.
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"no such file of kernels: {file}")
    spec = importlib.util.spec_from_file_location(f"kernels_of_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} must be a Python file, NAME.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    found = [value for value in vars(module).values() if isinstance(value, Kernel) and value.takes_layers]
    if not found:
        raise UsageError(f"{file} has no kernel with @NAME.replaces, which says the place of which layers it takes")
    return tuple(found)
