"""Submission trees: layout, building from runs, and checking before upload."""
