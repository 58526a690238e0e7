"""All trials of an RTL that may be faulty."""

from __future__ import annotations

from collections.abc import Iterator

from tests.common.rtl_bits import bits
from tests.common.rtl_bus import bus
from tests.common.rtl_directed import directed
from tests.common.rtl_far import far
from tests.common.rtl_fetch import fetch
from tests.common.rtl_host import host
from tests.common.rtl_issue import issue
from tests.common.rtl_meet import meet
from tests.common.rtl_sharp import sharp
from tests.common.rtl_transfer import transfer
from tests.common.rtl_trials import Trial, trials
from tests.common.rtl_vector import vector
from tests.common.rtl_wide import wide
from tilewright.isa.config import NpuConfig


def all_trials(config: NpuConfig, programs: int) -> Iterator[Trial]:
    """Random programs and what stops, so many of each (see `trials`), then those made for a purpose."""
    yield from trials(config, programs)
    for some in (directed, far, sharp, bits, bus, wide, meet, vector, transfer, issue, fetch, host):
        yield from some(config)
