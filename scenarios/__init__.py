"""What to run and how: LoadGen settings, one run in a fresh process, what a person sees."""
