"""The stages, one per module."""
