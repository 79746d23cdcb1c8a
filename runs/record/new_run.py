"""The directory of a new run. It must not contain files of another run."""

import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from runs.errors import ExitCode, InputError, SetupError
from runs.files.reading import read_object
from runs.processes.interrupts import critical
from runs.record.layout import LOADGEN_LOGS, RunDir
from runs.wording import printable, shortened_list


@contextlib.contextmanager
def taken(run: RunDir) -> Iterator[None]:
    """Create the directory and lock it for the block. Other processes that call this wait, unless the file system
    cannot lock directories.

    Raises:
        SetupError: If the path is not a writable directory, or already has a run.
    """
    try:
        run.root.mkdir(parents=True, exist_ok=True)
        probe = run.root / f".writable-{os.getpid()}"
        with critical():
            probe.write_bytes(b"")
            probe.unlink()
    except OSError as error:
        raise SetupError(
            f"output directory {run.root} cannot be written: {error.strerror}",
            "give --output-log-dir a directory that you may write to",
        ) from error
    descriptor = os.open(run.root, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        refuse_second_run(run)
        if never_began(run):
            for name in (*run.own_names, run.seal.name, run.time_stamp.name, run.page.name):
                (run.root / name).unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


def refuse_second_run(run: RunDir) -> None:
    """Raise a SetupError if the directory has a run."""
    existing = [name for name in (*LOADGEN_LOGS, run.manifest.name) if (run.root / name).exists()]
    if existing and not never_began(run):
        raise SetupError(
            f"output directory {run.root} already has a run ({existing[0]})",
            "give --output-log-dir a new directory; a run never writes into the directory of another run",
        )


def note_on_foreign_files(run: RunDir) -> str:
    """Return a note on the files in the directory of a new run that belong to no run; empty if there are none."""
    own_names = {*run.own_names, run.seal.name, run.time_stamp.name, run.page.name}
    foreign = sorted({path.name for path in run.root.glob("*")} - own_names)
    if not foreign:
        return ""
    names = shortened_list([printable(name, 40) for name in foreign], 3)
    return f"{run.root} has files that do not belong to the run: {names}; the attestation of the run will list them"


def never_began(run: RunDir) -> bool:
    """Return whether the directory has only the manifest of a run that was refused before LoadGen started."""
    if any((run.root / name).exists() for name in LOADGEN_LOGS):
        return False
    try:
        record = read_object(run.manifest, "")
    except InputError:
        return False
    return record.get("exit_code") in (ExitCode.BAD_INPUT, ExitCode.REFUSED)


def free_directory(wanted: Path) -> Path:
    """Create `wanted`, or `wanted-2`, … if it exists; raise SetupError if no directory can be created."""
    for number in itertools.count(1):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise SetupError(
                f"output directory {folder} cannot be created: {error.strerror}",
                "give --output-log-dir a directory that you may write to",
            ) from error
    raise AssertionError
