"""The audits, one per module, each with options, runs, rules and text. `compliance/audits/discovery.py` finds them."""
