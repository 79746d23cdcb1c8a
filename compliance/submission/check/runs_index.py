"""Run directories that a submission was made of: are its logs theirs, and is the hash that of the whole log?"""

from dataclasses import dataclass, field
from pathlib import Path

from compliance.submission.check.finding import Findings
from compliance.submission.check.reading import is_regular
from compliance.submission.truncate import CUT, SHOWN_BYTES
from runs.errors import InputError
from runs.files import sha256_of
from runs.record.layout import RunDir


@dataclass
class RunsIndex:
    """Runs by the SHA-256 of their detail log, which no two runs share."""

    by_detail: dict[str, RunDir] = field(default_factory=dict)

    def find(self, run: RunDir) -> RunDir | None:
        """The run that a leg of a tree is a copy of."""
        return self.by_detail.get(sha256_of(run.detail)) if is_regular(run.detail) else None

    def check(self, run: RunDir, text: Path, findings: Findings) -> None:
        """Hold one leg of a tree against the run that it is a copy of."""
        if not self.by_detail or not is_regular(run.detail):
            return
        own = self.find(run)
        if own is None:
            findings.add("log-not-in-runs", run.detail, "no run has this detail log", "one of the runs of --runs")
            return
        if is_regular(run.summary) and is_regular(own.summary) and sha256_of(run.summary) != sha256_of(own.summary):
            findings.add("log-runs", run.summary, "another summary than in the run", f"that of {own.root.name}")
        if is_regular(text) and is_regular(own.accuracy_log):
            self._check_answers(run, own, text, findings)

    def _check_answers(self, run: RunDir, own: RunDir, text: Path, findings: Findings) -> None:
        whole = sha256_of(own.accuracy_log)
        said = [line.partition("=")[2].strip() for line in _lines(text) if line.startswith("hash=")]
        if said and said[0].lower() != whole:
            findings.add("accuracy-hash", text, f"hash={said[0]}", f"hash={whole}, of the run's whole accuracy log")
        if not is_regular(run.accuracy_log) or run.accuracy_log.stat().st_size > 64 * 1024:
            return
        if run.accuracy_log.read_bytes().replace(b"\r\n", b"\n") != _cut(own.accuracy_log):
            expected = "the beginning and the end of the run's accuracy log"
            findings.add("log-runs", run.accuracy_log, "other answers than in the run", expected)


def index_runs(directories: list[Path]) -> RunsIndex:
    """Every run under the directories.

    Raises:
        InputError: a directory is none, or holds no run.
    """
    index = RunsIndex()
    for directory in directories:
        if not directory.is_dir():
            raise InputError(f"--runs {directory} is no directory", "name a run directory, or one with runs in it")
        found = [path for path in sorted(directory.rglob("mlperf_log_detail.txt")) if is_regular(path)]
        if not found:
            raise InputError(f"--runs {directory} holds no run", "name a run directory, or one with runs in it")
        for path in found:
            index.by_detail[sha256_of(path)] = RunDir(path.parent)
    return index


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _cut(path: Path) -> bytes:
    size = path.stat().st_size
    with path.open("rb") as stream:
        start = stream.read(SHOWN_BYTES)
        if size < SHOWN_BYTES:
            return start
        stream.seek(size - SHOWN_BYTES)
        return start + CUT + stream.read(SHOWN_BYTES)
