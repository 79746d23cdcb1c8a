"""Rules on the directory of a bench: bench.json, compared with the run directories."""
