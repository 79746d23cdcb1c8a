"""Comparisons of systems that are measured together."""
