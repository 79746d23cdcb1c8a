"""Rules that hold for a LoadGen result of any benchmark; for the ones whose own rules are not known here.

What cannot be said without those rules is told as not judged: a result without a finding is then not a clean one.
"""

from compliance.submission.check.leg_checks import check_user_conf_of, check_verdict
from compliance.submission.check.logs import (
    ComparedLeg,
    check_seeds,
    contradictions,
    facts,
    judged,
    note_errors,
    note_findings,
    read_log,
)
from compliance.submission.check.tree_finding import Findings
from compliance.submission.check.tree_reading import object_or_empty
from compliance.submission.tree import Place, Tree
from runs.loadgen.detail_log import DetailLog
from runs.record.layout import RunDir
from runs.record.leg import ACCURACY, PERFORMANCE

# By the name of a scenario's directory, in lower case. [checker] constants.SCENARIO_MAPPING
_LOADGEN_SCENARIO = {
    "offline": "Offline",
    "server": "Server",
    "interactive": "Server",
    "singlestream": "SingleStream",
    "multistream": "MultiStream",
}
# (of the run, of the result). [checker] performance_check.inferred_check
INFERRED = frozenset((("SingleStream", "MultiStream"), ("MultiStream", "Offline"), ("SingleStream", "Offline")))
# One pass over a fixed number of samples. [checker] performance_check.min_duration_check
_NOT_TIME_BOUND = frozenset({"e2e-rag-qna", "e2e-rag-db"})
NOT_JUDGED = (
    "accuracy-target: the benchmark's metric and targets are not known here",
    "perf-limits: its latency limits are not known here",
    "perf-data-set: the size of its data set is not known here",
    "perf-output-tokens: its longest output is not known here",
    "audit-missing: the audits that it has to pass are not known here",
    "accuracy-size: what else its accuracy leg leaves, as pictures, is not known here",
)
_MULTI_STREAM = "log-arithmetic: the numbers of MultiStream are not known here"


def check_any(tree: Tree, place: Place, findings: Findings) -> tuple[list[ComparedLeg], list[str]]:
    """Check the legs of a scenario.

    Returns:
        What other legs are compared with, and what was not judged, each with the reason.
    """
    legs: list[ComparedLeg] = []
    not_judged = list(NOT_JUDGED)
    for name, run, mode in (
        ("performance", tree.performance(place), PERFORMANCE),
        ("accuracy", tree.accuracy(place), ACCURACY),
    ):
        detail = read_log(run, findings)
        if detail is None:
            not_judged.append(f"{name}: no log that can be read")
            continue
        legs.append(facts(name, run, detail))
        if detail.scenario == "MultiStream":
            not_judged.append(f"{name}: {_MULTI_STREAM}")
        _check_leg(tree, place, run, detail, mode, findings)
    return legs, not_judged


def _check_leg(tree: Tree, place: Place, run: RunDir, detail: DetailLog, mode: str, findings: Findings) -> None:
    kind = "perf" if mode == PERFORMANCE else "accuracy"
    found_mode = detail.get("effective_test_mode", detail.get("requested_test_mode"))
    wanted = _LOADGEN_SCENARIO.get(place.scenario.lower())
    if found_mode != mode:
        findings.add(f"{kind}-mode", detail.path, f"effective_test_mode is {found_mode}", mode)
        return
    if wanted is None:
        findings.add("tree-scenario", tree.scenario(place), f"{place.scenario} is no scenario of LoadGen's")
    elif detail.scenario != wanted and not _may_be_inferred(tree, place, detail.scenario, wanted):
        findings.add(f"{kind}-scenario", detail.path, f"the log is of {detail.scenario}", wanted)
    if place.division != "open":
        check_seeds(detail, tree.round, f"{kind}-seeds", findings)
    if mode == ACCURACY:
        note_errors(detail, "accuracy-errors", findings)
        _check_figures(place, run, detail, findings)
        return
    check_verdict(detail, findings)
    check_user_conf_of(tree.user_conf(place), detail, findings)
    least_ms = detail.get("effective_min_duration_ms")
    bound = place.division != "open" and place.benchmark not in _NOT_TIME_BOUND
    if bound and isinstance(least_ms, int | float) and least_ms < tree.round.min_duration_ms:
        wanted_text = f"at least {tree.round.min_duration_ms:,} ms"
        findings.add("perf-min-duration", detail.path, f"effective_min_duration_ms is {least_ms:,}", wanted_text)
    _check_figures(place, run, detail, findings)


def _may_be_inferred(tree: Tree, place: Place, logged: str, wanted: str) -> bool:
    """May a result of the edge be taken from a run of another scenario? [checker] performance_check.inferred_check"""
    if (logged, wanted) not in INFERRED:
        return False
    system = object_or_empty(tree.system(place.division, place.organisation, place.system))
    return "edge" in str(system.get("system_type", "")).lower()


def _check_figures(place: Place, run: RunDir, detail: DetailLog, findings: Findings) -> None:
    """Do the numbers of both logs stand together?"""
    if detail.scenario == "MultiStream":
        return  # no LLM benchmark has it, and none of the numbers here are its own
    found = judged(lambda: contradictions(run, detail), run, findings)
    note_findings(found or [], place.division, run, findings)
