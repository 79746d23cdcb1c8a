"""The states of a campaign's runs, determined from their files on each start."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from compliance.accuracy.metrics import METRICS
from compliance.audits.state import audit_state
from compliance.judge.verdict import Outcome, Verdict
from compliance.results.details import ResultVerdict, RunVerdict, has_target
from compliance.results.find_results import find_results
from compliance.results.policy import verify_result
from compliance.trees.tree import NOT_IN_OPEN, Division
from runs.errors import ExecutionError, HarnessError
from runs.harness import harness_facts
from runs.numbers.numbers import Numbers, rates_by_unit
from runs.record.fingerprint import changes
from runs.record.group_end import read_end
from runs.record.layout import RunDir
from runs.record.liveness import living_process, on_this_machine
from runs.record.manifest import read_manifest
from runs.record.planned_fingerprint import finished_fingerprint
from runs.wording import precise, shortened_list
from scenarios.campaign.campaign_plan import PlannedRun

# "done": VALID or passed. "negative": finished with another outcome. "failed": the run did not finish, or its files are
# missing or contradict each other. "running": another command started the run.
CampaignStatus = Literal["to do", "done", "negative", "failed", "running"]


@dataclass(frozen=True)
class RunState:
    """The state of one run. Its verdict has an error if files are missing or contradict each other."""

    verdict: Verdict[Any] | None = None  # None: the run has no files
    numbers: str = ""  # numbers of a finished run
    changed: tuple[str, ...] = ()  # differences of a finished run from the current configuration
    process: int | None = None  # of a run in progress

    @property
    def status(self) -> CampaignStatus:
        if self.process is not None:
            return "running"
        return "to do" if self.verdict is None else _STATUS[self.verdict.outcome]

    @property
    def text(self) -> str:
        """The numbers of the run, or the reason why it is not done."""
        if self.process is not None:
            return f"process {self.process}"
        return self.numbers if self.verdict is None else shortened_list(self.verdict.reasons, 1) or self.numbers

    @property
    def done(self) -> bool:
        return self.status == "done" and not self.changed


TO_DO = RunState()
_STATUS: dict[Outcome, CampaignStatus] = {"PASS": "done", "FLAG": "done", "FAIL": "negative", "ERROR": "failed"}


def _failed(text: str) -> RunState:
    return RunState(Verdict(error=ExecutionError(text)))


def examine_scenario(runs: list[PlannedRun], division: Division) -> tuple[dict[str, RunState], ResultVerdict | None]:
    """Check the runs of one scenario under the rules of this division.

    Returns:
        The state of each run, by kind, and the common verdict on performance and accuracy, if there is one.
    """
    ignored = NOT_IN_OPEN if division == "open" else frozenset()
    states = {run.kind: TO_DO for run in runs}
    states |= {run.kind: RunState(process=pid) for run in runs if (pid := _process(run)) is not None}
    ended = [run for run in runs if run.has_files and states[run.kind] is TO_DO]
    pair = [run for run in ended if run.audit is None]
    states |= {run.kind: _examine_audit(run) for run in ended if run.audit is not None}
    judged, verdict = _judge(pair, ignored) if len(pair) == 2 else ({}, None)
    for run in pair:  # With a failed run, each run is checked alone.
        state = judged[run.kind] if verdict is not None else _judge([run], ignored)[0][run.kind]
        states[run.kind] = _compared(run, state)
    return states, verdict


def _process(planned: PlannedRun) -> int | None:
    """Return the process of a run or audit in progress on this machine."""
    for path in planned.folder.glob("manifest.json" if planned.audit is None else "*/manifest.json"):
        try:
            manifest = read_manifest(path)
        except HarnessError:  # `_judge` reports a damaged file.
            continue
        open_here = manifest.status in ("planned", "running") and on_this_machine(manifest)
        if open_here and (pid := living_process(manifest)) is not None:
            return pid
    return None


def code_notes(done: list[PlannedRun]) -> Iterator[str]:
    """Yield the reasons why finished and future runs cannot be in one submission. A submission has one commit."""
    now = harness_facts()
    if now["git_changed"] is not False:
        yield "this code has no commit; `submit` will require --source DIR"
    manifests = [read_manifest(RunDir(run.folder).manifest) for run in done if run.audit is None]
    ran = {manifest.observed.harness.git_commit for manifest in manifests}
    if commits := ran - {now["git_commit"]}:
        yield (
            f"finished runs have commit {' and '.join(map(str, commits))}, but this checkout is at "
            f"{now['git_commit']}; `submit` requires one commit: check out the earlier commit, or give another "
            "--output-log-dir"
        )


def _judge(runs: list[PlannedRun], ignored: frozenset[str]) -> tuple[dict[str, RunState], ResultVerdict | None]:
    """Return the states of runs, by kind, and their common verdict; None if they have no common verdict."""
    error: HarnessError | None
    try:
        verdict = verify_result(find_results([run.folder for run in runs])[0])
        error, parts = verdict.error, {part.details.mode: part for part in verdict.parts}
        if error is None and parts.keys() != {run.kind for run in runs}:
            error = ExecutionError(f"the logs belong to a run of {', '.join(parts)}")
    except HarnessError as unread:
        error = unread
    if error is not None:
        return {run.kind: RunState(Verdict(error=error)) for run in runs}, None
    if violated := verdict.violated:
        return {run.kind: RunState(Verdict(findings=violated)) for run in runs}, verdict
    return {run.kind: _state(parts[run.kind], ignored) for run in runs}, verdict


def _state(part: RunVerdict, ignored: frozenset[str]) -> RunState:
    if part.contradictions:
        return _failed(f"the files contradict each other: {part.contradictions[0].sentence}")
    failed = [finding for finding in part.violated if part.counts(finding) and finding.rule not in ignored]
    return RunState(Verdict(findings=failed), "" if failed else _numbers(part))


def _numbers(part: RunVerdict) -> str:
    if part.details.mode == "accuracy":
        scores = part.details.values["scores"]
        target_note = "" if has_target(part) else "; no target applies"
        metric = METRICS[part.details.values["metric"]]
        lead, length = metric.means[0], metric.length
        return f"{lead} {scores[lead]:.2f}, {scores[length]:,} {metric.length_unit}{target_note}"
    row = Numbers.model_validate(part.details.values.get("reported") or {}).flat("p90")
    if part.details.scenario == "SingleStream" and "latency_p90_ms" in row:
        return f"p90 latency {row['latency_p90_ms']:,.1f} ms"
    return ", ".join(f"{precise(value)} {unit}" for unit, value in rates_by_unit(row).items())


def _compared(planned: PlannedRun, state: RunState) -> RunState:
    """Compare a finished run with the configuration of the campaign."""
    if state.status != "done":
        return state
    try:
        changed = changes(finished_fingerprint(RunDir(planned.folder)), planned.identity)
    except HarnessError as error:
        return RunState(Verdict(error=error))
    return replace(state, changed=tuple(changed))


def _examine_audit(run: PlannedRun) -> RunState:
    assert run.request is not None
    state = audit_state(run.folder, run.kind, run.request)
    try:
        if state.result is None:
            end = read_end(run.folder)
            return _failed(end.message if end and end.message else f"{state.record} {state.why}")
        for path in state.changed:
            return _failed(f"{path} is missing or was changed")
        changed = [
            item for audit_run in state.runs for item in changes(finished_fingerprint(audit_run.dir), run.identity)
        ]
    except HarnessError as error:
        return RunState(Verdict(error=error))
    if not state.result.passed:
        return RunState(Verdict(refused_by=[state.result.reason]), state.result.reason)
    return RunState(Verdict(), state.result.reason, tuple(dict.fromkeys(changed)))
