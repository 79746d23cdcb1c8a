"""The same log in two places: one run counts once."""

from pathlib import Path

from compliance.submission.check.any_benchmark import INFERRED
from compliance.submission.check.finding import Findings
from compliance.submission.check.scenario import ScenarioOutcome
from compliance.submission.tree import Place
from runs.benchmark import LOADGEN_SCENARIO
from runs.benchmarks import DIRECTORIES


def check_duplicates(outcomes: list[ScenarioOutcome], findings: Findings) -> None:
    """Logs of the same bytes, logs of the same run with other figures, and the same answers twice."""
    first_by_hash: dict[str, tuple[Path, Place]] = {}
    first_by_window: dict[tuple[str, str], tuple[Path, Place]] = {}
    first_by_answers: dict[str, tuple[Path, tuple[str, ...]]] = {}
    for outcome in outcomes:
        for leg in outcome.legs:
            copied = False
            for path, digest in leg.hashes.items():
                first, place = first_by_hash.setdefault(digest, (path, outcome.place))
                copied = copied or first != path
                if first != path and not _may_share(place, outcome.place):
                    findings.add("log-duplicate", path, f"the same bytes as {findings.name(first)}", "another run's")
            if leg.answers and leg.answers_file:
                source = _source_of_order(outcome)
                first, first_source = first_by_answers.setdefault(leg.answers, (leg.answers_file, source))
                if first_source != source:
                    said = f"the same accuracy log as that of {findings.name(first)}: SHA-256 {leg.answers}"
                    findings.add("log-same-answers", leg.answers_file, said, "answers in an order of their own")
            if leg.window is None:
                continue
            first, place = first_by_window.setdefault(leg.window, (leg.detail, outcome.place))
            if first != leg.detail and not copied and not _may_share(place, outcome.place):
                said = f"began and ended in the same milliseconds as {findings.name(first)}: {' to '.join(leg.window)}"
                findings.add("log-duplicate", leg.detail, said, "a run of its own")


def _may_share(first: Place, other: Place) -> bool:
    """May two results of one system be one run? Those of one model at 99 and 99.9 % of the reference accuracy, and
    those that one scenario's run may be taken for."""
    if (first.division, first.organisation, first.system) != (other.division, other.organisation, other.system):
        return False
    scenarios = {first.scenario.lower(), other.scenario.lower()}
    if first.benchmark != other.benchmark:
        return _model(first.benchmark) == _model(other.benchmark) and len(scenarios) == 1
    inferred = any(scenarios == {one.lower() for one in pair} for pair in INFERRED)
    return inferred and first.benchmark not in DIRECTORIES


def _model(benchmark: str) -> str:
    return benchmark.removesuffix("-99.9").removesuffix("-99")


def _source_of_order(outcome: ScenarioOutcome) -> tuple[str, ...]:
    """What decides the order of a leg's answers: of one system the same answers in the same order may be honest.

    Server and Interactive are one LoadGen scenario with one order of issue; a deterministic engine answers both alike.
    That a run was handed in twice is then told by its other logs.
    """
    place = outcome.place
    scenario = LOADGEN_SCENARIO[outcome.scenario] if outcome.scenario else place.scenario
    return place.division, place.organisation, place.system, place.benchmark, scenario
