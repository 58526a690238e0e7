"""The native simulators under AddressSanitizer and UBSan; `make sanitize N=1000` runs more."""

import pytest

from verification import sanitize


@pytest.mark.slow
def test_random_and_damaged_programs() -> None:
    if not sanitize.runtimes():
        pytest.skip("g++ has no libasan and libubsan")
    found = sanitize.start(16, configs=2, level="-O0")  # building them takes most of the time
    assert found.returncode == 0, found.stderr[-4000:]
    assert found.stdout.splitlines()[-1].startswith("16 programs")
