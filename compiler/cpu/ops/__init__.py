"""Rules of operators: from a node to expressions and stages. One file per family; each registers its rules."""

from __future__ import annotations

from tilewright.compiler.cpu.ops.rules import RULES
from tilewright.compiler.discover import import_modules

import_modules(__path__, __name__)

__all__ = ["RULES"]
