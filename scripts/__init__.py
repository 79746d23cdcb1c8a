"""Programs for set-up, data and the bench."""
