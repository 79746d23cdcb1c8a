"""Audits that hold a performance leg against an accuracy leg: its answers, and their lengths.

output_consistency (the idea of TEST01): are performance answers the ones that the accuracy score was given for?
output_length (the idea of TEST09): performance answers are as long as those of the accuracy leg, within 10 %.
"""

import secrets
from abc import abstractmethod
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np

from compliance.audits.base import (
    PERFORMANCE_MODE,
    AuditRequest,
    AuditResult,
    AuditTest,
    LegArtifacts,
    LegPlanner,
    LegSpec,
    asked_count,
    count_of,
    in_force,
    threshold_of,
)
from compliance.audits.test06 import Ids, dtype_of
from compliance.finding import AUDIT_AGAIN, OURS, Finding, applied, decides
from runs.errors import ExecutionError, InputError
from runs.loadgen.accuracy_log import AccuracyEntry
from runs.loadgen.detail_log import DetailLog

DEFAULT_SAMPLES = 100
MOST_LOGGED = 1_000  # answers that LoadGen logs in the performance leg, chosen at random
# An answer that differs does so at any place, half of it on average; twice that again for chance.
DIFFERENT_ANSWERS_PER_TOKEN = 4
NAMED_IN_MESSAGES = 3
PERFORMANCE = "performance"  # the label of the leg whose answers are looked at


class TwoModeAudit(AuditTest):
    """An accuracy leg over all samples, and a performance leg with logged answers."""

    default_threshold: float
    knobs = frozenset({"samples", "threshold"})
    existing = ("accuracy", "performance")

    def validate(self, request: AuditRequest) -> None:
        super().validate(request)
        threshold_of(request, self.default_threshold)
        count_of(request, DEFAULT_SAMPLES)

    def drawn(self, request: AuditRequest, logs: Mapping[str, DetailLog]) -> AuditRequest:
        seed = logs[PERFORMANCE].integer("effective_accuracy_log_rng_seed") if PERFORMANCE in logs else None
        return request.model_copy(update={"log_seed": seed})

    def asked(self, request: AuditRequest, logs: Mapping[str, DetailLog], told: Mapping[str, Any]) -> AuditRequest:
        samples = asked_count(logs[PERFORMANCE]) if PERFORMANCE in logs else None
        return self.drawn(request, logs).model_copy(update={"samples": samples})

    def legs(self, request: AuditRequest) -> LegPlanner:
        yield LegSpec("accuracy", "accuracy")
        samples = count_of(request, DEFAULT_SAMPLES)
        logged = min(samples, MOST_LOGGED)
        # which answers are looked at is not known beforehand
        seed = secrets.randbits(63) if request.log_seed is None else request.log_seed
        settings = {
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
        }
        effective = in_force(settings, request.scenario)
        yield LegSpec(PERFORMANCE, settings=settings, in_force=effective, requested=samples)

    def verify(self, request: AuditRequest, legs: list[LegArtifacts]) -> AuditResult:
        self.need(legs, 2)
        accuracy, performance = legs[:2]
        return self.compare(accuracy, performance, threshold_of(request, self.default_threshold))

    @abstractmethod
    def compare(self, accuracy: LegArtifacts, performance: LegArtifacts, threshold: float) -> AuditResult:
        """Judge the two legs."""

    def told(
        self, legs: tuple[LegArtifacts, LegArtifacts], checks: list[Finding], heading: str, rule: str, **others: Any
    ) -> AuditResult:
        """The outcome, with a text of our own under a heading."""
        passed = all(check.passed for check in checks)
        lines = [f"{heading} check pass: {passed}", f"rule: {rule}", *(f"check: {check}" for check in checks), ""]
        return self.result(checks, legs, rule=rule, text="\n".join(lines), **others)


