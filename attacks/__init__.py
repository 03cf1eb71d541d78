"""Attacks on what the package promises: `make attack`. RELIABILITY.md has the results."""
