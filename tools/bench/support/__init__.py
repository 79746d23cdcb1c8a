"""What the parts of the bench run and hold runs against: programs, engines, models, runs."""
