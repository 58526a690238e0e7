"""`python -m tilewright.remote.generate [--check]`: makes remote_pb2.py of remote.proto (needs grpcio-tools)."""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from tilewright.common.installation import import_root

_HERE = Path(__file__).resolve().parent
_PROTO = "tilewright/remote/remote.proto"
OUTPUTS = ("remote_pb2.py", "remote_pb2.pyi")


def generate() -> dict[str, str]:
    """The generated files by name."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        include = str(files("grpc_tools") / "_proto")
        arguments = [
            "protoc",
            f"-I{import_root()}",
            f"-I{include}",
            f"--python_out={folder}",
            f"--pyi_out={folder}",
            _PROTO,
        ]
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc failed")
        made = Path(folder) / "tilewright" / "remote"
        return {name: (made / name).read_text(encoding="utf-8") for name in OUTPUTS}


def main() -> None:
    made = generate()
    stale = [n for n, text in made.items() if not (_HERE / n).is_file() or (_HERE / n).read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        if stale:
            raise SystemExit(f"not up to date: {', '.join(stale)}; run python -m tilewright.remote.generate")
        return
    for name in stale:
        (_HERE / name).write_text(made[name], encoding="utf-8")
    print(f"wrote {', '.join(stale) or 'nothing'}")


if __name__ == "__main__":
    main()
