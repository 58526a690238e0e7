"""Faults put into the sources of the compiler's back end and of the native simulators, and whether the tests find them.

`python_faults.py` and `cpp_faults.py` draw and make them, `looks.py` has what looks for them, `run.py` lets it look.
The faults of the RTL are those of `verification/mutants`.
"""

from tests.common.paths import ROOT

#: What faults are put into; `structs.h` is generated, and says only where things lie.
PYTHON = sorted((ROOT / "compiler" / "npu").rglob("*.py"))
CPP = [path for path in sorted((ROOT / "simulator" / "native").iterdir()) if path.name != "structs.h"]
