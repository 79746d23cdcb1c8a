"""Comparisons of the harness with LoadGen, vLLM and the reference procedures: `python -m tools.peers`."""
