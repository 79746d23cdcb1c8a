"""H-9: the legs of a bundle are of one system, and were made at about one time."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from compliance.finding import Finding, fail, warn
from compliance.signoff.evidence import Evidence, checks, difference_text, same_facts
from runs.record.fingerprint import BUNDLE, BUNDLE_BENCHMARK, BUNDLE_MODE, CODE, LEVER, differences
from runs.record.layout import RunDir

_DAY_NS = 86_400 * 10**9
MOST_DAYS_APART = 183  # between the first leg of a bundle and the last; a round takes half a year


@checks("H-9", ("several_systems", "error", "all legs of a bundle are of one system"))
def one_system(legs: Sequence[Evidence]) -> Iterator[Finding]:
    """Compare every leg with the first of its kind."""
    first: dict[tuple[str, ...], Evidence] = {}
    for evidence in legs:
        if evidence.manifest is None:
            continue
        of, mode = evidence.benchmark.submission_name, evidence.manifest.plan.mode
        for kind, scope in (((), BUNDLE), ((of,), BUNDLE_BENCHMARK), ((of, mode), BUNDLE_MODE)):
            text, other = "the legs of this bundle are of several systems", first.setdefault(kind, evidence)
            yield from same_facts("H-9/several_systems", text, other, evidence, scope)
    yield from far_apart(legs)


@checks("B-3", ("other_harness", "warning", "one version of the harness made all legs"))
def one_harness(legs: Sequence[Evidence]) -> Iterator[Finding]:
    """B-3: legs outside a bundle are of one commit of the harness, which affects what is measured."""
    made = [evidence for evidence in legs if evidence.manifest is not None]
    for evidence in made[1:]:  # uncommitted changes are allowed here, not in a bundle
        if found := differences(made[0].facts, evidence.facts, CODE):
            text = f"legs by different versions of the harness: {difference_text(found)}"
            yield warn("B-3/other_harness", text, made[0].run.root, evidence.run.root, keys=sorted(found))
            return


@checks("H-9", ("far_apart", "error", "the legs of a bundle were made close in time"))
def far_apart(legs: Sequence[Evidence], make: Callable[..., Finding] = fail) -> Iterator[Finding]:
    """All legs were made within half a year; `make` is `warn` for legs outside a bundle."""
    starts = [(one.manifest.start_time_ns or 0, one) for one in legs if one.manifest is not None]
    if not starts:
        return
    (early_ns, early), (late_ns, late) = (pick(starts, key=lambda start: start[0]) for pick in (min, max))
    days = (late_ns - early_ns) / _DAY_NS
    if days > MOST_DAYS_APART:
        text = f"{days:.0f} days are between the first leg and the last, at most {MOST_DAYS_APART} are allowed"
        yield make("H-9/far_apart", text, early.run.root, late.run.root, days=days)


def foreign_legs(paths: list[Path], bundle: list[Evidence]) -> str:
    """How the legs of a lever's verdict differ from every performance leg of the bundle; empty if they do not.

    Raises:
        HarnessError: a leg cannot be read.
    """
    own = [evidence for evidence in bundle if evidence.is_performance]
    for path in paths:
        evidence = Evidence(RunDir(path))
        if not evidence.is_performance:
            continue
        found = [differences(one.facts, evidence.facts, LEVER) for one in own]
        if found and all(found):
            return difference_text(min(found, key=len))
    return ""
