"""The start of the process of a run: it imports the engine, waits for a run directory, and executes the run.

The parent starts it as `python -m scenarios.launch.start ENGINE [beside]` and checks the run at the same time. If the
run is accepted, the parent writes the path of the run directory to standard input; if it is refused, the parent closes
standard input. Until then, the run directory, the engine and LoadGen do not exist.

vLLM's processes import this module again under another name, so it imports little at the top.
"""

import gc
import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    """Execute the run whose directory arrives on standard input, or exit if standard input is closed."""
    gc.disable()  # Imported modules stay, so collections during the imports find nothing.
    from runs.record.layout import RunDir
    from scenarios.launch import run_process as run_process
    from scenarios.launch.supervisor import BESIDE, NO_ENGINE
    from sut.engines import engine_kind

    if sys.argv[1] == NO_ENGINE:
        import sut.replicas.pool  # noqa: F401
    else:
        kind = engine_kind(sys.argv[1])
        if BESIDE in sys.argv[2:]:
            kind.start_beside()
        kind.warm_import()
    gc.freeze()
    gc.enable()
    path = sys.stdin.buffer.read()
    if not path:
        os._exit(0)  # The run was refused, or the parent ended.
    run_dir = RunDir(Path(os.fsdecode(path)))
    _write_to(run_dir.engine_log)
    os.chdir(run_dir.root)
    run_process.main(run_dir)


def _write_to(log: Path) -> None:
    """Redirect the output to `log`, which starts with the earlier output (from an unnamed file)."""
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("wb") as stream, Path(os.devnull).open("rb") as nothing:
        with os.fdopen(os.dup(1), "rb") as early:
            early.seek(0)
            shutil.copyfileobj(early, stream)
        stream.flush()
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        os.dup2(nothing.fileno(), 0)


if __name__ == "__main__":
    main()
