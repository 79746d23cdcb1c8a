"""The process that holds a lock file."""

import os
from pathlib import Path


def holder_of(lock: Path) -> int | None:
    """Return the process on this machine that holds a lock file, from the kernel's list; None if there is none.

    An attempt to lock the file could make a starting command fail.
    """
    try:
        facts = lock.stat()
        locks = Path("/proc/locks").read_text()
    except OSError:
        return None
    name = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    for line in locks.splitlines():
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == name:
            return int(words[4])
    return None
