"""Whether runs are of one system: each question has the facts that count, and the rule that a difference breaks."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from compliance.judge.finding import Finding, fail, warn
from runs.record import fingerprint as scopes
from runs.record.fingerprint import FREE_MEMORY, Differences, Facts, Scope, describe, differences
from runs.record.layout import RunDir
from runs.wording import shortened_list

_DAY_NS = 86_400 * 10**9
MOST_DAYS_APART = 183  # between the first run of a result or bundle and the last; a round takes half a year
_SHOWN = 4  # differences in a finding


class Question(NamedTuple):
    """Are runs alike?"""

    rule: str  # of a finding that they are not
    scope: Scope
    text: str
    kind: Callable[[Any], Hashable] = lambda item: None  # runs of one kind are compared


REPEATS = Question("B-3/other_conditions", scopes.MEASURED, "the repeats ran under different conditions")
MODES = Question("H-1/other_path", scopes.BOTH_MODES, "accuracy and performance ran differently")
DATA_OF_MODES = Question("H-3/other_model_or_data", scopes.BUNDLE_BENCHMARK, MODES.text)
AUDIT = Question("H-5/caching_audit_forged", scopes.AUDITED, "the audit is of another system")
HARNESS = Question("B-3/other_harness", scopes.CODE, "legs by different versions of the harness")
_BUNDLE = Question("H-9/several_systems", scopes.BUNDLE, "the legs of this bundle are of several systems")
BUNDLE = (
    _BUNDLE,
    _BUNDLE._replace(scope=scopes.BUNDLE_BENCHMARK, kind=lambda leg: leg.benchmark.submission_name),
    _BUNDLE._replace(scope=scopes.BUNDLE_MODE, kind=lambda leg: (leg.benchmark.submission_name, leg.mode)),
)
# Results of a tree; the text is the fix. [inference_policies: implementations may differ by scenario, and numerical
# precisions may be picked by hand]
TREE = Question("submit/one-system", scopes.TREE, "submit results of one system; another has a tree entry of its own")
_MODEL = Question("submit/one-model", scopes.BENCHMARK, "run all scenarios with that one", lambda one: one.benchmark)
CLOSED_TREE = (
    TREE,
    _MODEL,
    _MODEL._replace(scope=scopes.PRECISION, kind=lambda one: (one.benchmark, str(one.facts.get("weights.precision")))),
)


class HasFacts(Protocol):
    @property
    def facts(self) -> Facts: ...


class Run(HasFacts, Protocol):
    @property
    def run(self) -> RunDir: ...


One = TypeVar("One")
Item = TypeVar("Item", bound=HasFacts)


def unlike(items: Iterable[Item], *questions: Question) -> Iterator[tuple[Question, Item, Item, Differences]]:
    """Compare each item with the first of its kind; yield the question, both and their differences."""
    every = list(items)
    for question in questions:
        first: dict[Hashable, Item] = {}
        for item in every:
            earlier = first.setdefault(question.kind(item), item)
            if found := differences(earlier.facts, item.facts, question.scope):
                yield question, earlier, item, found


def one_system(runs: Iterable[Run], *questions: Question) -> Iterator[Finding]:
    """A finding for each run that differs; a warning if only the free memory at the start does."""
    for question, first, run, found in unlike(runs, *questions):
        make = warn if found.keys() <= FREE_MEMORY else fail
        text = f"{question.text}: {difference_text(found)}"
        yield make(question.rule, text, first.run.root, run.run.root, keys=sorted(found))


def difference_text(found: Differences) -> str:
    """Differences between a first and a second run as a text."""
    return shortened_list(describe(found, "in the first", "in the second"), _SHOWN)


def too_far_apart(starts: Iterable[tuple[int, One]]) -> tuple[float, One, One] | None:
    """The days between the first of some runs and the last, and these two; None if the days are allowed.

    Args:
        starts: the time of each in ns, and the run.
    """
    if not (in_order := sorted(starts, key=lambda start: start[0])):
        return None
    (early_ns, early), (late_ns, late) = in_order[0], in_order[-1]
    days = (late_ns - early_ns) / _DAY_NS
    return (days, early, late) if days > MOST_DAYS_APART else None
