"""Every instruction runs on both paths."""

import pytest


@pytest.fixture(params=["reference", "fast"])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)
