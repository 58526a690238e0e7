"""Writes `native/structs.h`, the C side of `structs`: python -m tilewright.simulator.generate [--check]"""

from __future__ import annotations

import sys
from pathlib import Path

from tilewright.isa.generate import c_structs, files
from tilewright.simulator.structs import DECLARED

COMMAND = "python -m tilewright.simulator.generate"


def header() -> str:
    """The text of `native/structs.h`."""
    return c_structs.header(DECLARED, COMMAND, "TILEWRIGHT_SIMULATOR_STRUCTS_H", "tilewright_isa.h")


OUTPUTS: files.Outputs = {Path("simulator/native/structs.h"): header}

if __name__ == "__main__":
    sys.exit(files.main(OUTPUTS, COMMAND, sys.argv[1:]))
