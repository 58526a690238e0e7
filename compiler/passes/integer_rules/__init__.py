"""Integer rules, one per float op: the integer nodes that replace it between DequantizeLinear and QuantizeLinear.

One file per family of ops; each registers its rules with `integer_rule`, and `fuse_quantization` applies them.
"""

from __future__ import annotations

from tilewright.compiler.discover import import_modules
from tilewright.compiler.passes.integer_rules.rule import RULES, integer_rule
from tilewright.compiler.passes.integer_rules.site import Site

import_modules(__path__, __name__)

__all__ = ["RULES", "Site", "integer_rule"]
