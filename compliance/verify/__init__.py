"""Verification of results from files: run directories of this harness, or logs of any LoadGen run."""
