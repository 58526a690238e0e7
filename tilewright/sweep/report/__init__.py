"""A sweep as one self-contained page: fronts, sensitivities, tables, and the inside of chosen points."""

from .data import SweepData, load
from .write import write_report

__all__ = ["SweepData", "load", "write_report"]
