"""Audits that compare a performance leg with an accuracy leg: its answers, and their lengths.

output_consistency (the idea of TEST01): performance answers are the ones that were scored.
output_length (the idea of TEST09): performance answers are as long as those of the accuracy leg, within 10 %.
"""

import secrets
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import numpy as np

from compliance.audits.base import (
    NAMED_IN_MESSAGES,
    PERFORMANCE,
    PERFORMANCE_MODE,
    AuditRequest,
    AuditResult,
    AuditTest,
    LegArtifacts,
    LegSpec,
    requested_count,
    text_of,
)
from compliance.audits.test06 import Ids, as_ids, dtype_of
from compliance.judge.check import decides
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import AUDIT_AGAIN, OURS
from runs.benchmark import Scenario
from runs.errors import ExecutionError, InputError
from runs.loadgen.accuracy_log import AccuracyEntry
from runs.loadgen.detail_log import DetailLog
from runs.record.leg import ACCURACY
from runs.record.leg import PERFORMANCE as PERFORMANCE_RUN

DEFAULT_SAMPLES = 100
MOST_LOGGED = 1_000  # answers that LoadGen logs in the performance leg, chosen at random
# On average half of a differing answer is after the first difference; doubled for chance.
DIFFERENT_ANSWERS_PER_TOKEN = 4

Answers = list[tuple[AccuracyEntry, Ids]]  # as LoadGen logged them, and as ids


class TwoModeAudit(AuditTest):
    """An accuracy leg over all samples, and a performance leg with logged answers."""

    heading: str  # of its text
    default_threshold: float
    knobs = frozenset({"samples", "threshold"})
    existing = ("accuracy", "performance")

    def validate(self, request: AuditRequest) -> None:
        super().validate(request)
        request.threshold_or(self.default_threshold)
        request.samples_or(DEFAULT_SAMPLES)

    def recover(self, scenario: Scenario, logs: Mapping[str, DetailLog], details: Mapping[str, Any]) -> dict[str, Any]:
        return {"samples": requested_count(logs[PERFORMANCE])} if PERFORMANCE in logs else {}

    def legs(self, request: AuditRequest) -> list[LegSpec]:
        samples = request.samples_or(DEFAULT_SAMPLES)
        settings = {
            "mode": PERFORMANCE_MODE,
            # so that nobody knows which answers will be logged
            "accuracy_log_rng_seed": secrets.randbits(63) if request.log_seed is None else request.log_seed,
            "accuracy_log_sampling_target": min(samples, MOST_LOGGED),
            "min_query_count": samples,
            "min_duration": 0,
            "max_duration": 0,
            "max_query_count": 0,
            "performance_issue_unique": 0,
            "performance_issue_same": 0,
            "sample_concatenate_permutation": 0,
        }
        return [
            LegSpec("accuracy", "accuracy"),
            LegSpec(PERFORMANCE, settings=settings, scenario=request.scenario, requested=samples),
        ]

    def verify(self, request: AuditRequest, legs: list[LegArtifacts]) -> AuditResult:
        self.need(legs, 2)
        performance, threshold = legs[1], request.threshold_or(self.default_threshold)
        # The first answer to each sample counts.
        answers = {entry.qsl_idx: ids for entry, ids in reversed(_answers(legs[0], ACCURACY, "--ref"))}
        logged = _answers(performance, PERFORMANCE_RUN, "--run")
        if not answers:
            raise ExecutionError(f"{legs[0].run.accuracy_log} has no answer", "run the accuracy leg again")
        checks = list(self.compare(answers, logged, performance, threshold))
        if not checks:
            raise ExecutionError(
                f"{performance.run.root} has neither logged answers nor a requests.jsonl",
                "run the audit's own legs with --scenario, or log answers with --audit-conf",
            )
        rule = self.rule(threshold)
        head = f"{self.heading} check pass: {all(check.passed for check in checks)}\n"
        details = {"threshold": threshold, "logged_answers": len(logged), "accuracy_answers": len(answers)}
        text = text_of(self, head, rule, (), checks)
        return self.result(checks, legs[:2], kept=checks[0].sentence, rule=rule, text=text, details=details)

    @abstractmethod
    def rule(self, threshold: float) -> str:
        """The rule as a text."""

    @abstractmethod
    def compare(
        self, answers: dict[int, Ids], logged: Answers, performance: LegArtifacts, threshold: float
    ) -> Iterator[Finding]:
        """Judge the performance leg; no finding without logged answers and a record of requests.

        Args:
            answers: the first to each sample of the accuracy leg.
            logged: the performance leg's, maybe none.
        """


