"""The designs of the calibration's machines: digests of what they elaborate to, and whether they are still the same.

`tilewright.energy` asks first whether the sources of the RTL are those of the calibration, which takes no time. Where
they are others, only elaborating every machine tells whether a design is: `look` does, and keeps what it found.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from tilewright.energy.model import EnergyModel
from tilewright.fpga.bare.kept import write_json
from tilewright.fpga.bare.resources import rtlil_of

#: Names of values of signals and of who wrote the text, and where in the sources: the gates are the same.
_REMARKS = re.compile(r"^ *attribute \\(?:enum_\w+|generator|src) .*\n", re.MULTILINE)


def digest_of(design: str) -> str:
    """16 hex digits over what RTLIL text says of gates and registers."""
    return hashlib.sha256(_REMARKS.sub("", design).encode()).hexdigest()[:16]


def look(model: EnergyModel, say: Callable[[str], object]) -> list[str]:
    """Machines of the calibration that are other designs by now, by name; kept, so that the model knows from now on."""
    changed = []
    for config in model.machines:
        same = digest_of(rtlil_of(config)) == model.designs.get(config.name)
        say(f"{config.name}: {'as measured' if same else 'another design now'}")
        if not same:
            changed.append(config.name)
    write_json(model.verdict, {"changed": changed})
    return changed
