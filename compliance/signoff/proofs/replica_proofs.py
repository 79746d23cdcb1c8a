"""The replicas of one leg: did each answer, is each the same engine, and is none faster than its devices explain?

Imbalance is honest: what shares a replica's cores, or a pause of its host, slows it. So a share of the work is never
more than a FLAG; the median time per token, which no pause moves, is more where all have devices of one kind.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from compliance.finding import Finding, fail, warn
from compliance.signoff.evidence import Evidence, checks
from compliance.signoff.limits import FASTER_FAIL, FEW_SAMPLES, REPLICA_FASTER_FLAG
from runs.record.conditions import shown
from runs.record.manifest import Manifest
from runs.record.requests_log import NO_TIME, RequestTable


@checks("P-4", ("silent_replica", "error", "every replica answered queries"))
def replicas(evidence: Evidence, manifest: Manifest, table: RequestTable, *, contended: bool) -> Iterator[Finding]:
    """All of it on a leg with its manifest and its record.

    Args:
        contended: whether others used the cores of the leg's machine.
    """
    if table.replica is None or not manifest.replicas:
        return
    # Each policy gives the first queries to one replica after the other.
    silent = {record.replica for record in manifest.replicas} - set(table.replica.tolist())
    if silent and len(table) >= len(manifest.replicas):
        text = f"of {len(table)} queries replica {', '.join(map(str, sorted(silent)))} answered none"
        yield fail("P-4/silent_replica", text, evidence.run.requests, replicas=sorted(silent))
    yield from _one_engine(evidence, manifest)
    yield from _speed(evidence, manifest, table, contended)


@checks("P-7", ("replicas_differ", "error", "every replica loaded the weights of the record"))
def _one_engine(evidence: Evidence, manifest: Manifest) -> Iterator[Finding]:
    """P-7: every replica has the weights of the leg."""
    hashes = manifest.model.sha256
    for record in manifest.replicas:
        expected = {file: hashes.get(file) for file in record.weights_sha256}
        if record.weights_sha256 != expected:
            text = f"weights of replica {record.replica} ({record.host}): {shown(record.weights_sha256, 80)}"
            text += f", of the leg {shown(expected, 80)}"
            yield fail("P-7/replicas_differ", text, evidence.run.manifest, replica=record.replica)


def _speed(evidence: Evidence, manifest: Manifest, table: RequestTable, contended: bool) -> Iterator[Finding]:
    """H-5: none is faster than the others by more than its devices or cores explain."""
    records = manifest.replicas
    if len(records) < 2 or len(table) < FEW_SAMPLES * len(records):
        return
    sizes = [len(record.devices or record.cores) or 1 for record in records]
    times_ns = [times_per_token_ns(table, record.replica) for record in records]
    if all(len(one) >= FEW_SAMPLES for one in times_ns):
        speeds = [1 / max(float(np.median(one)), 1.0) for one in times_ns]
        yield from _fastest(
            evidence, "by its median time per token", speeds, sizes, certain=_alike(manifest, contended)
        )
    shares = [max(1.0, float(table.output_tokens[table.replica == record.replica].sum())) for record in records]
    yield from _fastest(evidence, "by the tokens it answered with", shares, sizes, certain=False)


def times_per_token_ns(table: RequestTable, replica: int) -> NDArray[np.float64]:
    """The time per output token behind the first, for each answer of a replica that has several."""
    several = (table.replica == replica) & (table.first_token_ns != NO_TIME) & (table.output_tokens > 1)
    spans_ns = (table.complete_ns - table.first_token_ns)[several]
    return np.asarray(spans_ns / (table.output_tokens[several] - 1), np.float64)


@checks("H-5", ("replica_too_fast", "error", "no replica is faster than the others by more than its devices explain"))
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
    kind, plan = manifest.plan.engine_record, manifest.plan
    if kind.is_server:
        return False  # servers, of whose devices nothing is known
    if not any(record.devices for record in manifest.replicas):
        return not plan.nodes and not contended  # what else used the cores is known of the leg's machine only
    names = {row.get("name") for row in manifest.observed.accelerators}
    return len(names) == 1 and None not in names
