"""Developers' tools: the product imports none of them."""
