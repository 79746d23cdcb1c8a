"""Commands and runs: LoadGen settings, one run in a new process, and the output for users."""
