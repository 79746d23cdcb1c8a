"""Python's collector of reference cycles, and when it stands still."""

import gc


def rest_collector() -> None:
    """Everything made so far lives to the end: the collector need never look at it, nor run in the timed window."""
    gc.collect()
    gc.freeze()
    gc.disable()
