"""The audits: each module is one, with options, runs, rules and text. `compliance/audits/discovery.py` finds them."""
