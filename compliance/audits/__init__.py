"""The audits: each plans its legs as data and judges their files; `scenarios/audit` runs the legs."""
