"""What the parts of the bench run and hold legs against: programs, engines, models, legs."""
