"""A response that cannot be what it should be."""


class Fault(Exception):
    """The text names what is wrong with the response; server and query are named by whoever reports it."""
