"""Runs the notebooks of this folder: `make notebooks`, or `python examples/notebooks/run.py kernel_by_hand`.

The sources are scripts with cells, as jupytext and editors read them. Executed notebooks, with their pictures, are
written to build/notebooks.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jupytext
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parents[1] / "build" / "notebooks"


def main(names: list[str]) -> None:
    """Executes the notebooks of these names, all of them without a name. An error in a cell is raised."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for source in sorted(HERE.glob("*.py")):
        if source.name == Path(__file__).name or (names and source.stem not in names):
            continue
        notebook = jupytext.read(source)
        start = time.perf_counter()
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(OUTPUT)}}).execute()
        jupytext.write(notebook, OUTPUT / f"{source.stem}.ipynb")
        pictures = sum("image/png" in out.get("data", {}) for cell in notebook.cells for out in cell.get("outputs", ()))
        print(f"{source.stem}: {pictures} pictures, {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
