"""What may be claimed about a run."""
