"""Devices of one's own: `register` adds a `Backend`, then `--device` and `tw.Device` know it by name."""

from tilewright.runtime.backend import Backend
from tilewright.runtime.backends import BACKENDS, register

__all__ = ["BACKENDS", "Backend", "register"]
