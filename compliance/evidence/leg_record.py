"""Contradictions between a leg's logs and its own record: manifest.json and the hash in accuracy.txt."""

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compliance.accuracy.accuracy_verdict import AccuracyVerdict, accuracy_text, read_scores, scores_record
from compliance.evidence.told_twice import Fact, contradicted
from compliance.evidence.whole_record import record_is_whole
from compliance.finding import OURS, Finding, decides, fail
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from runs.loadgen.accuracy_log import TRUNCATION_MARK
from runs.loadgen.summary_log import unprinted
from runs.loadgen.written import unchanged_sources, unlike_loadgen
from runs.numbers.result import Result, read_result
from runs.reading import read_record
from runs.record.engine_records import BESIDE_LOADGEN, DEFAULT_ENGINE
from runs.record.layout import RunDir
from runs.record.leg import ACCURACY, LOG_HASHES, PERFORMANCE, FinishedLeg
from runs.record.manifest import BASELINE, LegPlan, Manifest, ReplicaPlace
from runs.record.manifest_parts import absent_fields
from runs.record.observed import query_times_of
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


@decides(
    "contradiction",
    ("record-manifest", "error", OURS, "manifest.json and the logs are of one leg",
     "give the leg's own files, all of them as it left them"),
)  # fmt: skip
def record_contradictions(leg: FinishedLeg, scores_text: str | None) -> Iterator[Finding]:
    """What a leg's manifest says and its logs do not."""
    manifest = leg.manifest
    if manifest is None:
        if leg.run.seal.is_file() and not leg.foreign:
            yield fail("attested", f"{leg.run.manifest.name} is missing beside {leg.run.seal.name}", leg.run.manifest)
        return
    yield from contradicted(_hashes(leg, manifest, scores_text))
    yield from record_is_whole(leg.run, manifest)
    yield from contradicted(_facts(leg, manifest))
    if manifest.resolved.loadgen_key not in BENCHMARKS:
        text = f"manifest.json has the benchmark {manifest.resolved.loadgen_key[:40]!r}, which there is not"
        yield fail("record-manifest", text, leg.run.manifest)
    if not manifest.current:
        return
    if unlike := list(unlike_loadgen(leg.detail)):
        text = f"{leg.run.detail.name} is not as LoadGen writes it: {', '.join(unlike[:4])}"
        yield fail("log-settings", text, leg.run.detail, unlike=unlike)
    for text in unprinted(leg.summary, leg.detail, known=unchanged_sources(leg.detail) is True):
        yield fail("log-summary", text, leg.run.summary, leg.run.detail)


def _facts(leg: FinishedLeg, manifest: Manifest) -> Iterator[Fact]:
    plan, detail, file = manifest.resolved, leg.detail, leg.run.manifest
    modes = {"performance": PERFORMANCE, "accuracy": ACCURACY}
    pairs: list[tuple[str, Any, Any]] = [
        ("LoadGen scenario", plan.loadgen_scenario, detail.scenario),
        ("sample count", plan.sample_count, detail.integer("qsl_reported_total_count")),
        ("a system over a network", bool(plan.engine_options.get("network_sut")), detail.is_network),
        ("sample count", plan.sample_count, detail.get("qsl_reported_performance_count", plan.sample_count)),
    ]
    if not plan.audit:
        pairs.append(("mode", modes[plan.mode], detail.mode))
    seeds = {name: manifest.loadgen_settings.get(name) for name in _SEEDS}
    pairs += [(name, seed, detail.get(f"effective_{name}")) for name, seed in seeds.items() if seed is not None]
    for name, told, record in (*pairs, *(_told_twice(manifest) if manifest.current else ())):
        yield Fact("record-manifest", name, file, told, record)


def _told_twice(manifest: Manifest) -> Iterator[tuple[str, Any, Any]]:
    """(name, as it was told elsewhere in the record, as it was planned)."""
    plan, dataset = manifest.resolved, manifest.dataset
    yield "data set", dataset["sha256"], plan.dataset_sha256
    yield "data set at", dataset["path"], plan.dataset_path
    yield "rows of the data set", dataset["rows_used"], plan.sample_count
    yield "longest prompt", dataset["longest_prompt_tokens"], plan.longest_prompt_tokens
    yield "model", manifest.model["folder"] or manifest.model["name"], plan.model_path
    yield "files of the model", bool(manifest.model["sha256"]), manifest.model["folder"] is not None
    yield "revision", manifest.model["revision"] or Path(plan.model_path).name, Path(plan.model_path).name
    yield "LoadGen", manifest.software.get("mlcommons-loadgen"), manifest.loadgen["version"]
    yield "software without a version", sorted(set(BESIDE_LOADGEN) - manifest.software.keys()), []
    for software in [node.software for node in plan.nodes] or [manifest.software]:
        lacking = sorted(set(plan.engine_record.software) - software.keys())
        yield "software of the engine without a version", lacking, []
    yield "rejected connections", manifest.observed["rejected_connections"] is None, plan.replicas is None
    yield from _engine_told_twice(manifest)
    yield from _asked(manifest)


