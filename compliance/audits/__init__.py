"""The audits: each plans its runs as data and judges their files; `scenarios/audit` starts the runs."""
