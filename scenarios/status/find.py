"""The search for runs, campaigns, tunings and audits in directories and by the processes of this machine."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runs.errors import InputError
from runs.mlperf_endpoints.layout import VERDICT
from runs.record.group_end import NAME as ENDED
from runs.record.layout import BENCH_FILE, CampaignDir
from runs.record.tune_dir import TuneDir
from runs.what_is import PathKind, what_is
from scenarios.curve.curve_dir import CurveDir
from scenarios.status.run_kinds import kind_of_run
from scenarios.status.run_status import DirectoryKind

DEEPEST = 7  # searched levels of directories; the audit runs of a campaign are at level 5
NEEDED = "a directory with runs of this harness or of the MLPerf Endpoints client"
# Modules of a run's process, whose working directory is the run directory; the second one in 0.1.0.
RUN_MODULES = ("scenarios.launch.start", "scenarios.run.start")


_OF_AUDITS = ("audit_*.json", "*/manifest.json", ENDED)  # files in the directory of an audit


@dataclass(frozen=True)
class FoundDir:
    """A directory, and its kind."""

    kind: DirectoryKind
    root: Path


def directory_kind(folder: Path) -> DirectoryKind | None:
    """Return the kind of a directory from its files; None if it is unknown."""
    campaign, tune = CampaignDir(folder), TuneDir(folder)
    if campaign.configuration.is_file() or campaign.lock.is_file():
        return "campaign"
    if tune.lock.is_file() or tune.record.is_file():
        return "tune"
    if (folder / BENCH_FILE).is_file():
        return "bench"
    if CurveDir(folder).exists:
        return "curve"
    if kind_of_run(folder) is not None:
        return "leg"
    if (folder / VERDICT).is_file():
        return "audit"
    if folder.parent.name == "audit" and any(any(folder.glob(name)) for name in _OF_AUDITS):
        return "audit"
    return None


def find_in(folders: Iterable[Path]) -> list[FoundDir]:
    """Return all runs and groups below the directories, without discarded runs; a group precedes its runs.

    Raises:
        InputError: If a directory cannot be read.
    """
    directories: dict[Path, FoundDir] = {}
    for folder in folders:
        try:
            root = folder.resolve(strict=True)
            os.scandir(root).close()
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
            if not folder.is_dir():
                raise what_is(folder).refused(NEEDED) from error
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{folder}: {reason}", f"give {NEEDED}") from error
        for path in _folders(root):
            if path not in directories and (kind := directory_kind(path)) is not None:
                directories[path] = FoundDir(kind, path)
    return list(directories.values())


def without_runs(folders: Iterable[Path], directories: Iterable[FoundDir]) -> tuple[PathKind, ...]:
    """Return the directories that contain no run."""
    roots = [directory.root for directory in directories]
    empty = (folder for folder in folders if not any(root.is_relative_to(folder.resolve()) for root in roots))
    return tuple(map(what_is, empty))


def _folders(root: Path) -> Iterable[Path]:
    for path, children, _ in os.walk(root):
        folder = Path(path)
        yield folder
        depth = len(folder.parts) - len(root.parts)
        children[:] = sorted(name for name in children if name != "discarded" and not name.startswith("."))
        if depth >= DEEPEST:
            children.clear()


def find_running() -> list[FoundDir]:
    """Return the runs in progress on this machine, with their campaigns, tunings and audits."""
    import psutil

    directories: dict[Path, FoundDir] = {}
    for process in psutil.process_iter(["cmdline", "cwd"]):
        if not set(RUN_MODULES) & set(process.info["cmdline"] or ()) or not process.info["cwd"]:
            continue
        folder = Path(process.info["cwd"])
        if directory_kind(folder) != "leg":
            continue  # The process waits for its run directory.
        for path in (*reversed(folder.parents[:5]), folder):
            if (kind := directory_kind(path)) is not None:
                directories[path] = FoundDir(kind, path)
    return list(directories.values())
