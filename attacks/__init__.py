"""Attacks on what the package promises: `make attack`. RELIABILITY.md has the results."""

from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures"
