"""Writes `native/structs.h`, the C side of `structs`: python -m tilewright.compiler.npu.emit.generate [--check]"""

from __future__ import annotations

import sys
from pathlib import Path

from tilewright.compiler.npu.emit.structs import Assembler, Assembly
from tilewright.compiler.npu.emit.tile_program import Operation
from tilewright.isa.generate import c_structs, files

COMMAND = "python -m tilewright.compiler.npu.emit.generate"


def header() -> str:
    """Returns the text of `native/structs.h`."""
    guard, include = "TILEWRIGHT_COMPILER_STRUCTS_H", "tilewright_isa.h"
    return c_structs.header((Assembler, Assembly), COMMAND, guard, include, (Operation,))


OUTPUTS: files.Outputs = {Path("compiler/npu/emit/native/structs.h"): header}

if __name__ == "__main__":
    sys.exit(files.main(OUTPUTS, COMMAND, sys.argv[1:]))
