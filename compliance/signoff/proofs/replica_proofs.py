"""The replicas of one leg, held against its plan and against each other; what each counted: see record_facts.py.

Imbalance is honest: what shares a replica's cores, or a pause of its host, slows it. So a share of the work is never
more than a FLAG; the median time per token, which no pause moves, is more where all have devices of one kind.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from compliance.finding import Finding, fail, warn
from compliance.signoff.evidence import Evidence
from compliance.signoff.limits import CORES_SLACK_S, FASTER_FAIL, FEW_SAMPLES, REPLICA_FASTER_FLAG
from runs.numbers.replica_numbers import times_per_token_ns
from runs.record.manifest import Manifest
from runs.record.requests_log import RequestTable


def replicas(evidence: Evidence, manifest: Manifest, table: RequestTable, *, contended: bool) -> Iterator[Finding]:
    """All of it on a leg with its manifest and its record.

    Args:
        contended: whether others used the cores of the leg's machine.
    """
    planned = len(manifest.resolved.replicas.places) if manifest.resolved.replicas else 0
    known = set() if table.replica is None else set(table.replica.tolist())
    recorded = [record.get("replica") for record in manifest.replicas]
    if recorded != list(range(planned)) or not known <= set(recorded) or (recorded and not known):
        text = f"{planned} replicas were planned, {len(recorded)} are on record, {len(known)} answered: not the same"
        yield fail("P-4/record_incomplete", text, evidence.run.requests, replicas=planned)
    elif recorded and manifest.current:
        # Each policy gives the first queries to one replica after the other.
        if len(table) >= planned and (silent := set(recorded) - known):
            text = f"of {len(table)} queries replica {', '.join(map(str, sorted(silent)))} answered none"
            yield fail("P-4/silent_replica", text, evidence.run.requests, replicas=sorted(silent))
        yield from _speed(evidence, manifest, table, contended)
        yield from _cores(evidence, manifest)


def _cores(evidence: Evidence, manifest: Manifest) -> Iterator[Finding]:
    """P-3: none computed for longer than the cores of its host have been there."""
    took_s = ((manifest.end_time_ns or 0) - (manifest.start_time_ns or 0)) / 1e9
    hosts = {host["hostname"]: host for host in (manifest.host, *(node.host for node in manifest.resolved.nodes))}
    for record in manifest.replicas:
        cores = hosts.get(record["host"], {}).get("cores_logical")
        if cores is not None and record["cpu_s"] > cores * (took_s + CORES_SLACK_S):
            text = f"replica {record['replica']} used {record['cpu_s']:g} s of {cores} cores in {took_s:.1f} s"
            yield fail("P-3/reported_vs_raw_mismatch", text, evidence.run.manifest, replica=record["replica"])


def _speed(evidence: Evidence, manifest: Manifest, table: RequestTable, contended: bool) -> Iterator[Finding]:
    """H-5: none is faster than the others by more than its devices or cores explain."""
    records = manifest.replicas
    if len(records) < 2 or len(table) < FEW_SAMPLES * len(records):
        return
    sizes = [len(record["devices"] or record["cores"]) or 1 for record in records]
    times_ns = [times_per_token_ns(table, record["replica"]) for record in records]
    if all(len(one) >= FEW_SAMPLES for one in times_ns):
        speeds = [1 / max(float(np.median(one)), 1.0) for one in times_ns]
        yield from _fastest(
            evidence, "by its median time per token", speeds, sizes, certain=_alike(manifest, contended)
        )
    shares = [max(1.0, record["output_tokens"]) for record in records]
    yield from _fastest(evidence, "by the tokens it answered with", shares, sizes, certain=False)


def _fastest(
    evidence: Evidence, measure: str, speeds: Sequence[float], sizes: Sequence[int], *, certain: bool
) -> Iterator[Finding]:
    fastest = int(np.argmax(speeds))
    others, larger = (np.median(np.delete(one, fastest)) for one in (speeds, sizes))
    times = float(speeds[fastest] / others / max(1.0, sizes[fastest] / larger))  # more devices only excuse
    if times > REPLICA_FASTER_FLAG:
        make = fail if certain and times > FASTER_FAIL else warn
        text = f"{measure} replica {fastest} is {times:.1f} times as fast as the others, for its devices or cores"
        yield make("H-5/replica_too_fast", text, evidence.run.requests, replica=fastest, times=round(times, 3))


def _alike(manifest: Manifest, contended: bool) -> bool:
    """Whether all replicas have devices of one kind, or cores of one machine that nothing else used, by the record."""
    kind, plan = manifest.resolved.engine_record, manifest.resolved
    if kind.is_server:
        return False  # servers, of whose devices nothing is known
    if not any(record["devices"] for record in manifest.replicas):
        return not plan.nodes and not contended  # what else used the cores is known of the leg's machine only
    names = {row.get("name") for row in manifest.accelerator}
    return len(names) == 1 and None not in names
