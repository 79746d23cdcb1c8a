"""The state of runs, campaigns, tunings and audits, from their files."""