class OutputConsistency(TwoModeAudit):
    name = "output_consistency"
    summary = "Answers of a performance leg are those of the accuracy leg, token by token."
    # Share of tokens from the first difference on. Greedy answers depend a little on what else is in the batch: one
    # rounding decides a near tie, and everything after it differs. docs/audits.md has what was measured.
    default_threshold = 0.05

    def compare(self, accuracy: LegArtifacts, performance: LegArtifacts, threshold: float) -> AuditResult:
        entries, answers = accuracy_answers(accuracy)
        logged = logged_answers(performance)
        checks: list[Finding] = []
        if logged:
            checks.append(_tokens(logged_ids=[(e.qsl_idx, ids) for e, ids in logged], answers=answers, limit=threshold))
        if performance.run.requests.exists():
            digests = {index: sha256(ids.astype("<i4").tobytes()).hexdigest() for index, ids in answers.items()}
            checks.append(_answers(performance, digests, DIFFERENT_ANSWERS_PER_TOKEN * threshold))
            checks.append(_own_record(performance))
        if not checks:
            raise ExecutionError(
                f"{performance.run.root} has neither logged answers nor a requests.jsonl",
                "run the audit's own legs with --scenario, or log answers with --audit-conf",
            )
        rule = (
            f"of the tokens of each logged performance answer, those before the first difference to the accuracy leg's "
            f"answer to the same sample; over all answers at least {1 - threshold:.4g} of the longer answers' tokens; "
            f"and by their hashes at least {1 - DIFFERENT_ANSWERS_PER_TOKEN * threshold:.4g} of all answers equal"
        )
        return self.told(
            (accuracy, performance),
            checks,
            "Output consistency",
            rule,
            kept=checks[0].sentence,
            text_name="verify_accuracy.txt",
            details={"threshold": threshold, "logged_answers": len(logged), "accuracy_answers": len(entries)},
        )


