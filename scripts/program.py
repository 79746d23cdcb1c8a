"""How the programs of this folder end: a message on stderr and an exit code, never a traceback for a user's mistake."""

import sys
from collections.abc import Callable

from runs.errors import ExitCode, HarnessError


def exit_code_of(job: Callable[[], None], interrupted: str = "interrupted") -> int:
    """Do the job.

    Args:
        interrupted: what Ctrl-C leaves behind, in a few words.

    Returns:
        The exit code.
    """
    try:
        job()
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return ExitCode.INTERRUPTED
    return ExitCode.OK
