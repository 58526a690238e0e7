"""`python object_cache.py COMPILER ARGUMENT...`: runs a compiler, and keeps objects of Verilator's own sources.

Verilator's make rules put it in front of the compiler (`OBJCACHE`). Every model is linked with the same run-time
library of Verilator, which takes longer to compile than small designs do. Its objects are kept in $OBJECT_CACHE.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def main(command: list[str]) -> int:
    """Exit status of the compiler, 0 if the object was there."""
    source = Path(command[-1])
    library = Path(os.environ["VERILATOR_ROOT"]) / "include"
    if library not in source.parents or "-o" not in command:
        return subprocess.run(command, check=False).returncode
    place = command.index("-o") + 1
    version = subprocess.run([command[0], "--version"], capture_output=True, check=True).stdout
    arguments = "\0".join(command[:place] + command[place + 1 :]).encode()
    key = hashlib.sha256(version + arguments + b"".join(p.read_bytes() for p in sorted(library.glob("verilated*"))))
    folder = Path(os.environ["OBJECT_CACHE"])
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{source.stem}-{key.hexdigest()[:24]}.o"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "made.o"
            status = subprocess.run([*command[:place], str(made), *command[place + 1 :]], check=False).returncode
            if status:
                return status
            made.replace(kept)
    shutil.copy(kept, command[place])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
