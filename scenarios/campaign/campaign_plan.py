"""The plan of a campaign: all runs checked, counted and timed before the first run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compliance.audits.base import RunSpec
from compliance.audits.discovery import find_audit
from compliance.audits.options import AuditRequest
from compliance.techniques.quality_gate import judge_rows
from compliance.techniques.row import row_of_plan
from compliance.techniques.technique_registry import GateDivision, load_registries
from runs.errors import InputError, SetupError, error_of, error_record
from runs.loadgen.counts import RunCount
from runs.record.fingerprint import Facts
from runs.record.planned_fingerprint import machine_now, planned_fingerprint
from runs.record.technique import NO_TECHNIQUE
from scenarios.audit.run_audit import audit_request, refuse_missing_rates
from scenarios.campaign.campaign_config import ACCURACY, Campaign, CampaignRun
from scenarios.campaign.tuned_rates import refuse_other_content
from scenarios.launch.forecast import expected_count
from scenarios.launch.plan import PreparedRun, Say, log_bytes, prepare
from scenarios.launch.run_config import make_config
from scenarios.resumed import model_hashes


@dataclass(frozen=True, kw_only=True)
class PlannedRun(CampaignRun):
    """A checked run of a campaign."""

    identity: Facts  # current configuration, model, dataset and machine
    count: RunCount | None  # samples that LoadGen will issue; None for an audit whose runs depend on one another
    log_bytes: int  # maximum size of its files
    unofficial_reasons: tuple[str, ...]  # reasons why it is not eligible for submission
    hints: tuple[str, ...]  # ignored or overridden options, and unregistered techniques
    request: AuditRequest[Any] | None = None  # request of an audit


def plan_campaign(campaign: Campaign, say: Say) -> list[PlannedRun]:
    """Check every run as `run` does.

    The runs of a scenario differ only in their mode. Each scenario is prepared once, in accuracy mode, which requires
    more.

    Raises:
        InputError, SetupError: If a run cannot start.
    """
    machine = machine_now()
    planned: list[PlannedRun] = []
    hashes: dict[str, dict[str, str]] = {}  # model folder → hashes
    for runs in campaign.scenarios():
        say(f"checking {runs[0].scenario}")
        accuracy = next(run for run in runs if run.kind == ACCURACY)
        try:
            config = make_config(accuracy.values)
            prepared = prepare(config, say)
            declared = NO_TECHNIQUE if config.mechanism is None else config.mechanism.root
            refuse_closed(declared, prepared, "open" if campaign.options.division == "open" else "closed")
        except (InputError, SetupError) as error:
            raise error_of(error_record(error), runs[0].scenario) from error
        folder = prepared.plan.model_path
        if folder not in hashes:
            say("hashing the model's files")
            hashes[folder] = model_hashes(prepared)
        identity = planned_fingerprint(prepared.plan, prepared.user_conf, prepared.run_dir, hashes[folder], machine)
        if (tuning := campaign.tunings.get(runs[0].scenario)) is not None:
            refuse_other_content(tuning, identity)
        planned += [_planned(run, prepared, identity) for run in runs]
    return planned


# Field of a declaration that only the runs can measure.
_KNOWN_AFTER_THE_RUNS = ("speculative_acceptance_rate",)


def refuse_closed(declared: Mapping[str, Any], prepared: PreparedRun, division: GateDivision) -> None:
    """Refuse a technique that the gate will close, even if the accuracy run passes.

    Raises:
        InputError: If the gate closes the technique.
    """
    registries, evaluation = load_registries(), prepared.benchmark.quality_eval
    row = row_of_plan(declared, prepared.plan, prepared.weights, evaluation, registries)
    (judged,) = judge_rows([row], registries, division=division).parts
    if errors := [
        finding for finding in judged.of("error") if finding.numbers.get("field") not in _KNOWN_AFTER_THE_RUNS
    ]:
        reasons = "; ".join(f"{error.rule}: {error.sentence}" for error in errors)
        raise InputError(f"the gate closes {judged.name}: {reasons}", errors[0].fix or errors[0].definition.fix)


def _planned(run: CampaignRun, prepared: PreparedRun, identity: Facts) -> PlannedRun:
    request: AuditRequest[Any] | None = None
    specs = [RunSpec(run.kind, "accuracy" if run.kind == ACCURACY else "performance")]
    countable = run.audit is None
    try:
        if run.audit is not None:
            test = find_audit(run.kind)
            request = audit_request(run.audit, run.scenario, prepared)
            test.validate(request)
            specs = test.runs(request)
            countable = specs[0].requested is not None and test.run_counts(request) == (1, 1)
        refuse_missing_rates(prepared, specs)
    except (InputError, SetupError) as error:
        raise error_of(error_record(error), run.name) from error
    count = expected_count(prepared, specs[0].mode, dict(specs[0].settings))
    most_runs = 1 if countable else 3  # an audit has at most three runs
    return PlannedRun(
        **vars(run),
        identity=identity,
        count=count if countable else None,
        log_bytes=most_runs * log_bytes(count.samples, prepared.plan.enable_log_trace),
        unofficial_reasons=tuple(prepared.unofficial_reasons),
        hints=tuple(prepared.hints),
        request=request,
    )
