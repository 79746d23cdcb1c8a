"""The display of runs in progress on a terminal."""