class OutputLength(TwoModeAudit):
    name = "output_length"
    summary = "Mean output length of a performance leg within 10 % of the accuracy leg's."
    default_threshold = 0.10

    @decides(
        "audit",
        ("length-samples", "error", OURS, "both legs answered the same samples", AUDIT_AGAIN),
        ("length-mean", "error", OURS, "performance answers are as long as the accuracy leg's", AUDIT_AGAIN),
    )  # fmt: skip
    def compare(self, accuracy: LegArtifacts, performance: LegArtifacts, threshold: float) -> AuditResult:
        _, answers = accuracy_answers(accuracy)
        issued = _lengths(performance)
        unknown = sorted({index for index, _ in issued} - answers.keys())
        found = float(np.mean([length for _, length in issued]))
        # A performance leg may issue some samples often and others never: the same ones are compared.
        same = [len(answers[index]) for index, _ in issued if index in answers]
        expected = float(np.mean(same)) if same else 0.0
        ratio = found / expected if expected else float("inf")
        checks = [
            applied(
                "length-samples",
                "samples of the performance leg",
                not unknown,
                f"{len(unknown)} are not in the accuracy leg" + (f" (samples {unknown[:3]})" if unknown else ""),
                "all in the accuracy leg",
                performance.run.root,
            ),
            applied(
                "length-mean",
                "mean output length",
                1 - threshold <= ratio <= 1 + threshold,
                f"{found:.2f} tokens over {len(issued):,} answers, {ratio:.4f} of the accuracy leg's",
                f"{1 - threshold:.4g} to {1 + threshold:.4g} of {expected:.2f} tokens (same samples)",
                performance.run.root,
            ),
        ]
        rule = f"mean output tokens of the performance leg within ± {threshold:g} of the accuracy leg's, same samples"
        return self.told(
            (accuracy, performance),
            checks,
            "Output length",
            rule,
            kept=checks[-1].sentence,
            text_name="verify_output_len.txt",
            details={
                "threshold": threshold,
                "performance_mean_tokens": found,
                "accuracy_mean_tokens": expected,
                "accuracy_mean_tokens_all": float(np.mean([len(ids) for ids in answers.values()])),
                "ratio": ratio if ratio != float("inf") else None,
            },
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


def agreed_tokens(one: Ids, other: Ids) -> int:
    """Length of the common start of two lists of ids."""
    both = min(len(one), len(other))
    different = np.flatnonzero(one[:both] != other[:both])
    return int(different[0]) if len(different) else both


@decides(
    "audit",
    ("consistency-tokens", "error", OURS, "performance answers are the accuracy leg's, by tokens", AUDIT_AGAIN),
)  # fmt: skip
def _tokens(logged_ids: list[tuple[int, Ids]], answers: dict[int, Ids], limit: float) -> Finding:
    agreed = total = 0
    different = []
    for index, ids in logged_ids:
        expected = answers.get(index)
        common = agreed_tokens(ids, expected) if expected is not None else 0
        longer = max(len(ids), len(expected) if expected is not None else 0)
        agreed += common
        total += longer
        if common < longer:
            where = f"from token {common}" if expected is not None else "not in the accuracy leg"
            different.append(f"sample {index} {where}")
    share = agreed / total if total else 0.0
    passed, where = share >= 1 - limit, "; ".join(different[:NAMED_IN_MESSAGES])
    found = f"{share:.4f} of {total:,} ({len(different)} of {len(logged_ids)} answers differ)"
    return applied(
        "consistency-tokens",
        "tokens equal up to the first difference",
        passed,
        found if passed else f"{found} ({where})",
        f"at least {1 - limit:.4g}",
        share=share,
    )


@decides(
    "audit",
    ("consistency-hashes", "error", OURS, "performance answers are the accuracy leg's, by hashes", AUDIT_AGAIN),
)  # fmt: skip
def _answers(performance: LegArtifacts, digests: dict[int, str], limit: float) -> Finding:
    table = performance.requests
    pairs = zip(table.sample_index.tolist(), table.output_sha256, strict=True)
    different = [index for index, digest in pairs if digests.get(index) != digest]
    total = len(table)
    share = 1 - len(different) / total if total else 0.0
    passed, found = total > 0 and share >= 1 - limit, f"{share:.4f} of all {total:,}"
    return applied(
        "consistency-hashes",
        "answers equal, by hash",
        passed,
        found if passed else f"{found} (samples {different[:NAMED_IN_MESSAGES]})",
        f"at least {1 - limit:.4g}",
        performance.run.requests,
        share=share,
    )


@decides(
    "audit",
    ("consistency-record", "error", OURS, "LoadGen's log and our record tell of the same answers", AUDIT_AGAIN),
)  # fmt: skip
def _own_record(performance: LegArtifacts) -> Finding:
    """LoadGen's log and our record tell of the same answers."""
    table = performance.requests
    recorded = dict(zip(table.seq.tolist(), table.output_sha256, strict=True))
    wrong = [e.seq_id for e in performance.entries if recorded.get(e.seq_id) != sha256(e.data).hexdigest()]
    found = f"{len(wrong)} of {len(performance.entries)} differ"
    return applied(
        "consistency-record",
        "logged answers are the recorded ones",
        not wrong,
        f"{found} (seq_id {wrong[:NAMED_IN_MESSAGES]})" if wrong else found,
        "none",
        performance.run.requests,
    )


def _lengths(performance: LegArtifacts) -> list[tuple[int, int]]:
    """(sample index, output tokens) of each answer: from our record of all requests, else from the logged ones."""
    logged = logged_answers(performance)
    if performance.run.requests.exists():
        table = performance.requests
        pairs = list(zip(table.sample_index.tolist(), table.output_tokens.tolist(), strict=True))
    else:
        pairs = [(entry.qsl_idx, len(ids)) for entry, ids in logged]
    if not pairs:
        raise ExecutionError(
            f"{performance.run.root} has no output lengths: no requests.jsonl, and no logged answer",
            "run the audit's own legs with --scenario, or log answers with --audit-conf",
        )
    return pairs
