"""Benches: several runs of one system at different loads, their numbers, and bench.json."""
