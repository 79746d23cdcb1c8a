"""Rules, findings, checks and verdicts in general; the rules themselves are declared in the other packages."""