def _engine_told_twice(manifest: Manifest) -> Iterator[tuple[str, Any, Any]]:
    plan, engine = manifest.resolved, manifest.engine
    yield "engine", engine["name"], plan.engine
    asked, kind = engine["asked"], plan.engine_record
    if kind.shows_in_force:
        yield (
            "options asked of the engine",
            sorted(asked.keys() - {"model"}),
            sorted(plan.engine_options.keys() - {*kind.hidden_options}),
        )
    for name, value in asked.items() if kind.shows_in_force else ():
        planned = plan.engine_options.get(name, plan.model_path if name == "model" else value)
        if not isinstance(planned, dict | list):  # which are written in several ways
            yield f"{name} asked of the engine", value, planned
    yield "model in force", engine["in_force"].get("model", plan.model_path), plan.model_path
    for name in engine["configuration"].keys() & engine["in_force"].keys():
        yield f"{name} in force", engine["in_force"][name], engine["configuration"][name]
    for place in ("configuration", "in_force"):
        told = engine[place].get("enable_prefix_caching", engine["prefix_caching"])
        yield f"prefix caching by engine.{place}", told, engine["prefix_caching"]
    warm_up = engine["warm_up"].get("prompts", 0)
    yield "prompts of the warm-up", min(warm_up, plan.warmup_prompts) if plan.compiles else warm_up, plan.warmup_prompts
    eager = engine["configuration"].get("device") == "cpu" and plan.engine_options.get("enforce_eager") is True
    yield "compiles", plan.compiles, plan.engine_record.prints_configuration and not eager
    yield from _places(manifest)
    software = manifest.replicas[0]["software"] if manifest.replicas else manifest.software
    versions = {name: version for name, version in engine["versions"].items() if name in software}
    yield "versions of the engine", versions, {name: software[name] for name in versions}
    if plan.engine_record.computes_here:
        yield "a version of the engine", bool(versions), True
    times = query_times_of(manifest.observed["engine"])
    if times is not None and times.queries:
        yield "queries that the engine timed", times.queries, manifest.observed["samples_completed"]


def _places(manifest: Manifest) -> Iterator[tuple[str, Any, Any]]:
    """Each replica is where it was planned, a process of its own, with the software that is on record of its host."""
    plan = manifest.resolved
    processes: set[tuple[int | None, Any]] = {(None, manifest.parent_pid), (None, manifest.pid)}
    if not manifest.replicas:
        told = manifest.engine["configuration"].get("environment", {})
        yield "variables of the engine", *_variables(plan, plan.environment, told)
    for record, place in zip(manifest.replicas, plan.replicas.places if plan.replicas else (), strict=False):
        node, name = None if place.node is None else plan.nodes[place.node], f"of replica {record['replica']}"
        host = manifest.host if node is None else node.host
        yield f"host {name}", record["host"], host.get("hostname")
        if node is None:
            yield f"devices {name}", record["devices"], place.devices
        yield f"number of devices {name}", len(record["devices"]), len(place.devices)  # a cluster chooses which
        yield f"cores {name}", record["cores"], place.cores
        software = (node or manifest).software  # a node's with Ray, which a replica does without
        yield f"software {name}", record["software"], {key: software[key] for key in software if key != "ray"}
        yield f"variables {name}", *_variables(plan, place.environment, record["environment"])
        if not plan.engine_record.is_server:
            yield f"variables of the place {name}", *_devices(place)
        processes.add((place.node, record["pid"]))
    yield "processes", len(processes), 2 + len(manifest.replicas)
    places = plan.replicas.places if plan.replicas else ()
    taken = [(place.node, one) for place in places for one in (*place.devices, *place.cores)]
    yield "devices or cores of one replica alone", len(set(taken)), len(taken)


def _variables(plan: LegPlan, planned: dict[str, str], told: dict[str, str]) -> tuple[list[str], list[str]]:
    """Names of the engine's own variables that are on record, and that have to be; the user's may have other values."""
    prefix, others = plan.engine_record.variable_prefix, plan.engine_record.other_variables
    wanted = {name for name in planned if prefix and name.startswith(prefix)}
    return sorted(told), sorted(wanted | {name for name in told if prefix and name.startswith((prefix, *others))})


def _devices(place: ReplicaPlace) -> tuple[list[str], list[str]]:
    """What its variables show a replica, and the devices that are its own."""
    return sorted(set(place.variables.values())), [",".join(place.devices)] if place.devices else []


