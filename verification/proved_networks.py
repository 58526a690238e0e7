"""Proofs of whole networks: a table of `tilewright prove` over networks and machines.

    python -m verification.proved_networks                          all of them
    python -m verification.proved_networks digits@tiny bert@base --json found.json

Networks are the trained digits, those of the zoo at their own sizes with seeded weights, and MLPerf Tiny's in
$TILEWRIGHT_MODELS (else `../shared/models`); absent ones are left out. CPU seconds and memory are those of the command,
importing and compiling included.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx

from tests.models.usage import use_of
from tilewright import zoo
from verification.cosim_networks import model_file

ZOO = ("resnet8", "ds_cnn", "vww", "autoencoder", "mobilenet_v1", "mobilenet_v2", "resnet18", "bert")
MLPERF_TINY = ("resnet8_int8", "kws_dscnn_int8", "vww_mobilenet_int8", "ad_autoencoder_int8")
CONFIGS = ("tiny", "small", "base", "wide")
CASES = [(network, config) for network in ("digits", *ZOO, *MLPERF_TINY) for config in CONFIGS]


@dataclass
class Row:
    """The proof of one network on one machine.

    Attributes:
        proved: True if all output elements are proved.
        elements, accesses: number of output elements, and of accesses whose order is proved.
        said: the line of the command.
        cpu_seconds, megabytes: of the whole command; memory is its peak.
    """

    network: str
    config: str
    proved: bool
    elements: int
    accesses: int
    said: str
    cpu_seconds: float
    megabytes: float


def network_file(network: str, folder: Path) -> Path | None:
    """Returns the file of a network, None if it is absent. Networks of the zoo are built in `folder`."""
    if network in ZOO:
        path = folder / f"{network}.onnx"
        if not path.exists():
            onnx.save(zoo.build_quantized(network, calibration=2), path)
        return path
    path = model_file(network)
    if network in MLPERF_TINY:
        path = path.parent / "mlperf_tiny" / f"{network}.tflite"
    return path if path.is_file() else None


def prove(network: str, config: str, model: Path) -> Row:
    """Runs `tilewright prove`. Raises RuntimeError with what it says where it gives no verdict."""
    with tempfile.TemporaryDirectory() as folder:
        verdict = Path(folder, "verdict.json")
        command = [sys.executable, "-m", "tilewright", "prove", str(model), "--config", config, "--inputs", "0"]
        used = use_of([*command, "--json", str(verdict)])
        if not verdict.exists():
            raise RuntimeError(f"{network} on {config}: {used.said.strip() or f'exit code {used.code}'}")
        found = json.loads(verdict.read_text(encoding="utf-8"))
    return Row(
        network=network,
        config=config,
        proved=found["proved"],
        elements=found["elements"],
        accesses=found["accesses"],
        said=found["reason"] or "proved",
        cpu_seconds=round(used.cpu_seconds, 1),
        megabytes=round(used.peak / 2**20),
    )


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the number of networks that are not proved, or 2 for none at all."""
    parser = argparse.ArgumentParser(prog="python -m verification.proved_networks", description=__doc__.splitlines()[0])
    known = [f"{n}@{c}" for n, c in CASES]
    parser.add_argument("cases", nargs="*", metavar="NETWORK@CONFIG", help="by default all")
    parser.add_argument("--json", type=Path, help="write the rows here as well")
    options = parser.parse_args(arguments)
    for case in options.cases:
        if case not in known:
            parser.error(f"{case!r} is none of {', '.join(known)}")
    chosen = [tuple(case.split("@")) for case in options.cases] or CASES
    print(f"{'network':22}{'config':8}{'elements':>10}{'accesses':>12}{'CPU s':>8}{'MB':>7}  verdict")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for network, config in chosen:
            model = network_file(network, Path(folder))
            if model is None:
                print(f"{network:22}{config:8}left out: its file is missing")
                continue
            row = prove(network, config, model)
            rows.append(row)
            print(f"{row.network:22}{row.config:8}{row.elements:10,}{row.accesses:12,}{row.cpu_seconds:8.1f}"
                  f"{row.megabytes:7.0f}  {row.said[:60]}", flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    return sum(not row.proved for row in rows) if rows else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
