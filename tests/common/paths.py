"""Where the checkout lies, so that a test may move without counting folders."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
