"""H-9 and G-12: the legs of a bundle are of one system, at about one time, and the logs in its tree are theirs."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from compliance.evidence.truncate import submitted_accuracy
from compliance.finding import Finding, fail, note, warn
from compliance.signoff.evidence import Evidence, checks, difference_text, same_facts
from runs.errors import HarnessError
from runs.files import sha256_of
from runs.reading import read_record
from runs.record.fingerprint import BUNDLE, BUNDLE_BENCHMARK, BUNDLE_MODE, CODE, LEVER, differences
from runs.record.layout import RunDir

_DAY_NS = 86_400 * 10**9
MOST_DAYS_APART = 183  # between the first leg of a bundle and the last; a round takes half a year
_RESULTS = "*/*/results/*/*/*"  # division, organisation, system, benchmark, scenario
_ACCURACY = "accuracy"
_LEGS = ("performance/run_*", _ACCURACY)


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
    """B-3: were legs that are no submission made by one commit of the harness? It shapes what is measured."""
    made = [evidence for evidence in legs if evidence.manifest is not None]
    for evidence in made[1:]:  # a checkout that was changed is as on any day of work; a bundle may not have one
        if found := differences(made[0].facts, evidence.facts, CODE):
            text = f"legs by different versions of the harness: {difference_text(found)}"
            yield warn("B-3/other_harness", text, made[0].run.root, evidence.run.root, keys=sorted(found))
            return


@checks("H-9", ("far_apart", "error", "the legs of a bundle were made close in time"))
def far_apart(legs: Sequence[Evidence], make: Callable[..., Finding] = fail) -> Iterator[Finding]:
    """Do the legs lie within half a year? Of legs that are no submission that is a warning (`make`)."""
    starts = [(one.manifest.start_time_ns or 0, one) for one in legs if one.manifest is not None]
    if not starts:
        return
    (early_ns, early), (late_ns, late) = (pick(starts, key=lambda start: start[0]) for pick in (min, max))
    days = (late_ns - early_ns) / _DAY_NS
    if days > MOST_DAYS_APART:
        text = f"{days:.0f} days lie between the first leg and the last, at most {MOST_DAYS_APART} may"
        yield make("H-9/far_apart", text, early.run.root, late.run.root, days=days)


def foreign_legs(paths: list[Path], bundle: list[Evidence]) -> str:
    """How legs that are to explain a lever differ from every performance leg of the bundle; empty where they do not.

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


@checks(
    "G-12",
    ("missing_raw", "error", "the tree has the logs of its legs"),
    ("foreign_file", "error", "the tree's logs are those of the legs"),
    ("tree_of_these_legs", "note", "the tree's logs are those of the legs"),
)
def tree_logs(tree: Path, legs: list[Evidence]) -> Iterator[Finding]:
    """G-12, byte by byte: LoadGen's logs of both legs, answers cut as they are submitted, and their scores."""
    known = {digest for evidence in legs for digest in (*evidence.hashes.values(), *_submitted(evidence))}
    found = [
        RunDir(path)
        for scenario in sorted(tree.glob(_RESULTS))
        for name in _LEGS
        for path in sorted(scenario.glob(name))
    ]
    if not found:
        yield fail("G-12/missing_raw", "the tree has no legs", tree)
        return
    foreign = 0
    for run in found:
        paths = [run.summary, run.detail]
        if run.root.name == _ACCURACY:
            paths += [run.accuracy_log, run.accuracy_text]
        elif run.accuracy_log.exists():
            paths.append(run.accuracy_log)
        for path in paths:
            if not path.is_file():
                yield fail("G-12/missing_raw", f"{path.name} is missing in the tree", run.root)
            elif sha256_of(path) not in known:
                foreign += 1
                yield fail("G-12/foreign_file", f"{path.name} is of none of the legs that were signed off", path)
    if not foreign:
        yield note("G-12/tree_of_these_legs", f"all logs of {len(found)} legs in the tree are those of the legs", tree)


def _submitted(evidence: Evidence) -> Iterator[str]:
    """SHA-256 of an accuracy leg's answers and scores as they are submitted, or as they lie in the leg."""
    if evidence.is_performance:
        return
    try:
        submitted = submitted_accuracy(evidence.run)
        texts = (submitted.log, submitted.text, read_record(evidence.run.accuracy_text, ""))
    except HarnessError:
        return
    yield from (hashlib.sha256(content).hexdigest() for content in texts)
