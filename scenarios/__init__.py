"""What to run and how: LoadGen settings, one leg in a fresh process, what a person sees."""
