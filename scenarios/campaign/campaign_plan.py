"""From a campaign's configuration to legs that can run, all checked, counted and timed before the first."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compliance.audits.base import LegSpec
from compliance.audits.discovery import find_audit
from compliance.audits.options import AuditRequest
from runs.errors import InputError, SetupError, error_of, error_record
from runs.loadgen.counts import LegCount
from runs.record.fingerprint import Facts
from runs.record.planned_fingerprint import machine_now, planned_fingerprint
from scenarios.audit.run import audit_request, refuse_missing_rates
from scenarios.campaign.config import ACCURACY, Campaign, CampaignLeg
from scenarios.leg.config import make_config
from scenarios.leg.forecast import expected_count
from scenarios.leg.plan import PreparedLeg, log_bytes, prepare
from scenarios.resumed import model_hashes

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class PlannedLeg(CampaignLeg):
    """A checked leg of a campaign."""

    identity: Facts  # what it would be made with now
    count: LegCount | None  # what LoadGen will issue; None for an audit whose legs depend on one another
    log_bytes: int  # what its files may take
    unofficial_reasons: tuple[str, ...]  # why it could not be submitted
    request: AuditRequest[Any] | None = None  # of an audit


def plan_campaign(campaign: Campaign, say: Say) -> list[PlannedLeg]:
    """Check every leg as `run` would check it.

    A scenario's legs differ in their mode alone, so each scenario is prepared once, in accuracy mode, which asks for
    more.

    Raises:
        InputError, SetupError: the first thing that is wrong.
    """
    machine = machine_now()
    planned: list[PlannedLeg] = []
    hashes: dict[str, dict[str, str]] = {}  # by the model's folder
    for legs in campaign.scenarios():
        say(f"checking {legs[0].scenario}")
        accuracy = next(leg for leg in legs if leg.kind == ACCURACY)
        try:
            prepared = prepare(make_config(accuracy.values), say)
        except (InputError, SetupError) as error:
            raise error_of(error_record(error), legs[0].scenario) from error
        folder = prepared.plan.model_path
        if folder not in hashes:
            say("hashing the model's files")
            hashes[folder] = model_hashes(prepared)
        identity = planned_fingerprint(prepared.plan, prepared.user_conf, prepared.run_dir, hashes[folder], machine)
        planned += [_planned(leg, prepared, identity) for leg in legs]
    return planned


def _planned(leg: CampaignLeg, prepared: PreparedLeg, identity: Facts) -> PlannedLeg:
    request: AuditRequest[Any] | None = None
    specs = [LegSpec(leg.kind, "accuracy" if leg.kind == ACCURACY else "performance")]
    countable = leg.audit is None
    try:
        if leg.audit is not None:
            test = find_audit(leg.kind)
            request = audit_request(leg.audit, leg.scenario, prepared)
            test.validate(request)
            specs = test.legs(request)
            countable = specs[0].requested is not None and test.run_counts(request) == (1, 1)
        refuse_missing_rates(prepared, specs)
    except (InputError, SetupError) as error:
        raise error_of(error_record(error), leg.name) from error
    count = expected_count(prepared, specs[0].mode, dict(specs[0].settings))
    return PlannedLeg(
        **vars(leg),
        identity=identity,
        count=count if countable else None,
        log_bytes=log_bytes(count.samples, prepared.plan.enable_log_trace)
        * (1 if countable else 3),  # an audit has three at most
        unofficial_reasons=tuple(prepared.unofficial_reasons),
        request=request,
    )
