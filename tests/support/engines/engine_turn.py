"""A lock that lets real engines start one at a time on a host, for all test processes and checkouts."""

import os
import tempfile
from pathlib import Path

from filelock import FileLock

# Hold it from the start of an engine until it is ready, or until its run ends. It is reentrant within a process.
engine_turn = FileLock(Path(tempfile.gettempdir(), f"mlperf-llama-vllm-engines-{os.getuid()}.lock"))
