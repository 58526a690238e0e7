"""A real browser for the pages of reports."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.common import needs


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    if None in programs:
        needs.skip(needs.BROWSER, "no chromium and chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync",
                 "disable-background-networking", "disable-component-update", "disable-dev-shm-usage"):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(str(programs[1])))
    yield driver
    driver.quit()
