"""Measurements of the harness against what it builds on, side by side in one run: `python -m tools.bench`."""
