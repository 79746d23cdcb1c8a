"""The state of runs, campaigns, tunes and audits, from their files."""
