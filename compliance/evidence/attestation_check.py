"""Is a finished run's directory whole, and as it was when the run ended?"""

import hashlib
import re
from collections.abc import Iterator

from compliance.judge.check import decides
from compliance.judge.finding import Finding, fail
from compliance.judge.rule import OURS
from runs.errors import InputError
from runs.reading import read_record
from runs.record.attestation import Attestation, BrokenFile, broken_files, read_attestation
from runs.record.finished_run import FinishedRun
from runs.record.layout import RunDir

# What the official truncation tool appends to accuracy.txt. [tools/submission/truncate_accuracy_log.py]
_APPENDED_HASH = re.compile(rb"\n?hash=([0-9a-f]{64})\n?$")


def _no_attestation(run: FinishedRun) -> str:
    there = run.manifest is not None or (run.dir.seal.is_file() and not run.foreign)
    return "" if there else f"there is no {run.dir.seal.name}"


@decides("contradiction", applies=_no_attestation, also=("attested",))
def unchanged(run: FinishedRun) -> Iterator[Finding]:
    """Is the manifest of a run whole? Of a run of another harness there is none."""
    if run.manifest is not None:
        yield from attested(run.dir)
    elif run.dir.seal.is_file() and not run.foreign:
        yield fail("attested", f"{run.dir.manifest.name} is missing beside {run.dir.seal.name}", run.dir.manifest)


@decides(
    "contradiction",
    ("attested", "error", OURS, "the files are those of the statement that the run signed at its end",
     "give the run's own files, all of them as it left them"),
)  # fmt: skip
def attested(run: RunDir) -> list[Finding]:
    """Is the statement of a run signed, and are its files those that were stated?"""
    return read_and_attested(run)[1]


def read_and_attested(run: RunDir) -> tuple[Attestation | None, list[Finding]]:
    """The same, with the statement; None where it cannot be read."""
    try:
        attestation = read_attestation(run)
        broken = list(broken_files(run, attestation))
        if _truncated_since(run, broken, attestation.files):
            broken = [one for one in broken if one.name not in (run.accuracy_log.name, run.accuracy_text.name)]
    except InputError as error:
        return None, [fail("attested", error.message, run.seal)]
    findings = []
    for one in broken:
        stated = f", stated: {one.stated}" if one.stated else ", and the statement has no such file"
        found = f": SHA-256 {one.found}" if one.found else ""
        findings.append(fail("attested", f"{one.name} was {_SAID[one.state]}{found}{stated}", run.root / one.name))
    return attestation, findings


_SAID = {"changed": "changed after the run ended", "missing": "removed", "added": "added after the run ended"}


def _truncated_since(run: RunDir, broken: list[BrokenFile], stated: dict[str, str]) -> bool:
    """Were log and text changed by the official truncation alone? The text then ends with the stated log's hash."""
    names = {one.name for one in broken if one.state == "changed"}
    log, text = run.accuracy_log.name, run.accuracy_text.name
    if not {log, text} <= names:
        return False
    content = read_record(run.accuracy_text, "give the run's own accuracy.txt")
    appended = _APPENDED_HASH.search(content)
    if appended is None or appended[1].decode() != stated[log]:
        return False
    return any(
        hashlib.sha256(before).hexdigest() == stated[text]
        for before in (content[: appended.start()], content[: appended.start()] + b"\n")
    )
