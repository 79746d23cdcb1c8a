"""Is a finished leg's directory whole, and as it was when the leg ended?"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from compliance.evidence.told_twice import Fact, contradicted
from compliance.finding import OURS, Finding, applied, decides, fail
from runs.errors import InputError
from runs.reading import read_record
from runs.record.attestation import BrokenFile, broken_files, read_attestation
from runs.record.layout import RunDir
from runs.record.manifest import SCHEMA_VERSION, Manifest
from runs.record.progress import read_last_progress

# What the official truncation tool appends to accuracy.txt. [tools/submission/truncate_accuracy_log.py]
_APPENDED_HASH = re.compile(rb"\n?hash=([0-9a-f]{64})\n?$")


@decides(
    "official",
    ("record-version", "error", OURS, "the leg's record is of this version, sealed and whole",
     "run the leg again with this version"),
)  # fmt: skip
@decides(
    "contradiction",
    ("attested", "error", OURS, "the files are those of the statement that the leg signed at its end",
     "give the leg's own files, all of them as it left them"),
    ("record-progress", "error", OURS, "the last heartbeat is of this leg, whole and done",
     "give the leg's own files, all of them as it left them"),
)  # fmt: skip
def record_is_whole(run: RunDir, manifest: Manifest) -> Iterator[Finding]:
    """Every file as the leg's statement has it, and the last heartbeat of this leg.

    A leg of an older version is judged as far as it goes: `record-version` tells of it.
    """
    if not manifest.current:
        said = f"a record of version {manifest.schema_version}"
        yield applied("record-version", "version of the record", False, said, f"{SCHEMA_VERSION}", run.manifest)
    if not manifest.sealed:
        return
    yield from attested(run)
    yield from _progress(run, manifest)


def attested(run: RunDir) -> Iterator[Finding]:
    """Is the statement of a leg signed, and are its files those that were stated?"""
    try:
        attestation = read_attestation(run)
        broken = list(broken_files(run, attestation))
        if _truncated_since(run, broken, attestation.files):
            broken = [one for one in broken if one.name not in (run.accuracy_log.name, run.accuracy_text.name)]
    except InputError as error:
        yield fail("attested", error.message, run.seal)
        return
    for one in broken:
        stated = f", stated: {one.stated}" if one.stated else ", and the statement has no such file"
        found = f": SHA-256 {one.found}" if one.found else ""
        yield fail("attested", f"{one.name} was {_SAID[one.state]}{found}{stated}", run.root / one.name)


_SAID = {"changed": "changed after the leg ended", "missing": "removed", "added": "added after the leg ended"}


def _truncated_since(run: RunDir, broken: list[BrokenFile], stated: dict[str, str]) -> bool:
    """Were log and text changed by the official truncation alone? The text then ends with the stated log's hash."""
    names = {one.name for one in broken if one.state == "changed"}
    log, text = run.accuracy_log.name, run.accuracy_text.name
    if not {log, text} <= names:
        return False
    content = read_record(run.accuracy_text, "give the leg's own accuracy.txt")
    appended = _APPENDED_HASH.search(content)
    if appended is None or appended[1].decode() != stated[log]:
        return False
    return any(
        hashlib.sha256(before).hexdigest() == stated[text]
        for before in (content[: appended.start()], content[: appended.start()] + b"\n")
    )


def _progress(run: RunDir, manifest: Manifest) -> Iterator[Finding]:
    try:
        progress = read_last_progress(run.progress)
    except InputError as error:
        yield fail("record-progress", error.message, run.progress)
        return
    expected = {
        "phase": "done",
        "pid": manifest.pid,
        "scenario": manifest.resolved.scenario,
        "mode": manifest.resolved.mode,
        "completed": manifest.observed["samples_completed"],
        "issued": manifest.observed["samples_issued"],
        "error": None,
    }
    if manifest.current:
        expected |= _as_expected(manifest)
    rows = (Fact("record-progress", name, run.progress, getattr(progress, name), expected[name]) for name in expected)
    yield from contradicted(rows)


def _as_expected(manifest: Manifest) -> dict[str, Any]:
    """What a heartbeat told its reader to expect, and what else it has of the record."""
    plan, settings, observed = manifest.resolved, manifest.loadgen_settings, manifest.observed
    performance, server = plan.mode == "performance", plan.loadgen_scenario == "Server"
    unknown = plan.audit or (performance and plan.scenario == "SingleStream")  # decided by its settings, or its speed
    return {
        "expected": None if unknown else observed["samples_issued"],
        "min_duration_s": settings["min_duration_ms"] / 1e3 if performance else None,
        "ttft_limit_ms": settings["ttft_latency"] / 1e6 if server else None,
        "tpot_limit_ms": settings["tpot_latency"] / 1e6 if server else None,
        "loop_lag": observed["loop_lag"],
        "stage": "",
    }
