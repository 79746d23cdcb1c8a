"""Judging: rules, findings, checks and verdicts. Nothing here knows a rule or a source of evidence."""
