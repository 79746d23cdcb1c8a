"""What audits share that compare a performance leg with an accuracy leg."""

import secrets
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from compliance.audits.base import PERFORMANCE, PERFORMANCE_MODE, AuditResult, AuditTest, LegSpec, requested_count
from compliance.audits.options import AuditOptions, AuditRequest, Logs, Share, audit_field
from compliance.judge.finding import Finding
from runs.benchmark import Mode
from runs.errors import ExecutionError, InputError

if TYPE_CHECKING:
    from compliance.audits.leg_artifacts import LegArtifacts
    from compliance.audits.logged_tokens import Ids
    from runs.loadgen.accuracy_log import AccuracyEntry

    Answers = list[tuple[AccuracyEntry, Ids]]  # as LoadGen logged them, and as ids

DEFAULT_SAMPLES = 100
MOST_LOGGED = 1_000  # answers that LoadGen logs in the performance leg, chosen at random


class TwoModeOptions(AuditOptions):
    samples: int | None = audit_field(None, "Responses of the performance run. Default: 100.", "N", ge=1)
    threshold: Share


Request = AuditRequest[TwoModeOptions]


class DrawnRequest(Request):
    """The request of an audit that was made."""

    log_seed: Any  # chose the answers that were logged; as LoadGen logged it


class TwoModeAudit(AuditTest[TwoModeOptions]):
    """An accuracy leg over all samples, and a performance leg with logged answers."""

    heading: str  # of its text
    existing = ("accuracy", "performance")

    def validate(self, request: Request) -> None:
        _samples(request)

    def recover(self, request: Request, logs: Logs, details: Mapping[str, Any]) -> Request:
        if PERFORMANCE not in logs:
            return request
        options = request.options.model_copy(update={"samples": requested_count(logs[PERFORMANCE])})
        return request.model_copy(update={"options": options})

    def as_drawn(self, request: Request, logs: Logs) -> Request:
        if PERFORMANCE not in logs:
            return request
        return DrawnRequest(**dict(request), log_seed=logs[PERFORMANCE].get("effective_accuracy_log_rng_seed"))

    def legs(self, request: Request) -> list[LegSpec]:
        samples = _samples(request)
        seed = request.log_seed if isinstance(request, DrawnRequest) else None
        settings = {
            "mode": PERFORMANCE_MODE,
            # so that nobody knows which answers will be logged
            "accuracy_log_rng_seed": secrets.randbits(63) if seed is None else seed,
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

    def verify(self, request: Request, legs: list["LegArtifacts"]) -> AuditResult:
        self.need(legs, 2)
        performance, threshold = legs[1], request.options.threshold
        # The first answer to each sample counts.
        answers = {entry.qsl_idx: ids for entry, ids in reversed(_answers(legs[0], "accuracy", "--ref"))}
        logged = _answers(performance, "performance", "--run")
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
        text = self.text_of(head, rule, (), checks)
        return self.result(checks, legs[:2], kept=checks[0].sentence, rule=rule, text=text, details=details)

    @abstractmethod
    def rule(self, threshold: float) -> str:
        """The rule as a text."""

    @abstractmethod
    def compare(
        self, answers: "dict[int, Ids]", logged: "Answers", performance: "LegArtifacts", threshold: float
    ) -> Iterator[Finding]:
        """Judge the performance leg; no finding without logged answers and a record of requests.

        Args:
            answers: the first to each sample of the accuracy leg.
            logged: the performance leg's, maybe none.
        """


def _samples(request: Request) -> int:
    return request.sample_count(request.options.samples, DEFAULT_SAMPLES)


def _answers(leg: "LegArtifacts", mode: Mode, option: str) -> "Answers":
    """The answers that a leg logged.

    Raises:
        InputError: it is of another mode.
        ExecutionError: an answer is not whole ids.
    """
    from compliance.audits.logged_tokens import as_ids, dtype_of
    from runs.record.leg import ACCURACY
    from runs.record.leg import PERFORMANCE as PERFORMANCE_RUN

    if leg.mode != {"accuracy": ACCURACY, "performance": PERFORMANCE_RUN}[mode]:
        wanted = "an accuracy leg" if mode == "accuracy" else "a performance leg"
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
