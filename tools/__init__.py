"""Developers' tools, which the product does not import."""
