"""Submission trees: where everything lies in them, building one from runs, and checking one before upload."""
