"""The end of the programs in this folder: a message on stderr and an exit code, without a traceback."""

import os
import sys
from collections.abc import Callable

from runs.errors import ExitCode, HarnessError, Interrupted
from runs.processes.listening import listening


def exit_code_of(job: Callable[[], None], interrupted: str = "interrupted") -> int:
    """Run a job; return the exit code.

    Args:
        interrupted: Message after Ctrl-C.
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
