"""How each kind of server is asked for a completion of token ids, and how it answers. A class each, no more."""
