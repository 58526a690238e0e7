"""Waiting for something that must happen, however busy the machine is."""

import time
from collections.abc import Callable

#: Seconds after which what a test waits for is taken for hung. Far more than any machine needs.
HANG = 600.0


def wait_until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Raises `AssertionError` if it does not hold after `HANG` seconds."""
    end = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < end, f"waited {HANG:g} s for {what}"
        time.sleep(0.02)