def _asked(manifest: Manifest) -> Iterator[tuple[str, Any, Any]]:
    """What the user asked for, with the defaults of what need not be asked for: the tree's README has the command."""
    plan, asked, official = manifest.resolved, manifest.asked, BENCHMARKS.get(manifest.resolved.loadgen_key)
    yield "engine asked for", asked.get("engine") or DEFAULT_ENGINE, plan.engine
    yield "benchmark asked for", asked.get("lg_model_name") or plan.loadgen_key, plan.loadgen_key
    yield "model asked for", asked.get("model_path") or plan.model_path, manifest.model["name"]
    yield "scenario asked for", asked.get("scenario"), plan.scenario
    yield "accuracy asked for", bool(asked.get("accuracy")), plan.mode == "accuracy"
    yield "trace asked for", bool(asked.get("enable_log_trace")), plan.trace
    yield "audit asked for", bool(asked.get("audit_conf")), plan.audit
    yield "samples asked for", asked.get("total_sample_count") or plan.sample_count, plan.sample_count
    yield "technique asked for", asked.get("mechanism") or BASELINE, manifest.mechanism
    admission = [asked.get(name) for name in ("admission", "admission_tokens", "admission_queries")]
    planned = [None] * 3 if plan.admission is None else list(plan.admission.model_dump().values())
    yield "admission asked for", [None if one == "off" else one for one in admission], planned
    places = [] if plan.replicas is None else plan.replicas.places
    if str(count := asked.get("replicas")).isdecimal():  # else as many as there are devices, which may be one
        yield "replicas asked for", str(count), str(len(places))
    if asked.get("cluster"):
        yield "a cluster asked for", True, bool(plan.nodes)
    setting = {"Server": "server_target_qps", "Offline": "offline_expected_qps"}.get(plan.loadgen_scenario)
    if setting is not None and (rate := asked.get("target_qps")) is not None:
        given = manifest.loadgen_settings[setting]
        near = isinstance(rate, int | float) and abs(rate - given) <= 1e-6 * given
        yield "target_qps asked for", given if near else rate, given
    if official is not None:
        changed = asked.get("sampling_arg") or {}
        sampling = asdict(official.sampling[plan.mode]) | (changed if isinstance(changed, dict) else {"": changed})
        yield "sampling asked for", sampling, plan.sampling
    yield from told_twice(manifest)


# Texts for people, which change from version to version; and what no other file than the manifest tells.
_NOT_COMPARED = {"notes", "reasons", "disagreements", "loop_lag"}


@decides(
    "contradiction",
    ("record-result", "error", OURS, "result.json says what the logs say", "give the leg's own result.json"),
)  # fmt: skip
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
    if manifest.current:
        for name, one, other in (
            ("reasons", bool(recorded.reasons), recorded.verdict == "INVALID"),
            ("disagreements", bool(recorded.disagreements), False),
            ("loop_lag", recorded.loop_lag and recorded.loop_lag.model_dump(), manifest.observed["loop_lag"]),
        ):
            yield from contradicted([Fact("record-result", name, path, one, other)])
    if manifest.current and leg.is_performance and (manifest.exit_code == 0) != (result.verdict == "VALID"):
        text = f"manifest.json has the exit code {manifest.exit_code}, the logs are {result.verdict}"
        yield fail("record-result", text, leg.run.manifest, leg.run.detail)


def scores_beside(leg: FinishedLeg, verdict: AccuracyVerdict) -> Iterator[Finding]:
    """Are accuracy.txt and accuracy.json what is written of these answers, scored again?"""
    if leg.manifest is None or not leg.manifest.current:
        return
    rule, run = "accuracy-text-differs", leg.run
    both = read_scores(run), scores_record(verdict)
    known = all(scores.target is not None for scores in both)  # not at hand everywhere
    kept = {"metric", "scores", *(("target", "checks") if known else ())}
    record, expected = (scores.model_dump(include=kept) for scores in both)
    written = _HASH_LINE.sub("", read_record(run.accuracy_text, "").decode()).strip()
    facts = [Fact(rule, name, run.accuracy_json, record[name], expected[name]) for name in record]
    yield from contradicted([*facts, Fact(rule, "text", run.accuracy_text, written, accuracy_text(verdict).strip())])


def _hashes(leg: FinishedLeg, manifest: Manifest, scores_text: str | None) -> Iterator[Fact]:
    run, found, recorded = leg.run, leg.hashes, manifest.observed.get(LOG_HASHES)
    for name, digest in recorded.items() if isinstance(recorded, dict) else ():
        if name != run.accuracy_log.name or not is_truncated(run):
            yield Fact("record-hash", f"SHA-256 of {name}", run.root / name, found.get(name), digest)
        elif said := hash_in_accuracy_text(scores_text or "", run.accuracy_text):
            yield Fact("record-hash", f"hash= of {name}", run.accuracy_text, said, digest)
