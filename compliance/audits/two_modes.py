"""The legs of the audits that hold a performance leg against an accuracy leg, and what both read out of them."""

import secrets

import numpy as np

from compliance.audits.base import (
    PERFORMANCE_MODE,
    AuditRequest,
    AuditResult,
    LegArtifacts,
    LegPlanner,
    LegSpec,
    count_in_force,
    count_of,
    refuse_foreign_knobs,
    threshold_of,
)
from compliance.audits.test06 import Ids, dtype_of
from runs.benchmark import Mode
from runs.errors import ExecutionError, InputError
from runs.loadgen.accuracy_log import AccuracyEntry

DEFAULT_SAMPLES = 100
MOST_LOGGED = 1_000  # answers that LoadGen logs in the performance leg, chosen at random


def plan_legs(request: AuditRequest) -> LegPlanner:
    """An accuracy leg over all samples, and a performance leg with logged answers."""
    yield LegSpec("accuracy", "accuracy")
    samples = count_of(request, DEFAULT_SAMPLES)
    logged = min(samples, MOST_LOGGED)
    seed = secrets.randbits(63)  # which answers are looked at is not known beforehand
    yield LegSpec(
        "performance",
        settings={
            "mode": PERFORMANCE_MODE,
            "accuracy_log_rng_seed": seed,
            "accuracy_log_sampling_target": logged,
            "min_query_count": samples,
            "min_duration": 0,
            "max_duration": 0,
            "max_query_count": 0,
            "performance_issue_unique": 0,
            "performance_issue_same": 0,
            "sample_concatenate_permutation": 0,
        },
        in_force={
            "test_mode": "PerformanceOnly",
            "accuracy_log_rng_seed": seed,
            "accuracy_log_sampling_target": logged,
            **count_in_force(request.scenario, samples),
            "min_duration_ms": 0,
            "max_duration_ms": 0,
            "max_query_count": 0,
            "performance_issue_unique": False,
            "performance_issue_same": False,
            "sample_concatenate_permutation": False,
        },
        requested=samples,
    )


def accuracy_answers(leg: LegArtifacts) -> tuple[dict[int, AccuracyEntry], dict[int, Ids]]:
    """The first answer to each sample of the accuracy leg: as logged, and as ids.

    Raises:
        InputError: it is no accuracy leg.
        ExecutionError: it answered nothing.
    """
    if leg.detail.mode != "AccuracyOnly":
        raise InputError(f"{leg.run.root} is a {leg.detail.mode} run", "--ref must name an accuracy leg")
    first: dict[int, AccuracyEntry] = {}
    for entry in leg.entries:
        first.setdefault(entry.qsl_idx, entry)
    if not first:
        raise ExecutionError(f"{leg.run.accuracy_log} holds no answer", "run the accuracy leg again")
    return first, {entry.qsl_idx: ids for entry, ids in as_ids(leg, list(first.values()))}


def logged_answers(leg: LegArtifacts) -> list[tuple[AccuracyEntry, Ids]]:
    """The logged answers of a performance leg, maybe none.

    Raises:
        InputError: it is no performance leg.
    """
    if leg.detail.mode != "PerformanceOnly":
        raise InputError(f"{leg.run.root} is a {leg.detail.mode} run", "--run must name a performance leg")
    return as_ids(leg, leg.entries if leg.run.accuracy_log.exists() else [])


def as_ids(leg: LegArtifacts, entries: list[AccuracyEntry]) -> list[tuple[AccuracyEntry, Ids]]:
    """Entries with their ids as int64 numbers.

    Raises:
        ExecutionError: an answer is not made of whole ids.
    """
    dtype = dtype_of(entries)
    pairs = []
    for entry in entries:
        if len(entry.data) % dtype.itemsize:
            raise ExecutionError(
                f"{leg.run.accuracy_log}: sample {entry.qsl_idx} (seq_id {entry.seq_id}) has {len(entry.data)} bytes",
                "the log must hold int32 or int64 token ids",
            )
        pairs.append((entry, np.frombuffer(entry.data, dtype).astype(np.int64)))
    return pairs


class TwoModeAudit:
    """What audits of an accuracy leg and a performance leg have in common; they differ in `verify`."""

    name: str
    summary: str
    default_threshold: float
    official = False
    required = False
    knobs = frozenset({"samples", "threshold"})
    existing: tuple[Mode, Mode] | None = ("accuracy", "performance")

    def validate(self, request: AuditRequest) -> None:
        refuse_foreign_knobs(self, request)
        threshold_of(request, self.default_threshold)
        count_of(request, DEFAULT_SAMPLES)

    def legs(self, request: AuditRequest) -> LegPlanner:
        yield from plan_legs(request)

    def verify(self, request: AuditRequest, legs: list[LegArtifacts]) -> AuditResult:
        raise NotImplementedError
