"""Reports on the models that LiteRT has handed to the delegate: nodes taken, parts, and reasons for the rest."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

log = logging.getLogger("tilewright.litert")

KEPT = 64
_reports: list[Report] = []


@dataclass
class Report:
    """Nodes taken of one graph, and why the others were left.

    Attributes:
        nodes: operators of the graph.
        taken: those that run on our side, by name.
        parts: how many programs they became.
        reasons: why the others were left to LiteRT, by name.
        problem: why nothing could be looked at; empty if it could.
        macs, npu_macs: multiply-accumulates of what was taken, in all and on the NPU.
    """

    nodes: int = 0
    taken: list[str] = field(default_factory=list)
    parts: int = 0
    reasons: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    macs: int = 0
    npu_macs: int = 0

    def __str__(self) -> str:
        if self.problem:
            return f"left to LiteRT: {self.problem}"
        where = f" in {self.parts} part{'s' * (self.parts != 1)}" if self.parts else ""
        share = f", {self.npu_macs:,} of their {self.macs:,} MACs on the NPU" if self.macs else ""
        head = f"{len(self.taken)} of {self.nodes} nodes taken{where}{share}"
        return "\n".join([head, *(f"  {name} left to LiteRT: {reason}" for name, reason in self.reasons.items())])

    def keep(self) -> None:
        """Adds the report to `reports`, and writes it to the log."""
        _reports.append(self)
        del _reports[:-KEPT]
        log.log(logging.INFO if self.taken else logging.WARNING, "%s", self)


def reports() -> list[Report]:
    """Reports on the last graphs seen in this process, at most 64, the latest last."""
    return list(_reports)
