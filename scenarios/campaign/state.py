"""The states of a campaign's legs, judged anew from their files, whatever an earlier verdict said."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from compliance.accuracy.metrics import METRICS
from compliance.audits.state import audit_state
from compliance.evidence.run_verdict import RunVerdict
from compliance.judge.verdict import Outcome, Verdict
from compliance.submission.tree import NOT_IN_OPEN, Division
from compliance.verify.find_results import find_results
from compliance.verify.result_verdict import ResultVerdict, verify_result
from runs.errors import ExecutionError, HarnessError
from runs.harness import harness_facts
from runs.numbers.numbers import Numbers, rates_by_unit
from runs.record.fingerprint import changes
from runs.record.layout import RunDir
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
    judged, verdict = _judge(pair, ignored) if len(pair) == 2 else ({}, None)
    for leg in pair:  # a damaged leg leaves nothing to say about the pair: then each is judged by itself
        state = judged[leg.kind] if verdict is not None else _judge([leg], ignored)[0][leg.kind]
        states[leg.kind] = _compared(leg, state)
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


def _judge(legs: list[PlannedLeg], ignored: frozenset[str]) -> tuple[dict[str, LegState], ResultVerdict | None]:
    """The states of one leg or of both, by kind, and the verdict on them; None where they cannot be judged together."""
    error: HarnessError | None
    try:
        verdict = verify_result(find_results([leg.folder for leg in legs])[0])
        error, parts = verdict.error, {str(part.mode): part for part in verdict.parts}
        if error is None and parts.keys() != {leg.kind for leg in legs}:
            error = ExecutionError(f"the logs are those of a leg of {', '.join(parts)}")
    except HarnessError as unread:
        error = unread
    if error is not None:
        return {leg.kind: LegState(Verdict(error=error)) for leg in legs}, None
    if broken := verdict.of("error"):
        return {leg.kind: LegState(Verdict(findings=broken)) for leg in legs}, verdict
    return {leg.kind: _state(parts[leg.kind], ignored) for leg in legs}, verdict


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
    assert leg.request is not None
    state = audit_state(leg.folder, leg.kind, leg.request)
    if state.result is None:
        return _damaged(f"{state.record} {state.why}")
    try:
        for path in state.changed:
            return _damaged(f"{path} is missing or was changed")
        found = [item for one in state.runs for item in changes(run_fingerprint(one.run), leg.identity)]
    except HarnessError as error:
        return LegState(Verdict(error=error))
    return LegState(state.result, state.result.reason, tuple(dict.fromkeys(found)) if state.result.passed else ())
