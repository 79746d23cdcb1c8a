"""Programs, engines, models and runs for the parts of the bench."""
