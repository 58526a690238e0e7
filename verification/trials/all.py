"""All trials of an RTL that may be faulty."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.isa.config import NpuConfig
from verification.trials.bus import bus
from verification.trials.corner_cases import sharp
from verification.trials.directed import directed
from verification.trials.fetch import fetch
from verification.trials.full_width import wide
from verification.trials.host import host
from verification.trials.issue import issue
from verification.trials.limits import far
from verification.trials.register_bits import bits
from verification.trials.simultaneous_gives import meet
from verification.trials.transfer import transfer
from verification.trials.trial import Trial, trials
from verification.trials.vector import vector


def all_trials(config: NpuConfig, programs: int) -> Iterator[Trial]:
    """Random programs and what stops, so many of each (see `trials`), then those made for a purpose."""
    yield from trials(config, programs)
    for some in (directed, far, sharp, bits, bus, wide, meet, vector, transfer, issue, fetch, host):
        yield from some(config)
