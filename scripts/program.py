"""How the programs of this folder end: a message on stderr and an exit code, never a traceback for a user's mistake."""

import os
import sys
from collections.abc import Callable

from runs.errors import ExitCode, HarnessError, Interrupted
from runs.listening import listening


def exit_code_of(job: Callable[[], None], interrupted: str = "interrupted") -> int:
    """Do the job.

    Args:
        interrupted: what Ctrl-C leaves behind, in a few words.

    Returns:
        The exit code.
    """

    def say_it(_: Interrupted) -> None:
        os.write(2, f"{interrupted}\n".encode())

    try:
        with listening(say_it):
            job()
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except Interrupted as error:
        say_it(error)
        return error.exit_code
    return ExitCode.OK
