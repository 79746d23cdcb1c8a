"""The audits. Each audit plans its runs as data and checks their files; `scenarios/audit` starts the runs."""
