"""Runs, their files and their numbers."""
