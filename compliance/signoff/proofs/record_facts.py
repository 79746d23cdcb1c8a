"""P-3, P-4, P-5 and P-7: what the manifest says of a leg, and what LoadGen, the engine and the requests do."""

import re
from collections.abc import Iterator

from compliance.evidence.told_twice import Fact
from compliance.signoff.evidence import Evidence
from compliance.signoff.leg_conditions import asked_options
from runs.loadgen.detail_log import SIX_DIGITS
from runs.loadgen.given import never_logged
from runs.numbers.replica_numbers import replica_numbers
from runs.reading import open_record
from runs.record.engine_log import CORES
from runs.record.manifest import Manifest
from runs.record.official_inputs import OTHER_WEIGHTS
from runs.record.requests_log import RequestTable

_TRACE_PID = re.compile(rb'"ph":"X","pid":(\d+),')
_ENGINE = "P-7/engine_contradicts_record"
# Where LoadGen's log has another name for a setting.
_LOGGED_AS = {"mode": "test_mode", "ttft_latency": "server_ttft_latency", "tpot_latency": "server_tpot_latency"}


def facts_of_process(evidence: Evidence, manifest: Manifest) -> Iterator[Fact]:
    """LoadGen, the engine and our own record ran in one process, with these settings and options."""
    run, detail, log, plan = evidence.run, evidence.detail, evidence.engine_log, manifest.resolved
    replicas = {record.get("pid") for record in manifest.replicas}
    of_engine = replicas or {manifest.pid}
    for path, pids, ours in (
        (run.detail, detail.pids, {manifest.pid}),
        (run.engine_log, log.main_pids, of_engine),
        (run.trace, _trace_pids(evidence), {manifest.pid}),
    ):
        if pids:
            yield Fact("P-5/foreign_file", "process", path, sorted(pids), sorted(ours))
    version = str(detail.get("loadgen_version", "")).split()[:1]
    yield Fact("P-5/foreign_file", "LoadGen's version", run.detail, version, [manifest.loadgen.get("version") or ""])
    if run.audit_config.exists() != plan.audit:
        yield Fact("P-5/foreign_file", "audit.config is there", run.audit_config, not plan.audit, plan.audit)
    configuration, in_force = (manifest.engine.get(name) or {} for name in ("configuration", "in_force"))
    for name, value in log.configuration.items():
        record = configuration.get(name, "not recorded")
        yield Fact(_ENGINE, name, run.engine_log, value, record, line=log.configuration_line)
    if log.versions:
        told = sorted(log.versions.intersection((manifest.engine.get("versions") or {}).values()))
        yield Fact(_ENGINE, "version", run.engine_log, sorted(log.versions), told, line=log.configuration_line)
    if manifest.current and not plan.nodes:  # of a cluster Ray may have the words
        here = {record["replica"]: record["pid"] for record in manifest.replicas}
        yield Fact("P-5/foreign_file", "replicas", run.engine_log, log.replicas, here)
    environments = [record["environment"] for record in manifest.replicas if manifest.current]
    if log.cores:
        bound = {one.get(CORES) for one in environments or [configuration.get("environment") or {}]} - {None}
        yield Fact(_ENGINE, CORES, run.engine_log, sorted(log.cores), sorted(bound or log.cores))
    for name, asked in plan.engine_options.items():
        value = in_force.get(name, configuration.get(name, asked))
        # "auto" leaves the choice to the engine, and what its configuration does not show is told as a sentence.
        if isinstance(asked, int | float) and isinstance(value, int | float | None):
            yield Fact(_ENGINE, f"{name} in force", run.manifest, value, asked)
    for name, asked in asked_options(manifest).items():
        if name in plan.engine_options:
            yield Fact(_ENGINE, f"{name} asked for", run.manifest, asked, plan.engine_options[name])
    if log.model is not None:
        yield Fact("P-7/other_model", "model", run.engine_log, log.model, plan.model_path, line=log.configuration_line)
    if log.load_format in OTHER_WEIGHTS:
        asked = str(plan.engine_options.get("load_format", "auto")).lower()
        yield Fact(_ENGINE, "load_format", run.engine_log, log.load_format, asked, line=log.configuration_line)
    known = {f"requested_{_LOGGED_AS.get(name, name)}" for name in manifest.loadgen_settings}
    for key in detail.values.keys() - known:
        if key.startswith("requested_"):
            yield Fact("P-7/settings_contradict_record", key, run.manifest, None, detail.get(key))
    unlogged = never_logged(detail.scenario)
    for name, given in manifest.loadgen_settings.items():
        logged = detail.get(f"requested_{_LOGGED_AS.get(name, name)}")
        if logged is not None or not name.startswith(unlogged):
            yield Fact("P-7/settings_contradict_record", name, run.detail, logged, given, SIX_DIGITS)


def _trace_pids(evidence: Evidence) -> set[int]:
    if not evidence.run.trace.is_file():
        return set()
    with open_record(evidence.run.trace, "give the leg's own trace") as lines:  # which was read before, by line
        return {int(pid) for line in lines for pid in _TRACE_PID.findall(line)}


def facts_of_requests(evidence: Evidence, manifest: Manifest, table: RequestTable) -> Iterator[Fact]:
    """What was counted, by the leg, the heartbeat and each replica; each replica is the engine of the record."""
    run, tokens = evidence.run, evidence.progress.get("output_tokens")
    completed = manifest.observed.get("samples_completed")
    if completed is not None:
        yield Fact("P-4/record_incomplete", "requests", run.requests, len(table), completed)
    if tokens is not None:
        yield Fact("P-4/tokens_changed", "output tokens", run.progress, tokens, int(table.output_tokens.sum()))
    if table.replica is None or not manifest.current:
        return
    plan, hashes = manifest.resolved, manifest.model["sha256"]
    here = plan.engine_record.runs_model and plan.engine_record.computes_here
    for record in manifest.replicas:
        name = f"of replica {record['replica']} ({record['host']})"
        for counted, value in replica_numbers(table, record["replica"]).items():
            yield Fact("P-3/reported_vs_raw_mismatch", f"{counted} {name}", run.manifest, record[counted], value)
        weights = record["weights_sha256"]
        known = {file: hashes.get(file) for file in weights or (hashes if here else ())}
        for what, told, ours in (
            ("versions", record["versions"], manifest.engine["versions"]),
            ("options in force", record["in_force"], manifest.engine["in_force"]),
            ("software", record["software"], manifest.replicas[0]["software"]),
            ("weights", weights, known),
        ):
            yield Fact("P-7/replicas_differ", f"{what} {name}", run.manifest, told, ours)
