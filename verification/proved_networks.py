"""Proofs of whole networks: a table of `tilewright prove` over networks, machines and efforts.

    python -m verification.proved_networks                          all of them, and the table of the page
    python -m verification.proved_networks digits@tiny bert@base --effort 1

Networks are the trained digits, MLPerf Tiny's trained ones and vit_tiny in $TILEWRIGHT_MODELS (else
`../shared/models`), and those of the zoo at their own sizes with seeded weights; absent ones are left out. Rows are
kept in build/proved.json with a digest of prover, compiler and ISA: what is there of the same digest is not proved
again, so the command goes on where it was stopped. Rows of another digest stay until their turn, marked in the table.
CPU seconds and memory are those of the proof, importing included, without the compilation.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx

from tests.common.paths import ROOT
from tests.models.usage import use_of
from tilewright import zoo
from tilewright.common.store import sources_digest, write_atomically
from verification.cosim_networks import model_file
from verification.measured import today

PAGE, FOUND = ROOT / "docs" / "verification" / "prove.md", ROOT / "build" / "proved.json"
START, END = "<!-- proved: python -m verification.proved_networks -->", "<!-- end of proved -->"
_LLAMA = ("--state", "auto", "--entry", "prefill:input_ids=1,32", "--entry", "decode:input_ids=1,1")
#: Networks of the zoo with the parameters of their quantised form, and what the commands get beside the model.
ZOO: dict[str, tuple[str, dict[str, object], Sequence[str]]] = {
    "bert": ("bert", {}, ()),
    "micro_llama": ("micro_llama", {}, _LLAMA),
    "micro_llama_whole": ("micro_llama", {"whole": True}, _LLAMA),
    "mobilenet_v1": ("mobilenet_v1", {}, ()),
    "mobilenet_v2": ("mobilenet_v2", {}, ()),
    "resnet18": ("resnet18", {}, ()),
    "efficientnet": ("efficientnet", {}, ()),
    "deit": ("deit", {}, ()),
    "resnet50": ("resnet50", {}, ()),
}
MLPERF_TINY = ("ad_autoencoder_int8", "kws_dscnn_int8", "resnet8_int8", "vww_mobilenet_int8")
NETWORKS = ("digits", *MLPERF_TINY, "vit_tiny_qdq", *ZOO)
CONFIGS, EFFORTS = ("tiny", "small", "base", "wide"), (1, 2)


@dataclass(frozen=True)
class Row:
    """The proof of one network on one machine.

    Attributes:
        effort: of the compilation.
        proved: True if all output elements are proved.
        elements, accesses: number of output elements, and of accesses whose order is proved.
        said: the line of the command.
        cpu_seconds, megabytes: of the proof; memory is its peak.
        compiled: CPU seconds of the compilation.
        sources: digest of prover, compiler and ISA.
    """

    network: str
    config: str
    effort: int
    proved: bool
    elements: int
    accesses: int
    said: str
    cpu_seconds: float
    megabytes: float
    compiled: float
    sources: str

    @property
    def case(self) -> tuple[str, str, int]:
        return self.network, self.config, self.effort

    def cell(self, version: str) -> str:
        """CPU seconds and MiB, marked if they are not of this version."""
        found = f"{self.cpu_seconds:.0f} s, {self.megabytes:.0f}" if self.proved else "**no**"
        return found if self.sources == version else f"{found} (*)"


def version() -> str:
    """The digest of prover, compiler and ISA."""
    return sources_digest("additions/prove/**/*", "isa/**/*", "compiler/**/*")


def network_file(network: str, folder: Path) -> Path | None:
    """Returns the file of a network, None if it is absent. Networks of the zoo are built in `folder`."""
    if network in ZOO:
        path, (name, parameters, _) = folder / f"{network}.onnx", ZOO[network]
        if not path.exists():
            onnx.save(zoo.build_quantized(name, calibration=2, network=parameters), path)
        return path
    path = model_file(network)
    if network in MLPERF_TINY:
        path = path.parent / "mlperf_tiny" / f"{network}.tflite"
    return path if path.is_file() else None


def prove(network: str, config: str, model: Path, effort: int = 1) -> Row:
    """Compiles a network and runs `tilewright prove`. Raises RuntimeError with what these say where one fails."""
    with tempfile.TemporaryDirectory() as folder:
        program, verdict = Path(folder, "program.twp"), Path(folder, "verdict.json")
        more = [*(ZOO[network][2] if network in ZOO else ()), "--effort", str(effort)]
        command = [sys.executable, "-m", "tilewright"]
        compiled = use_of([*command, "compile", str(model), "-o", str(program), "--config", config, *more])
        if not program.exists():
            raise RuntimeError(f"{network} on {config}: {compiled.said.strip() or f'exit code {compiled.code}'}")
        proof = ["prove", str(model), "--program", str(program), *more, "--inputs", "0", "--json", str(verdict)]
        used = use_of([*command, *proof])
        if not verdict.exists():
            raise RuntimeError(f"{network} on {config}: {used.said.strip() or f'exit code {used.code}'}")
        found = json.loads(verdict.read_text(encoding="utf-8"))
    return Row(
        network, config, effort, found["proved"], found["elements"], found["accesses"], found["reason"] or "proved",
        round(used.cpu_seconds, 1), round(used.peak / 2**20), round(compiled.cpu_seconds, 1), version(),
    )  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """The table of rows, and what is said of those that are not proved."""
    present, cells = version(), {row.case: row for row in rows}
    proved = [row.sources == present for row in rows if row.proved]
    before = f", {len(proved) - sum(proved)} (*) at earlier ones" if not all(proved) else ""
    lines = [
        f"Of {today()}: {len(proved)} of {len(NETWORKS) * len(CONFIGS) * len(EFFORTS)} programs are proved: "
        f"{sum(proved)} at version {present[:12]} of prover, compiler and ISA{before}.",
        "",
        f"| network | effort | elements of outputs | {' | '.join(f'`{config}`' for config in CONFIGS)} |",
        f"|---|---|---|{'---|' * len(CONFIGS)}",
    ]
    for network in NETWORKS:
        for effort in EFFORTS:
            found = [cells.get((network, config, effort)) for config in CONFIGS]
            known = [row for row in found if row is not None]
            if known:
                parts = ["" if row is None else row.cell(present) for row in found]
                lines.append(f"| {network} | {effort} | {known[0].elements:,} | {' | '.join(parts)} |")
    failed = [f"* {row.network} on `{row.config}`, effort {row.effort}: {row.said}" for row in rows if not row.proved]
    return "\n".join([*lines, *([""] if failed else []), *failed])


def write(page: Path, rows: Sequence[Row]) -> None:
    """Puts the table of rows between the marks of a page."""
    head, rest = page.read_text(encoding="utf-8").split(START)
    write_atomically(page, f"{head}{START}\n{table(rows)}\n{END}{rest.split(END)[1]}")


def known_rows(path: Path) -> list[Row]:
    """The rows of a file, of any version."""
    return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the number of programs that are not proved, or 2 for none at all."""
    parser = argparse.ArgumentParser(prog="python -m verification.proved_networks", description=__doc__.splitlines()[0])
    known = [f"{network}@{config}" for network in NETWORKS for config in CONFIGS]
    parser.add_argument("cases", nargs="*", metavar="NETWORK@CONFIG", help="by default all")
    parser.add_argument("--effort", type=int, choices=EFFORTS, help="of the compilation (default: one after the other)")
    parser.add_argument(
        "--json", type=Path, default=FOUND, help="rows, those of earlier runs too (default %(default)s)"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table between this page's marks")
    options = parser.parse_args(arguments)
    for case in options.cases:
        if case not in known:
            parser.error(f"{case!r} is none of {', '.join(known)}")
    chosen = [tuple(case.split("@")) for case in options.cases or known]
    efforts = EFFORTS if options.effort is None else (options.effort,)
    rows = {row.case: row for row in known_rows(options.json)}
    print(f"{'network':22}{'config':8}{'effort':8}{'elements':>10}{'accesses':>12}{'CPU s':>8}{'MB':>7}  verdict")
    found, failed, present = [], 0, version()
    with tempfile.TemporaryDirectory() as folder:
        for network, config, effort in ((*case, effort) for effort in efforts for case in chosen):
            model = network_file(network, Path(folder))
            if model is None:
                print(f"{network:22}{config:8}left out: its file is missing")
                continue
            try:
                row = rows.get((network, config, effort))
                if row is None or row.sources != present:
                    row = prove(network, config, model, effort)
            except RuntimeError as error:
                failed += 1
                print(error, flush=True)
                continue
            rows[row.case] = row
            found.append(row)
            options.json.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(options.json, json.dumps([asdict(each) for each in rows.values()], indent=2) + "\n")
            print(f"{network:22}{config:8}{effort:<8}{row.elements:10,}{row.accesses:12,}{row.cpu_seconds:8.1f}"
                  f"{row.megabytes:7.0f}  {row.said[:60]}", flush=True)  # fmt: skip
    if target := options.write or (PAGE if not options.cases and found else None):
        write(target, list(rows.values()))
    return failed + sum(not row.proved for row in found) if found or failed else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
