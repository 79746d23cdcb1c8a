"""Comparison of a run directory with the signed attestation that was written at the end of the run."""

import hashlib
import re
from collections.abc import Iterator

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, stated
from compliance.results.truncate import is_truncated
from runs.attestation.attestation import Attestation, BrokenFile, broken_files, read_attestation
from runs.errors import HarnessError
from runs.files.reading import read_record
from runs.files.writing import sha256_of
from runs.record.finished_run import FinishedRun
from runs.record.layout import RunDir
from runs.record.unattested import NotAttestedError

# Line that the official truncation tool appends to accuracy.txt. [tools/submission/truncate_accuracy_log.py]
_APPENDED_HASH = re.compile(rb"\n?hash=([0-9a-f]{64})\n?$")


def _no_attestation(run: FinishedRun) -> str:
    has_own_files = run.manifest is not None or (run.dir.seal.is_file() and not run.foreign)
    return "" if has_own_files else f"{run.dir.seal.name} is missing"


@decides("contradiction", applies=_no_attestation, also=("attested",))
def unchanged(run: FinishedRun) -> Iterator[Finding]:
    """Compare a run of this harness with its attestation. Runs of other harnesses have no attestation."""
    if run.manifest is not None:
        yield from attested(run.dir)
    elif run.dir.seal.is_file() and not run.foreign:
        yield stated("attested", f"{run.dir.manifest.name} is missing, {run.dir.seal.name} exists", run.dir.manifest)


@decides(
    "contradiction",
    ("attested", "error", OURS, "files of the run, compared with its signed attestation",
     "restore all files of the run directory as they were when the run ended"),
)  # fmt: skip
def attested(run: RunDir) -> list[Finding]:
    """Check the signature of the attestation, and the files of the run against it."""
    return read_and_attested(run)[1]


def read_and_attested(run: RunDir) -> tuple[Attestation | None, list[Finding]]:
    """Read the attestation and compare the files of the run with it. The attestation is None if it is unreadable."""
    try:
        attestation = read_attestation(run)
        changed = list(broken_files(run, attestation))
        if _truncated_since(run, changed, attestation.files):
            changed = [file for file in changed if file.name not in (run.accuracy_log.name, run.accuracy_text.name)]
    except HarnessError as error:
        fix = error.fix if isinstance(error, NotAttestedError) else ""
        return None, [stated("attested", error.message, run.seal, fix=fix)]
    findings = list(_truncated_before(run, attestation))
    for file in changed:
        required = f", attested: {file.attested}" if file.attested else "; the attestation does not list it"
        digest = f": {file.actual}" if file.actual else ""
        findings.append(
            stated("attested", f"{file.name} was {_SAID[file.state]}{digest}{required}", run.root / file.name)
        )
    return attestation, findings


def _truncated_before(run: RunDir, attestation: Attestation) -> Iterator[Finding]:
    """Yield a finding if the attestation lists a truncated log. It is signed when the log is complete."""
    log = run.accuracy_log
    if is_truncated(run) and attestation.files.get(log.name) == sha256_of(log):
        yield stated("attested", f"{log.name} was truncated before the attestation was signed", log, run.seal)


_SAID = {"changed": "changed after the run ended", "missing": "removed", "added": "added after the run ended"}


def _truncated_since(run: RunDir, changed: list[BrokenFile], stated: dict[str, str]) -> bool:
    """Check that accuracy.txt ends with the attested hash of the whole log, which the truncation tool appends."""
    names = {file.name for file in changed if file.state == "changed"}
    log, text = run.accuracy_log.name, run.accuracy_text.name
    if not {log, text} <= names:
        return False
    content = read_record(run.accuracy_text, "restore the accuracy.txt of the run")
    appended = _APPENDED_HASH.search(content)
    if appended is None or appended[1].decode() != stated[log]:
        return False
    return any(
        hashlib.sha256(before).hexdigest() == stated[text]
        for before in (content[: appended.start()], content[: appended.start()] + b"\n")
    )
