"""The audits: each plans its legs as data and judges what they left behind; nothing here runs anything."""
