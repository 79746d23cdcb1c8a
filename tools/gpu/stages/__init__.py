"""The stages, each in a file."""
