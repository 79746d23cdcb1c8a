"""Acceptance of a machine: what the product promises, measured in one go: `python -m scripts.accept`."""
