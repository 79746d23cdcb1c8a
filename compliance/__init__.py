"""Rules and checks that decide what a run, a result or a submission may claim."""
