"""The options -v and -vv, which show details and the engine's log."""

import contextlib
import os
from collections.abc import Iterator

_shown = False


@contextlib.contextmanager
def engine_log_shown(level: int) -> Iterator[None]:
    """Show the engine's log (level 1) with debug messages (level 2) within the block."""
    global _shown
    variable = "VLLM_LOGGING_LEVEL"
    before = os.environ.get(variable)
    _shown = level > 0
    if level > 1:
        os.environ[variable] = "DEBUG"
    try:
        yield
    finally:
        _shown = False
        if before is not None:
            os.environ[variable] = before
        elif level > 1:
            del os.environ[variable]


def is_verbose() -> bool:
    """Return whether -v is given, so that details and the engine's log are shown."""
    return _shown
