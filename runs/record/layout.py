"""The run directory and its file names.

One leg, one directory. LoadGen's logs are never changed after LoadGen closed them.
"""

import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runs.errors import ExitCode, InputError, SetupError
from runs.interrupts import critical
from runs.reading import read_object

LOADGEN_LOGS = (
    "mlperf_log_summary.txt",
    "mlperf_log_detail.txt",
    "mlperf_log_accuracy.json",
    "mlperf_log_trace.json",
)


class PathIn:
    """An attribute that is the `Path` of a file or directory in a folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: "Folder", _: object) -> Path:
        return folder.root / self.name


@dataclass(frozen=True)
class Folder:
    """A directory that knows its files."""

    root: Path


class RunDir(Folder):
    """Paths inside one leg's directory."""

    summary = PathIn(LOADGEN_LOGS[0])
    detail = PathIn(LOADGEN_LOGS[1])
    accuracy_log = PathIn(LOADGEN_LOGS[2])
    trace = PathIn(LOADGEN_LOGS[3])
    manifest = PathIn("manifest.json")
    requests = PathIn("requests.jsonl")
    user_conf = PathIn("user.conf")
    audit_config = PathIn("audit.config")
    no_audit_config = PathIn("no-audit.config")  # never exists: LoadGen's argument in a leg without an audit
    engine_log = PathIn("engine.log")
    progress = PathIn("progress.json")
    result = PathIn("result.json")
    accuracy_text = PathIn("accuracy.txt")
    accuracy_json = PathIn("accuracy.json")
    page = PathIn("report.html")  # written after the seal: no evidence
    seal = PathIn("seal.json")  # the signed statement of all other files; written last
    time_stamp = PathIn("seal.tsr")  # of seal.json, by a time-stamping authority (`main.py anchor`)

    # Names of the files that belong to the run.
    own_names = frozenset(
        (*LOADGEN_LOGS, manifest.name, requests.name, user_conf.name, audit_config.name, engine_log.name,
         progress.name, result.name, accuracy_text.name, accuracy_json.name)
    )  # fmt: skip

    def create(self) -> None:
        """Make the directory; SetupError as for `taken`."""
        with self.taken():
            pass

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Make the directory. Other processes that call this wait until the block ends, unless the file system cannot
        lock a directory.

        Raises:
            SetupError: the path is not a writable directory, or it already holds a run.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".writable-{os.getpid()}"
            with critical():
                probe.write_bytes(b"")
                probe.unlink()
        except OSError as error:
            raise SetupError(
                f"output directory {self.root} cannot be written: {error.strerror}",
                "give --output-log-dir a directory you may write to",
            ) from error
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            self.refuse_taken()
            if self.never_began:
                for name in (*self.own_names, self.seal.name, self.time_stamp.name, self.page.name):
                    (self.root / name).unlink(missing_ok=True)
            yield
        finally:
            os.close(descriptor)

    def refuse_taken(self) -> None:
        """Raise a SetupError if it holds a run."""
        taken = [name for name in (*LOADGEN_LOGS, self.manifest.name) if (self.root / name).exists()]
        if taken and not self.never_began:
            raise SetupError(
                f"output directory {self.root} already holds a run ({taken[0]})",
                "give --output-log-dir a new directory; a run never writes into another run's",
            )

    @property
    def never_began(self) -> bool:
        """Whether there is only the record of a leg that was refused before LoadGen started."""
        if any((self.root / name).exists() for name in LOADGEN_LOGS):
            return False
        try:
            record = read_object(self.manifest, "")
        except InputError:
            return False
        return record.get("exit_code") in (ExitCode.BAD_INPUT, ExitCode.REFUSED)


def audit_record(folder: Path, test: str) -> Path:
    """The file with the outcome of an audit."""
    return folder / f"audit_{test}.json"


def free_directory(wanted: Path) -> Path:
    """Make `wanted`, or `wanted-2`, … if it exists; SetupError if none can be made."""
    for number in itertools.count(1):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise SetupError(
                f"output directory {folder} cannot be made: {error.strerror}",
                "give --output-log-dir a directory you may write to",
            ) from error
    raise AssertionError


class ResultDir(Folder):
    """The legs and audits of one scenario of one benchmark."""

    discarded = PathIn("discarded")  # legs that failed, were interrupted or are out of date

    @property
    def performance(self) -> RunDir:
        return RunDir(self.root / "performance" / "run_1")

    @property
    def accuracy(self) -> RunDir:
        return RunDir(self.root / "accuracy")

    def audit(self, test: str) -> Path:
        """The directory that `audit --output-log-dir ROOT --test TEST` fills."""
        return self.root / "audit" / test


class CampaignDir(Folder):
    """A campaign; each `<benchmark>/<scenario>/` in it is a ResultDir."""

    configuration = PathIn("campaign.json")  # resolved options
    lock = PathIn("campaign.lock")  # held while the campaign runs
    journal = PathIn("journal.jsonl")  # one JSON line per step

    def result(self, submission_name: str, scenario: str) -> ResultDir:
        return ResultDir(self.root / submission_name / scenario)

    def results(self) -> list[tuple[str, str, ResultDir]]:
        """(benchmark directory, scenario, its directory) of all that exist."""
        return [
            (scenario.parent.name, scenario.name, ResultDir(scenario))
            for scenario in sorted(self.root.glob("*/*"))
            if (scenario / "performance").is_dir() or (scenario / "accuracy").is_dir()
        ]
