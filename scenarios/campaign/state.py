"""The states of a campaign's legs, judged anew from their files, whatever an earlier verdict said."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from compliance.accuracy.metrics import METRICS
from compliance.audits.audit_registry import files_that_differ, judged_as_planned
from compliance.evidence.run_verdict import RunVerdict
from compliance.judge.verdict import Outcome, Verdict
from compliance.submission.tree import NOT_IN_OPEN, Division
from compliance.verify.find_results import find_results
from compliance.verify.result_verdict import ResultVerdict, verify_result
from runs.errors import ExecutionError, HarnessError
from runs.harness import harness_facts
from runs.numbers.numbers import Numbers, rates_by_unit
from runs.record.fingerprint import changes
from runs.record.layout import RunDir, audit_record
from runs.record.manifest import read_manifest
from runs.record.planned_fingerprint import run_fingerprint
from runs.wording import shortened_list
from scenarios.campaign.campaign_plan import PlannedLeg

# "done": VALID, passed. "negative": it ran to its end with another outcome. "damaged": files are missing, or say that
# the leg did not finish, or contradict each other.
Status = Literal["to do", "done", "negative", "damaged"]


@dataclass(frozen=True)
class LegState:
    """One leg, from its files. An error of the verdict: they are missing or contradict each other, or the leg did not
    finish."""

    verdict: Verdict | None = None  # None: it has no files
    numbers: str = ""  # of a leg that is done
    changed: tuple[str, ...] = ()  # of a leg that is done: what it was made with and is not so now

    @property
    def status(self) -> Status:
        return "to do" if self.verdict is None else _STATUS[self.verdict.outcome]

    @property
    def text(self) -> str:
        """Its numbers, or why it is not done."""
        return self.numbers if self.verdict is None else shortened_list(self.verdict.reasons, 1) or self.numbers

    @property
    def done(self) -> bool:
        return self.status == "done" and not self.changed


TO_DO = LegState()
_STATUS: dict[Outcome, Status] = {"PASS": "done", "FLAG": "done", "FAIL": "negative", "ERROR": "damaged"}


def _damaged(text: str) -> LegState:
    return LegState(Verdict(error=ExecutionError(text)))


def examine(legs: list[PlannedLeg], division: Division) -> tuple[dict[str, LegState], ResultVerdict | None]:
    """Judge the legs of one scenario as a submission in this division asks.

    Returns:
        A state for each leg, by kind, and the verdict on performance and accuracy together where both could be judged.
    """
    ignored = NOT_IN_OPEN if division == "open" else frozenset()
    states = {leg.kind: TO_DO for leg in legs}
    pair = [leg for leg in legs if leg.audit is None and leg.has_files]
    states |= {leg.kind: _examine_audit(leg) for leg in legs if leg.audit is not None and leg.has_files}
    verdict: ResultVerdict | None = None
    judged: dict[str, LegState] = {}
    if len(pair) == 2:
        judged, verdict = _judge_pair(pair, ignored)
    # A damaged leg leaves nothing to say about the pair: then each is judged by itself.
    judged = judged or {leg.kind: _judge_one(leg, ignored) for leg in pair}
    for leg in pair:
        states[leg.kind] = _compared(leg, judged[leg.kind])
    return states, verdict


def code_notes(done: list[PlannedLeg]) -> Iterator[str]:
    """Why finished legs and those to come could not be in one submission, which has one commit of the code."""
    now = harness_facts()
    if now["git_changed"] is not False:
        yield "this code is that of no commit: `submit` will ask for --source DIR"
    manifests = [read_manifest(RunDir(leg.folder).manifest) for leg in done if leg.audit is None]
    ran = {manifest.observed.harness.git_commit for manifest in manifests}
    if others := ran - {now["git_commit"]}:
        yield (
            f"legs that are done ran with commit {' and '.join(map(str, others))}, this checkout is at "
            f"{now['git_commit']}: `submit` takes legs of one commit; check that one out again, or give "
            "--output-log-dir another directory"
        )


def _judge_pair(pair: list[PlannedLeg], ignored: frozenset[str]) -> tuple[dict[str, LegState], ResultVerdict | None]:
    results = find_results([leg.folder for leg in pair])
    if len(results) != 1 or results[0].error is not None:
        return {}, None
    verdict = verify_result(results[0])
    if verdict.error is not None or len(verdict.parts) != 2:
        return {}, None
    parts = {str(part.mode): part for part in verdict.parts}
    if verdict.of("error"):
        return {leg.kind: LegState(Verdict(findings=verdict.of("error"))) for leg in pair}, verdict
    return {leg.kind: _state(parts[leg.kind], ignored) for leg in pair}, verdict


def _judge_one(leg: PlannedLeg, ignored: frozenset[str]) -> LegState:
    try:
        (result,) = find_results([leg.folder])
    except HarnessError as error:
        return LegState(Verdict(error=error))
    verdict = verify_result(result)
    if verdict.error is not None:
        return LegState(Verdict(error=verdict.error))
    (part,) = verdict.parts
    if part.mode != leg.kind:
        return _damaged(f"the logs are those of a leg of {part.mode}")
    return _state(part, ignored)


def _state(part: RunVerdict, ignored: frozenset[str]) -> LegState:
    if part.contradictions:
        return _damaged(f"the files contradict each other: {part.contradictions[0].sentence}")
    if not part.claims_official:  # scores without a target, of a small data set, are neither passed nor failed
        ignored |= {"accuracy-no-target"}
    failed = [one for one in part.broken if part.counts(one) and one.rule not in ignored]
    return LegState(Verdict(findings=failed), "" if failed else _numbers(part))


def _numbers(part: RunVerdict) -> str:
    if part.mode == "accuracy":
        scores = part.details["scores"]
        held = "" if part.details.get("target") else "; no target applies"
        metric = METRICS[part.details["metric"]]
        lead, length = metric.means[0], metric.length
        return f"{lead} {scores[lead]:.2f}, {scores[length]:,} {metric.length_unit}{held}"
    row = Numbers.model_validate(part.details.get("reported") or {}).flat("p90")
    if part.scenario == "SingleStream" and "latency_p90_ms" in row:
        return f"p90 latency {row['latency_p90_ms']:,.1f} ms"
    return ", ".join(f"{value:,.2f} {unit}" for unit, value in rates_by_unit(row).items())


def _compared(planned: PlannedLeg, state: LegState) -> LegState:
    """A leg that is done must be the one that the campaign asks for."""
    if state.status != "done":
        return state
    try:
        found = changes(run_fingerprint(RunDir(planned.folder)), planned.identity)
    except HarnessError as error:
        return LegState(Verdict(error=error))
    return replace(state, changed=tuple(found))


def _examine_audit(leg: PlannedLeg) -> LegState:
    try:
        assert leg.request is not None
        result, legs = judged_as_planned(leg.folder, *leg.request)
        record = audit_record(leg.folder, leg.kind)
        for path in files_that_differ(leg.folder, result) if record.is_file() else (record,):
            return _damaged(f"{path} is missing or was changed")
        found = [item for one in legs for item in changes(run_fingerprint(one.run), leg.identity)]
    except HarnessError as error:
        return LegState(Verdict(error=error))
    except OSError as error:
        return _damaged(f"{error.filename}: {error.strerror}")
    return LegState(result, result.reason, tuple(dict.fromkeys(found)) if result.passed else ())
