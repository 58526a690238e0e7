"""Runs that another thread can interrupt."""

from __future__ import annotations

import ctypes

from tilewright.isa.device import DeviceError, InProcess
from tilewright.isa.error_codes import ErrorCode


class Interruptible(InProcess):
    """A base of simulators whose native code polls a flag to stop.

    Attributes:
        stop: the flag; a run begins by clearing it.
    """

    def __init__(self) -> None:
        self.stop = ctypes.c_uint8()

    def interrupt(self) -> None:
        """Ends the run under way with TIMEOUT; called from another thread. The next run is not affected: so where a
        run is about to begin, call it again."""
        self.stop.value = 1

    def interrupted(self, error: DeviceError) -> DeviceError:
        """The error of a run, with the true reason where that is `interrupt`."""
        if not self.stop.value or error.code != ErrorCode.TIMEOUT:
            return error
        return DeviceError("TIMEOUT: the run was interrupted", error.code, error.engine, error.pc)
