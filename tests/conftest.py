"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest

# Tests look at the compiler itself, also through stand-ins: nothing is taken from or left in the program cache.
os.environ.setdefault("TILEWRIGHT_PROGRAM_CACHE", "off")
os.environ.setdefault("TILEWRIGHT_TUNING", "off")  # of the user: pinned cycles are those of the compiler alone


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Folder of the shared test models: $TILEWRIGHT_MODELS, or `../shared/models` beside the checkout."""
    named = os.environ.get("TILEWRIGHT_MODELS")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "models"
    if not folder.is_dir():
        pytest.skip(f"no test models: {folder} is missing; set TILEWRIGHT_MODELS to the folder that holds them")
    return folder
