"""All rules on one scenario of one system."""

from dataclasses import dataclass, field
from pathlib import Path

from compliance.finding import Finding, UnknownRuleError, decides
from compliance.submission.check.any_benchmark import check_any
from compliance.submission.check.audit_checks import TEST, check_audit
from compliance.submission.check.descriptions import check_measurements, mapped_benchmark
from compliance.submission.check.leg_checks import check_accuracy, check_performance
from compliance.submission.check.logs import ComparedLeg, check_one_configuration
from compliance.submission.check.structure import AUDIT_FOLDERS, OF_POWER, POWER_LOG
from compliance.submission.check.tree_finding import Findings
from compliance.submission.tree import Place, Tree
from runs.benchmark import SCENARIOS, Scenario
from runs.benchmarks import SUBMISSIONS, submitted_benchmark

OPEN_NOT_JUDGED = ("test06-length, test06-special-ids: the model's own lengths and special ids are not known here",)


@dataclass
class ScenarioOutcome:
    """Findings, and what other scenarios are compared with."""

    place: Place
    findings: list[Finding]
    legs: list[ComparedLeg] = field(default_factory=list)
    scenario: Scenario | None = None  # None where the directory names none of the benchmark's
    not_judged: list[str] = field(default_factory=list)  # what could not be said of it, and why


def check_scenario(tree: Tree, place: Place) -> ScenarioOutcome:
    """Check one scenario directory."""
    findings = Findings(tree.root)
    folder = tree.scenario(place)
    outcome = _judged(tree, place, folder, findings)
    if _tells_of_power(tree, place):
        outcome.not_judged.append("power: what was measured of power is not judged here")
    return outcome


def _tells_of_power(tree: Tree, place: Place) -> bool:
    runs = [
        tree.performance(place).root,
        *(tree.audit(place, test) / "performance" / "run_1" for test in AUDIT_FOLDERS),
    ]
    return any((run / POWER_LOG).exists() or any((run.parent / name).exists() for name in OF_POWER) for run in runs)


@decides(
    "tree",
    ("tree-benchmark", "error", "[checker] loader.Loader.load", "benchmark directories are known", "rename it"),
    ("tree-scenario", "error", "[checker] performance_check.scenarios_check", "scenarios are known", "rename it"),
)  # fmt: skip
def _judged(tree: Tree, place: Place, folder: Path, findings: Findings) -> ScenarioOutcome:
    check_measurements(tree, place, findings)
    benchmark_name = mapped_benchmark(tree, place)
    if benchmark_name is not None and benchmark_name not in SUBMISSIONS:
        compared, not_judged = check_any(tree, place, findings)
        check_one_configuration(compared, findings)
        return ScenarioOutcome(place, findings.items, compared, not_judged=not_judged)
    if benchmark_name is None:
        known = ", ".join(sorted(tree.round.benchmarks))
        findings.add("tree-benchmark", folder.parent, f"{place.benchmark} is no benchmark of this checker", known)
        return ScenarioOutcome(place, findings.items)
    # Another case has a finding of its own, and is judged all the same.
    scenario = next((one for one in SCENARIOS if one.lower() == place.scenario.lower()), None)
    allowed = SUBMISSIONS[benchmark_name].scenarios
    if scenario is None or scenario not in allowed:
        said = f"{place.scenario} is no scenario of {benchmark_name}"
        findings.add("tree-scenario", folder, said, ", ".join(sorted(allowed)))
        return ScenarioOutcome(place, findings.items)
    benchmark = submitted_benchmark(benchmark_name, scenario)
    legs: list[ComparedLeg] = []
    for check, place_of in ((check_performance, "performance"), (check_accuracy, "accuracy"), (check_audit, TEST)):
        try:
            leg = check(tree, place, scenario, benchmark, findings)
        except UnknownRuleError:
            raise
        except Exception as error:  # whatever stands in a foreign file must not end the other checks
            said = f"cannot be judged: {type(error).__name__}: {error}"
            findings.add("log-damaged", folder / place_of, said)
            continue
        if leg is not None:
            legs.append(leg)
    check_one_configuration([leg for leg in legs if leg.identity], findings)
    not_judged = list(OPEN_NOT_JUDGED) if place.division == "open" else []
    return ScenarioOutcome(place, findings.items, legs, scenario, not_judged)
