"""The first steps of a run's process: import the engine's code, wait for a run directory, become the run.

The parent runs it as `python -m scenarios.run.start ENGINE [beside]` and goes on checking the run, which takes about
as long as these imports. It writes the run directory's path to the standard input when everything is checked, and
closes it without a word when the run is refused. Until then there is no run directory, no engine and no LoadGen.

vLLM's processes import this module again under another name, so it imports little by itself.
"""

import gc
import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    """Become the run whose run directory is written to the standard input, or end when none is."""
    gc.disable()  # all that is imported stays: looking through it again and again finds nothing
    from runs.record.layout import RunDir
    from scenarios.run import process as run_process
    from scenarios.run.supervisor import BESIDE, NO_ENGINE
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
        os._exit(0)  # the run was refused, or the parent is gone
    run_dir = RunDir(Path(os.fsdecode(path)))
    _write_to(run_dir.engine_log)
    os.chdir(run_dir.root)
    run_process.main(run_dir)


def _write_to(log: Path) -> None:
    """Turn the output into `log`, what was written so far (to a nameless file) at its head."""
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
