"""Programs for setup and data."""
