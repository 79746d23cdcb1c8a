"""Base class of audits that compare a performance run with an accuracy run."""

import secrets
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from compliance.audits.base import PERFORMANCE, PERFORMANCE_MODE, AuditResult, AuditTest, RunSpec, requested_count
from compliance.audits.options import AuditOptions, AuditRequest, Logs, Share, audit_field
from compliance.judge.verdict import Finding
from runs.benchmark import Mode
from runs.errors import ExecutionError, InputError

if TYPE_CHECKING:
    from compliance.audits.logged_tokens import Ids
    from compliance.audits.run_artifacts import RunArtifacts
    from runs.loadgen.accuracy_log import AccuracyEntry

    Responses = list[tuple[AccuracyEntry, Ids]]  # log entries, and their token IDs

DEFAULT_SAMPLES = 100
MAX_LOGGED = 1_000  # maximum number of randomly chosen responses that LoadGen logs in the performance run


class TwoModeOptions(AuditOptions):
    samples: int | None = audit_field(None, "Number of samples of the performance run. Default: 100.", "N", ge=1)
    threshold: Share


ModesRequest = AuditRequest[TwoModeOptions]


class DrawnRequest(ModesRequest):
    """The request of a finished audit, with the random seed that its log shows."""

    log_seed: Any  # random seed that selected the logged responses, from LoadGen's log


class TwoModeAudit(AuditTest[TwoModeOptions]):
    """An audit with an accuracy run over all samples and a performance run with logged responses."""

    heading: str  # heading of the text file
    existing = ("accuracy", "performance")

    def validate(self, request: ModesRequest) -> None:
        _samples(request)

    def recover(self, request: ModesRequest, logs: Logs, details: Mapping[str, Any]) -> ModesRequest:
        if PERFORMANCE not in logs:
            return request
        options = request.options.model_copy(update={"samples": requested_count(logs[PERFORMANCE])})
        return request.model_copy(update={"options": options})

    def as_drawn(self, request: ModesRequest, logs: Logs) -> ModesRequest:
        if PERFORMANCE not in logs:
            return request
        return DrawnRequest(**dict(request), log_seed=logs[PERFORMANCE].get("effective_accuracy_log_rng_seed"))

    def runs(self, request: ModesRequest) -> list[RunSpec]:
        samples = _samples(request)
        seed = request.log_seed if isinstance(request, DrawnRequest) else None
        settings = {
            "mode": PERFORMANCE_MODE,
            # a random seed, so that the system cannot predict which responses are logged
            "accuracy_log_rng_seed": secrets.randbits(63) if seed is None else seed,
            "accuracy_log_sampling_target": min(samples, MAX_LOGGED),
            "min_query_count": samples,
            "min_duration": 0,
            "max_duration": 0,
            "max_query_count": 0,
            "performance_issue_unique": 0,
            "performance_issue_same": 0,
            "sample_concatenate_permutation": 0,
        }
        return [
            RunSpec("accuracy", "accuracy"),
            RunSpec(PERFORMANCE, settings=settings, scenario=request.scenario, requested=samples),
        ]

    def verify(self, request: ModesRequest, runs: list["RunArtifacts"]) -> AuditResult:
        self.need(runs, 2)
        performance, threshold = runs[1], request.options.threshold
        # Only the first response to each sample counts.
        responses = {entry.qsl_idx: ids for entry, ids in reversed(_responses(runs[0], "accuracy", "--ref"))}
        logged = _responses(performance, "performance", "--run")
        if not responses:
            raise ExecutionError(f"{runs[0].dir.accuracy_log}: responses are missing", "repeat the accuracy run")
        checks = list(self.compare(responses, logged, performance, threshold))
        if not checks:
            raise ExecutionError(
                f"{performance.dir.root}: logged responses and requests.jsonl are missing",
                "start new runs with --scenario, or log responses with --audit-conf FILE",
            )
        rule = self.rule(threshold)
        head = f"{self.heading} check pass: {all(check.passed for check in checks)}\n"
        details = {"threshold": threshold, "logged_answers": len(logged), "accuracy_answers": len(responses)}
        text = self.text_of(head, rule, (), checks)
        return self.result(checks, runs[:2], met=checks[0].sentence, rule=rule, text=text, details=details)

    def lengths_by_sample(self, performance: "RunArtifacts", logged: "Responses") -> list[tuple[int, int]]:
        """Return the sample and the number of output tokens of each response of the performance run.

        They are from the request log, or from the logged responses if the run has no request log.
        """
        if not performance.dir.requests.exists():
            return [(entry.qsl_idx, len(ids)) for entry, ids in logged]
        table = performance.request_table
        return list(zip(table.sample_index.tolist(), table.output_tokens.tolist(), strict=True))

    @abstractmethod
    def rule(self, threshold: float) -> str:
        """Return the rule of the audit in words."""

    @abstractmethod
    def compare(
        self, responses: "dict[int, Ids]", logged: "Responses", performance: "RunArtifacts", threshold: float
    ) -> Iterator[Finding]:
        """Compare the performance run with the accuracy run.

        Args:
            responses: First response to each sample in the accuracy run.
            logged: Logged responses of the performance run, possibly empty.
        """


def _samples(request: ModesRequest) -> int:
    return request.sample_count(request.options.samples, DEFAULT_SAMPLES)


def _responses(run: "RunArtifacts", mode: Mode, option: str) -> "Responses":
    """Read the logged responses of a run.

    Raises:
        InputError: If the run has another mode.
        ExecutionError: If a response is not whole token IDs.
    """
    from compliance.audits.logged_tokens import as_ids, dtype_of
    from runs.record.finished_run import ACCURACY
    from runs.record.finished_run import PERFORMANCE as PERFORMANCE_RUN

    if run.mode != {"accuracy": ACCURACY, "performance": PERFORMANCE_RUN}[mode]:
        wanted = "an accuracy run" if mode == "accuracy" else "a performance run"
        raise InputError(f"{option} {run.dir.root}: must be {wanted}", f"give {wanted}: {option} DIR")
    entries = run.entries if run.dir.accuracy_log.exists() else []
    dtype = dtype_of(entries)
    responses = []
    for entry in entries:
        ids = as_ids(entry.data, dtype)
        if ids is None:
            raise ExecutionError(
                f"{run.dir.accuracy_log}: sample {entry.qsl_idx} (seq_id {entry.seq_id}) has {len(entry.data)} bytes",
                "log int32 or int64 token IDs, and repeat the run",
            )
        responses.append((entry, ids))
    return responses
