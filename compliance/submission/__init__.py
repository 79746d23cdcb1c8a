"""Submission trees: their layout, how one is built from runs, and how one is checked before upload."""
