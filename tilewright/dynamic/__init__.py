"""Models whose shapes are only known when they run; see `DynamicModel` and docs/dynamic-models.md."""

from tilewright.dynamic.model import DynamicModel
from tilewright.dynamic.signature import Signature, signatures

__all__ = ["DynamicModel", "Signature", "signatures"]
