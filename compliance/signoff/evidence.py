"""The raw files of the legs that are signed off, each read once. Nothing here writes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from compliance.signoff.engine_log import EngineLog, read_engine_log
from compliance.signoff.mllog_shape import LogShape, read_shape
from compliance.signoff.reasons import Reason, fail
from compliance.verify.accuracy import ScoreSources, verify_accuracy
from compliance.verify.legs import ACCURACY, PERFORMANCE, Leg, find_results
from compliance.verify.part import Part
from compliance.verify.performance import verify_performance
from compliance.verify.record import log_hashes
from qsl.bundled import bundled_dataset
from runs.accuracy_log import AccuracyEntry, read_accuracy_log
from runs.detail_log import DetailLog
from runs.errors import HarnessError, InputError
from runs.files import sha256_of
from runs.layout import RunDir
from runs.manifest import Manifest, read_manifest
from runs.requests_log import RequestTable, read_requests
from runs.timeline import Timeline, timeline
from runs.trace_log import Trace, read_trace

# Messages about a file that is not there.
_LACKING = re.compile(r"\.(txt|json|jsonl) is missing|has no accuracy\.txt")


@dataclass
class Evidence:
    """One leg. `part` is what `main.py verify` says of it; None when that could not judge it."""

    leg: Leg
    part: Part | None = None
    reasons: list[Reason] = field(default_factory=list)

    @property
    def run(self) -> RunDir:
        return self.leg.run

    @property
    def detail(self) -> DetailLog:
        return self.leg.detail

    @property
    def manifest(self) -> Manifest | None:
        return self.leg.manifest

    @property
    def is_performance(self) -> bool:
        return self.leg.mode == PERFORMANCE

    @property
    def complete(self) -> bool:
        """All raw files are there and could be read: its numbers can be derived."""
        return self.part is not None and self.manifest is not None and self.requests is not None

    @cached_property
    def requests(self) -> RequestTable | None:
        return read_requests(self.run.requests) if self.run.requests.is_file() else None

    @cached_property
    def trace(self) -> Trace | None:
        found = read_trace(self.run.trace) if self.run.trace.is_file() else None
        return found if found is not None and len(found) else None

    @cached_property
    def entries(self) -> list[AccuracyEntry]:
        return read_accuracy_log(self.run.accuracy_log)

    @cached_property
    def shape(self) -> LogShape:
        return read_shape(self.run.detail)

    @cached_property
    def engine_log(self) -> EngineLog:
        return read_engine_log(self.run.engine_log) if self.run.engine_log.is_file() else EngineLog()

    @cached_property
    def hashes(self) -> dict[str, str]:
        return log_hashes(self.run)

    @cached_property
    def progress(self) -> dict[str, Any]:
        """progress.json; empty where there is none."""
        try:
            content = orjson.loads(self.run.progress.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return {}
        return content if isinstance(content, dict) else {}

    @cached_property
    def times(self) -> Timeline:
        """Per-sample times of a performance leg, by `runs.timeline`."""
        if self.requests is None:
            raise InputError(f"{self.run.requests} is missing", "give the run directory whole")
        return timeline(self.detail, self.requests, self.trace)


def require_directory(path: Path, option: str) -> None:
    """A path that the user mistyped is no missing evidence.

    Raises:
        InputError: it is no directory.
    """
    if not path.is_dir():
        said = "is no directory" if path.exists() else "does not exist"
        raise InputError(f"{option} {path} {said}", "name a directory")


def load(paths: Sequence[Path], sources: ScoreSources | None = None) -> tuple[list[Evidence], list[Reason]]:
    """The legs in some directories, and why others cannot be judged.

    Args:
        paths: run directories, or directories with performance/run_1 and accuracy in them.
        sources: what answers are scored with; else what the manifests name.
    """
    legs: list[Evidence] = []
    reasons: list[Reason] = []
    for path in paths:
        if crashed := _crashed(RunDir(path)):
            reasons.append(crashed)
            continue
        try:
            results = find_results([path])
        except HarnessError as error:
            reasons.append(fail("P-1", "missing_raw", error.message, path))
            continue
        for result in results:
            if result.error is not None:
                reasons.append(_unreadable(result.error, path))
            legs += [Evidence(leg) for leg in result.legs]
    for evidence in legs:
        _judge(evidence, sources)
    return legs, reasons


def _crashed(run: RunDir) -> Reason | None:
    """A leg whose own record says that it did not end well (G-10)."""
    try:
        manifest = read_manifest(run.manifest)
    except HarnessError:
        return None
    if manifest.status == "finished" and manifest.error is None and manifest.exit_code in (0, 1):
        return None
    said = manifest.error.get("message", "") if manifest.error else ""
    text = f"the leg did not finish: status {manifest.status}, exit code {manifest.exit_code} {said}".rstrip()
    return fail("G-10", "crashed", text, run.manifest, exit_code=manifest.exit_code)


def _judge(evidence: Evidence, sources: ScoreSources | None) -> None:
    """Have the leg's numbers derived again by `compliance.verify`."""
    try:
        if evidence.is_performance:
            evidence.part = verify_performance(evidence.leg)
        elif evidence.leg.mode == ACCURACY:
            evidence.part = verify_accuracy(evidence.leg, sources or _sources(evidence.leg))
        _ = evidence.requests, evidence.trace, evidence.shape
    except (HarnessError, OSError) as error:
        evidence.part = None
        evidence.reasons.append(_unreadable(error, evidence.run.root))


def _unreadable(error: HarnessError | OSError, where: Path) -> Reason:
    """Why a file could not be read: it is not there, or not whole."""
    message = error.message if isinstance(error, HarnessError) else str(error)
    return fail("P-1", "missing_raw" if _LACKING.search(message) else "damaged_raw", message, where)


def _sources(leg: Leg) -> ScoreSources:
    """What answers are scored with: what the manifest names; the bundled articles also where they lie elsewhere now."""
    manifest = leg.manifest
    if manifest is None or Path(manifest.resolved.dataset_path).is_file():
        return ScoreSources()
    try:
        bundled = bundled_dataset(manifest.resolved.model_path)
        if sha256_of(bundled) == manifest.resolved.dataset_sha256:
            return ScoreSources(dataset_path=bundled)
    except (HarnessError, OSError):
        pass
    return ScoreSources()
