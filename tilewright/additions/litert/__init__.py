"""Tilewright inside LiteRT: an external delegate that takes what the NPU runs, and leaves the rest to LiteRT.

`library.py` builds the shared library that LiteRT loads (`native/`) and connects it with `bridge.py`, which LiteRT's
calls reach. `plan.py` decides which nodes to take, `part.py` compiles and runs a part of the graph, `report.py` says
what became of every node.
"""

from tilewright.litert.library import litert_delegate
from tilewright.litert.report import Report, reports

__all__ = ["Report", "litert_delegate", "reports"]
