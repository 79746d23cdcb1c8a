"""Contradictions between a leg's logs and its own record: manifest.json and the hash in accuracy.txt."""

import re
from collections.abc import Iterator
from pathlib import Path

from compliance.evidence.whole_record import record_is_whole
from compliance.finding import Finding, fail
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from runs.loadgen.accuracy_log import TRUNCATION_MARK
from runs.loadgen.detail_log import DetailLog
from runs.reading import read_record
from runs.record.layout import RunDir
from runs.record.leg import ACCURACY, LOG_HASHES, PERFORMANCE, FinishedLeg
from runs.record.manifest import Manifest

_HASH_LINE = re.compile(r"^hash=([0-9a-fA-F]{64})\s*$", re.MULTILINE)


def is_truncated(run: RunDir) -> bool:
    """Was the middle of the accuracy log taken out for submission?"""
    path = run.accuracy_log
    return path.is_file() and path.stat().st_size < 64 * 1024 and bool(TRUNCATION_MARK.search(read_record(path, "")))


def hash_in_accuracy_text(text: str, path: Path) -> str | None:
    """The untruncated accuracy log's SHA-256, which the truncation tool appends to accuracy.txt.

    Raises:
        InputError: several different ones.
    """
    found = {digest.lower() for digest in _HASH_LINE.findall(text)}
    if len(found) > 1:
        fix = "keep the one of this leg's accuracy log"
        raise InputError(f"{path} has several different hash= lines", fix, path=path)
    return found.pop() if found else None


def record_contradictions(leg: FinishedLeg, accuracy_text: str | None) -> Iterator[Finding]:
    """What a leg's manifest says and its logs do not."""
    manifest, detail = leg.manifest, leg.detail
    if manifest is None:
        if leg.run.seal.is_file() and not leg.foreign:
            yield fail("record-seal", f"{leg.run.manifest.name} is missing beside a seal", leg.run.manifest)
        return
    yield from _hashes(leg, manifest, accuracy_text)
    yield from record_is_whole(leg.run, manifest)
    for sentence in _of_another_leg(manifest, detail):
        yield fail("record-manifest", sentence, leg.run.manifest)


def _of_another_leg(manifest: Manifest, detail: DetailLog) -> Iterator[str]:
    plan = manifest.resolved
    modes = {"performance": PERFORMANCE, "accuracy": ACCURACY}
    for name, recorded, logged in (
        ("LoadGen scenario", plan.loadgen_scenario, detail.scenario),
        ("sample count", plan.sample_count, detail.integer("qsl_reported_total_count")),
    ):
        if recorded != logged:
            yield f"manifest.json has {name} {recorded}, the detail log {logged}"
    for name, told, planned in (
        ("data set", manifest.dataset.get("sha256"), plan.dataset_sha256),
        ("rows of the data set", manifest.dataset.get("rows_used"), plan.sample_count),
        ("engine", manifest.engine.get("name"), plan.engine),
    ):
        if told != planned:
            yield f"manifest.json has {name} {told}, and planned {planned}"
    if plan.loadgen_key not in BENCHMARKS:
        yield f"manifest.json has the benchmark {plan.loadgen_key[:40]!r}, which there is not"
    if not plan.audit and modes[plan.mode] != detail.mode:
        yield f"manifest.json has mode {plan.mode}, the detail log {detail.mode}"
    for name in ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed"):
        seed = manifest.loadgen_settings.get(name)
        if seed is not None and seed != detail.get(f"effective_{name}"):
            yield f"manifest.json has {name} {seed}, the detail log {detail.get(f'effective_{name}')}"


def _hashes(leg: FinishedLeg, manifest: Manifest, accuracy_text: str | None) -> Iterator[Finding]:
    run, found = leg.run, leg.hashes
    recorded = manifest.observed.get(LOG_HASHES)
    if not isinstance(recorded, dict):
        return
    for name, digest in recorded.items():
        if name == run.accuracy_log.name and is_truncated(run):
            said = hash_in_accuracy_text(accuracy_text or "", run.accuracy_text)
            if said is not None and said != digest:
                text = f"accuracy.txt has hash={said}, manifest.json {digest} for {name}"
                yield fail("record-hash", text, run.accuracy_text)
        elif name not in found:
            yield fail("record-hash", f"{name} is missing, manifest.json has its hash", run.root / name)
        elif found[name] != digest:
            text = f"{name} was changed, or is another run's: SHA-256 {found[name]}, manifest.json has {digest}"
            yield fail("record-hash", text, run.root / name)
