"""The C side of the structures is up to date, and a C compiler lays it out as `ctypes` does."""

import ctypes
import subprocess
from pathlib import Path

from tests.common import needs
from tests.common.paths import ROOT
from tilewright.isa.generate import files
from tilewright.simulator import generate
from tilewright.simulator.structs import DECLARED


def test_header_is_not_stale() -> None:
    assert files.stale(generate.OUTPUTS) == [], f"run `{generate.COMMAND}`"


def test_layout_is_that_of_c(tmp_path: Path) -> None:
    compiler = needs.program(needs.C_COMPILER, "gcc")
    places = [(s.c_name, f[0], getattr(s, f[0]).offset) for s in DECLARED for f in s._fields_]
    sizes = [(s.c_name, ctypes.sizeof(s)) for s in DECLARED]
    assert len(places) > 80
    checks = [f"offsetof({s}, {name}) == {offset}" for s, name, offset in places]
    checks += [f"sizeof({s}) == {size}" for s, size in sizes]
    source = tmp_path / "layout.c"
    source.write_text(
        '#include <stddef.h>\n#include "structs.h"\n' + "".join(f'_Static_assert({c}, "{c}");\n' for c in checks)
    )
    folders = [f"-I{ROOT / folder}" for folder in ("simulator/native", "isa/include")]
    command = [compiler, "-std=c11", "-Wall", "-Werror", "-fsyntax-only", *folders, str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
