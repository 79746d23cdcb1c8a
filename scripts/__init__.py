"""Programs for set-up and data."""
