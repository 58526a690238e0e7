"""Networks through onnxruntime with the execution provider, beside its CPU provider and beside `Device.run`.

python -m tests.network.provider_networks                  the small zoo and the reference models
python -m tests.network.provider_networks --full resnet18  a network of the zoo at its full size
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from tests.common import onnx_models
from tests.common.paths import ROOT
from tilewright import Device, compile_program, random_inputs
from tilewright.onnxruntime.library import reports
from tilewright.onnxruntime.session import onnxruntime_session
from tilewright.zoo.catalogue import ZOO, build_quantized, entry

REFERENCE = ("mobilenet_v2_qdq", "mobilenet_v2_qoperator_u8", "resnet18_qdq", "vit_tiny_qdq")


@dataclass
class Row:
    """Results of a network under the execution provider.

    Attributes:
        nodes, taken: of onnxruntime's graph, and of the programs.
        share: of the NPU's MACs of the compiled model that the programs have.
        as_cpu, as_device: outputs with the bytes of onnxruntime's CPU provider, and of `Device.run`.
    """

    name: str
    nodes: int
    taken: int
    share: float
    as_cpu: bool
    as_device: bool


def row(name: str, model: onnx.ModelProto, seed: int = 1) -> Row:
    """Runs a network once on random inputs."""
    program = compile_program(model)
    feeds = random_inputs(program, seed)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime_session(model, session_options=options)
    report = reports()[-1]
    got = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
    programs: list[dict[str, int]] = report["programs"]  # type: ignore[assignment]
    share = sum(p["npu_macs"] for p in programs) / program.npu_macs

    def equal(others: dict[str, np.ndarray]) -> bool:
        return all(got[n].dtype == v.dtype and got[n].tobytes() == v.tobytes() for n, v in others.items())

    return Row(
        name, int(str(report["nodes"])), sum(p["nodes"] for p in programs), share,
        equal(onnx_models.run(model, feeds)), equal(Device().run(program, feeds)),
    )  # fmt: skip


def models_folder() -> Path:
    """The folder of the reference models."""
    return Path(os.environ.get("TILEWRIGHT_MODELS") or ROOT.parent / "shared" / "models")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.network.provider_networks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--full", metavar="NAME", action="append", choices=list(ZOO))
    args = parser.parse_args(arguments)
    print(f"{'network':28} {'nodes':>6} {'taken':>6} {'NPU MACs':>9}  = CPU provider  = Device.run")
    wrong = 0
    names = args.full or [*ZOO, *(name for name in REFERENCE if (models_folder() / f"{name}.onnx").is_file())]
    for name in names:
        if name in ZOO:
            model = build_quantized(name, **({} if args.full else entry(name).small))
        else:
            model = onnx.load(models_folder() / f"{name}.onnx")
        r = row(name, model)
        print(f"{r.name:28} {r.nodes:6} {r.taken:6} {r.share:9.1%}  {r.as_cpu!s:14}  {r.as_device}", flush=True)
        wrong += not (r.as_cpu and r.as_device)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
