"""Real engines start one at a time on a machine, whichever test, test process or checkout starts them."""

import os
import tempfile
from pathlib import Path

from filelock import FileLock

# Hold it from the start of an engine until it is ready, or until its run is over. Reentrant within a process.
engine_turn = FileLock(Path(tempfile.gettempdir(), f"mlperf-llama-vllm-engines-{os.getuid()}.lock"))
