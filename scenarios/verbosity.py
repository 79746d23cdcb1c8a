"""-v and -vv: whether details and the engine's log are shown."""

import contextlib
import os
from collections.abc import Iterator

_shown = False


@contextlib.contextmanager
def engine_log_shown(level: int) -> Iterator[None]:
    """Within: the engine's log is shown, too (1), with its debug messages (2)."""
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
    """Whether -v was given: details, and the engine's log."""
    return _shown
