"""Contradictions between a leg's logs and its own record: manifest.json and the hash in accuracy.txt."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compliance.evidence.told_twice import Fact, contradicted
from compliance.evidence.whole_record import record_is_whole
from compliance.finding import Finding, fail
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from runs.loadgen.accuracy_log import TRUNCATION_MARK
from runs.numbers.result import Result, read_result
from runs.reading import read_record
from runs.record.layout import RunDir
from runs.record.leg import ACCURACY, LOG_HASHES, PERFORMANCE, FinishedLeg
from runs.record.manifest import Manifest
from runs.record.manifest_parts import absent_fields
from runs.record.servers import told_twice

_SEEDS = ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed")
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
    manifest = leg.manifest
    if manifest is None:
        if leg.run.seal.is_file() and not leg.foreign:
            yield fail("record-seal", f"{leg.run.manifest.name} is missing beside a seal", leg.run.manifest)
        return
    yield from contradicted(_hashes(leg, manifest, accuracy_text))
    yield from record_is_whole(leg.run, manifest)
    yield from contradicted(_facts(leg, manifest))
    if manifest.resolved.loadgen_key not in BENCHMARKS:
        text = f"manifest.json has the benchmark {manifest.resolved.loadgen_key[:40]!r}, which there is not"
        yield fail("record-manifest", text, leg.run.manifest)


def _facts(leg: FinishedLeg, manifest: Manifest) -> Iterator[Fact]:
    plan, detail, file = manifest.resolved, leg.detail, leg.run.manifest
    modes = {"performance": PERFORMANCE, "accuracy": ACCURACY}
    pairs: list[tuple[str, Any, Any]] = [
        ("LoadGen scenario", plan.loadgen_scenario, detail.scenario),
        ("sample count", plan.sample_count, detail.integer("qsl_reported_total_count")),
        ("a system over a network", bool(plan.engine_options.get("network_sut")), detail.is_network),
    ]
    if not plan.audit:
        pairs.append(("mode", modes[plan.mode], detail.mode))
    seeds = {name: manifest.loadgen_settings.get(name) for name in _SEEDS}
    pairs += [(name, seed, detail.get(f"effective_{name}")) for name, seed in seeds.items() if seed is not None]
    for name, told, record in (*pairs, *(_told_twice(manifest) if manifest.current else ())):
        yield Fact("record-manifest", name, file, told, record)
    if manifest.chosen_rate is not None:
        rate = detail.get("requested_server_target_qps")
        yield Fact("record-manifest", "chosen target_qps", file, manifest.chosen_rate.target_qps, rate, 1e-4)


def _told_twice(manifest: Manifest) -> Iterator[tuple[str, Any, Any]]:
    """(name, as it was told elsewhere in the record, as it was planned)."""
    plan, dataset, asked = manifest.resolved, manifest.dataset, manifest.asked
    yield "data set", dataset["sha256"], plan.dataset_sha256
    yield "data set at", dataset["path"], plan.dataset_path
    yield "rows of the data set", dataset["rows_used"], plan.sample_count
    yield "longest prompt", dataset["longest_prompt_tokens"], plan.longest_prompt_tokens
    yield "engine", manifest.engine["name"], plan.engine
    yield "the choice of a rate", manifest.chosen_rate is not None, plan.rate_choice is not None
    # What the user asked for, with the defaults of what need not be asked for: the tree's README has the command.
    yield "scenario asked for", asked.get("scenario"), plan.scenario
    yield "accuracy asked for", bool(asked.get("accuracy")), plan.mode == "accuracy"
    yield "trace asked for", bool(asked.get("enable_log_trace")), plan.trace
    yield "audit asked for", bool(asked.get("audit_conf")), plan.audit
    yield "samples asked for", asked.get("total_sample_count") or plan.sample_count, plan.sample_count
    yield "technique asked for", asked.get("mechanism") or manifest.mechanism, manifest.mechanism
    yield "admission asked for", asked.get("admission", "off") != "off", plan.admission is not None
    if asked.get("replicas") or asked.get("cluster"):
        yield "replicas asked for", True, plan.replicas is not None
    sampling = asked.get("sampling_arg")
    yield from told_twice(manifest)
    yield "sampling asked for", {**plan.sampling, **(sampling if isinstance(sampling, dict) else {})}, plan.sampling


# Texts for people, which change from version to version; and what the leg's process saw, which the manifest has.
_NOT_COMPARED = {"notes", "reasons", "disagreements", "loop_lag"}


def result_record(leg: FinishedLeg, result: Result) -> Iterator[Finding]:
    """Does result.json, written when the leg ended, still say what the logs say, and the leg's exit code as well?"""
    manifest, path = leg.manifest, leg.run.result
    if manifest is None:
        return
    if not path.is_file():
        if manifest.current:
            yield fail("record-result", f"there is no {path.name}", path)
        return
    recorded = read_result(path)
    if manifest.current and (absent := list(absent_fields(recorded))):
        yield fail("record-result", f"{path.name} has no {', '.join(absent)}", path)
    for name in Result.model_fields.keys() - _NOT_COMPARED:
        if getattr(recorded, name) != getattr(result, name):
            yield fail("record-result", f"{path.name} has another {name} than the logs", path, number=name)
    if manifest.current and leg.is_performance and (manifest.exit_code == 0) != (result.verdict == "VALID"):
        text = f"manifest.json has the exit code {manifest.exit_code}, the logs are {result.verdict}"
        yield fail("record-result", text, leg.run.manifest, leg.run.detail)


def _hashes(leg: FinishedLeg, manifest: Manifest, accuracy_text: str | None) -> Iterator[Fact]:
    run, found, recorded = leg.run, leg.hashes, manifest.observed.get(LOG_HASHES)
    for name, digest in recorded.items() if isinstance(recorded, dict) else ():
        if name != run.accuracy_log.name or not is_truncated(run):
            yield Fact("record-hash", f"SHA-256 of {name}", run.root / name, found.get(name), digest)
        elif said := hash_in_accuracy_text(accuracy_text or "", run.accuracy_text):
            yield Fact("record-hash", f"hash= of {name}", run.accuracy_text, said, digest)
