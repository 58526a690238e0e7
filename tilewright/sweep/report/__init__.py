"""A sweep as one self-contained page: fronts, sensitivities, tables, and the inside of chosen points."""

from tilewright.sweep.report.data import SweepData, load
from tilewright.sweep.report.write import write_report

__all__ = ["SweepData", "load", "write_report"]
