"""The state of legs, campaigns, tunes and audits, from their files."""
