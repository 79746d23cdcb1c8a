"""Many connections are allowed as far as the system goes, and refused beyond with the limit."""

import resource
import subprocess
import sys

PROGRAM = """
import resource
from runs.errors import SetupError
from sut.event_loop import SPARE_FILES, allow_open_files

resource.setrlimit(resource.RLIMIT_NOFILE, (300, 1000))
allow_open_files(10, "few", "take fewer")
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
allow_open_files(1000 - SPARE_FILES, "many", "take fewer")
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
try:
    allow_open_files(1001 - SPARE_FILES, "512 replicas", "take fewer")
except SetupError as error:
    print(error)
"""


def test_the_limit_is_raised_to_the_hard_one_and_no_further() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "300",
        "1000",
        "512 replicas need 1001 open files; the limit is 1000",
        "  fix: take fewer, or raise the limit (ulimit -Hn)",
    ]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
