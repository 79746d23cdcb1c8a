"""How many files and connections the system lets this process have open."""

import resource

from runs.errors import SetupError

SPARE_FILES = 256  # everything else that the process has open


def allow_open_files(count: int, what: str, fix: str) -> None:
    """Raise the soft limit as far as is needed.

    Args:
        count: files and connections, besides what every process has.
        what: they are for.
        fix: how to need fewer.

    Raises:
        SetupError: the hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise SetupError(
            f"{what} need {needed} open files; the limit is {hard}", f"{fix}, or raise the limit (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