class OutputConsistency(TwoModeAudit):
    name = "output_consistency"
    heading, text_name = "Output consistency", "verify_accuracy.txt"
    # Share of tokens from the first difference on. Greedy answers depend a little on what else is in the batch: one
    # rounding decides a near tie, and everything after it differs. docs/audits.md has what was measured.
    default_threshold = 0.05

    def rule(self, threshold: float) -> str:
        return (
            "of the tokens of each logged performance answer, those before the first difference to the accuracy leg's "
            f"answer to the same sample; over all answers at least {1 - threshold:.4g} of the longer answers' tokens; "
            f"and by their hashes at least {1 - DIFFERENT_ANSWERS_PER_TOKEN * threshold:.4g} of all answers equal"
        )

    @decides(
        "audit",
        ("consistency-tokens", "error", OURS, "performance answers are the accuracy leg's, by tokens", AUDIT_AGAIN),
        ("consistency-hashes", "error", OURS, "performance answers are the accuracy leg's, by hashes", AUDIT_AGAIN),
        ("consistency-record", "error", OURS, "LoadGen's log and our record have the same answers", AUDIT_AGAIN),
    )  # fmt: skip
    def compare(
        self, answers: dict[int, Ids], logged: Answers, performance: LegArtifacts, threshold: float
    ) -> Iterator[Finding]:
        if logged:
            yield _tokens(logged, answers, 1 - threshold)
        if not performance.run.requests.exists():
            return
        table, where = performance.request_table, performance.run.requests
        digests = {index: sha256(ids.astype("<i4").tobytes()).hexdigest() for index, ids in answers.items()}
        pairs = zip(table.sample_index.tolist(), table.output_sha256, strict=True)
        different = [index for index, digest in pairs if digests.get(index) != digest]
        share, least = 1 - len(different) / max(1, len(table)), 1 - DIFFERENT_ANSWERS_PER_TOKEN * threshold
        passed, found = len(table) > 0 and share >= least, f"{share:.4f} of all {len(table):,}"
        found += "" if passed else f" (samples {different[:NAMED_IN_MESSAGES]})"
        name = "answers equal, by hash"
        yield compared("consistency-hashes", name, passed, found, f"at least {least:.4g}", where, share=share)
        recorded = dict(zip(table.seq.tolist(), table.output_sha256, strict=True))
        wrong = [one.seq_id for one in performance.entries if recorded.get(one.seq_id) != sha256(one.data).hexdigest()]
        found = f"{len(wrong)} of {len(performance.entries)} differ"
        found += f" (seq_id {wrong[:NAMED_IN_MESSAGES]})" if wrong else ""
        yield compared("consistency-record", "logged answers are the recorded ones", not wrong, found, "none", where)


def _tokens(logged: Answers, answers: dict[int, Ids], least: float) -> Finding:
    agreed = total = 0
    different = []
    for entry, ids in logged:
        expected = answers.get(entry.qsl_idx, ids[:0])
        both, longer = min(len(ids), len(expected)), max(len(ids), len(expected))
        places = np.flatnonzero(ids[:both] != expected[:both])
        common = int(places[0]) if len(places) else both
        agreed += common
        total += longer
        if common < longer:
            where = f"from token {common}" if entry.qsl_idx in answers else "not in the accuracy leg"
            different.append(f"sample {entry.qsl_idx} {where}")
    share = agreed / total if total else 0.0
    found = f"{share:.4f} of {total:,} ({len(different)} of {len(logged)} answers differ)"
    if share < least:
        found += f" ({'; '.join(different[:NAMED_IN_MESSAGES])})"
    name = "tokens equal up to the first difference"
    return compared("consistency-tokens", name, share >= least, found, f"at least {least:.4g}", share=share)


class OutputLength(TwoModeAudit):
    name = "output_length"
    heading, text_name = "Output length", "verify_output_len.txt"
    default_threshold = 0.10

    def rule(self, threshold: float) -> str:
        return f"mean output tokens of the performance leg within ± {threshold:g} of the accuracy leg's, same samples"

    @decides(
        "audit",
        ("length-mean", "error", OURS, "performance answers are as long as the accuracy leg's", AUDIT_AGAIN),
        ("length-samples", "error", OURS, "both legs answered the same samples", AUDIT_AGAIN),
    )  # fmt: skip
    def compare(
        self, answers: dict[int, Ids], logged: Answers, performance: LegArtifacts, threshold: float
    ) -> Iterator[Finding]:
        issued = [(entry.qsl_idx, len(ids)) for entry, ids in logged]
        if performance.run.requests.exists():
            table = performance.request_table
            issued = list(zip(table.sample_index.tolist(), table.output_tokens.tolist(), strict=True))
        if not issued:
            return
        found = float(np.mean([length for _, length in issued]))
        # A performance leg may issue some samples often and others never, so the same ones are compared.
        same = [len(answers[index]) for index, _ in issued if index in answers]
        expected = float(np.mean(same)) if same else 0.0
        ratio = found / expected if expected else float("inf")
        yield compared(
            "length-mean",
            "mean output length",
            1 - threshold <= ratio <= 1 + threshold,
            f"{found:.2f} tokens over {len(issued):,} answers, {ratio:.4f} of the accuracy leg's",
            f"{1 - threshold:.4g} to {1 + threshold:.4g} of {expected:.2f} tokens (same samples)",
            performance.run.root,
            mean_tokens=found,
            accuracy_mean_tokens=expected,
        )
        unknown = sorted({index for index, _ in issued} - answers.keys())
        text = f"{len(unknown)} are not in the accuracy leg" + (f" (samples {unknown[:3]})" if unknown else "")
        name, where = "samples of the performance leg", performance.run.root
        yield compared("length-samples", name, not unknown, text, "all in the accuracy leg", where)


def _answers(leg: LegArtifacts, mode: str, option: str) -> Answers:
    """The answers that a leg logged.

    Raises:
        InputError: it is of another mode.
        ExecutionError: an answer is not whole ids.
    """
    if leg.mode != mode:
        wanted = "an accuracy leg" if mode == ACCURACY else "a performance leg"
        raise InputError(f"{leg.run.root} is a {leg.detail.mode} run", f"{option} must name {wanted}")
    entries = leg.entries if leg.run.accuracy_log.exists() else []
    dtype = dtype_of(entries)
    answers = []
    for entry in entries:
        ids = as_ids(entry.data, dtype)
        if ids is None:
            raise ExecutionError(
                f"{leg.run.accuracy_log}: sample {entry.qsl_idx} (seq_id {entry.seq_id}) has {len(entry.data)} bytes",
                "the log must have int32 or int64 token ids",
            )
        answers.append((entry, ids))
    return answers
