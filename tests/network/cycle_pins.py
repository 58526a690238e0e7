"""Cycles that must not get worse; `python -m tests.network.cycle_pins` (`make pins`) writes the file anew."""

from __future__ import annotations

import json
from pathlib import Path

import tilewright as tw
from tests.common.paths import ROOT
from tilewright import zoo
from tilewright.isa.config import PRESETS

FILE = Path(__file__).with_name("cycle_pins.json")
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"

#: (network, preset): the small networks of the zoo as they are, the large one at the size of its quick tests.
CASES = [
    *((name, "base") for name in ("resnet8", "ds_cnn", "vww", "autoencoder", "mobilenet_v2")),
    *(("digits", name) for name in PRESETS),
]


def cycles(network: str, config: str) -> int:
    """Cycles of a run with the default memory timing."""
    model = DIGITS if network == "digits" else zoo.build_quantized(network, **zoo.ZOO[network].small)
    program = tw.compile(model, config, cache=False)
    with tw.Device("cycle", functional=False) as device:
        device.run(program, tw.random_inputs(program))
        assert device.counters is not None and device.counters.cycles is not None
        return device.counters.cycles


def main() -> None:
    """Writes the pins and says what changed."""
    old = json.loads(FILE.read_text()) if FILE.is_file() else {}
    new = {f"{network} {config}": cycles(network, config) for network, config in CASES}
    for key, value in new.items():
        before = old.get(key)
        change = f" (was {before}, {value / before - 1:+.1%})" if before and before != value else ""
        print(f"{key}: {value}{change}")
    FILE.write_text(json.dumps(new, indent=2) + "\n")


if __name__ == "__main__":
    main()
