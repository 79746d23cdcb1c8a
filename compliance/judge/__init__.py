"""Classes for rules, findings, checks and verdicts. The other packages declare the rules themselves."""
