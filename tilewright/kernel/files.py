"""Files of kernels that commands take."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from tilewright.errors import UsageError
from tilewright.kernel.kernels import Kernel


def load_kernels(path: str | Path) -> tuple[Kernel, ...]:
    """Runs a Python file and returns its kernels that take the place of layers or run nodes, in their order.

    Raises:
        UsageError: the file cannot be run, or has no such kernel.
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"no such file of kernels: {file}")
    # Not by the import system, which would keep bytecode beside the file and find it again for an edited one of equal
    # size and time.
    module = ModuleType(f"kernels_of_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
    except Exception as error:
        raise UsageError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    found = [value for value in vars(module).values() if isinstance(value, Kernel) and value.takes_part]
    if not found:
        raise UsageError(
            f"{file} has no kernel with @NAME.replaces or @NAME.runs(OP), which say the layers or nodes that it takes"
        )
    return tuple(found)
