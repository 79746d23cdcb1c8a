"""Comparison of the systems of runs. A `Question` has the facts to compare and the rule that a difference violates."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from runs.record import fingerprint as scopes
from runs.record.fingerprint import Differences, Facts, Scope, differences

_DAY_NS = 86_400 * 10**9
MAX_DAYS_APART = 183  # maximum days from the first to the last run of a result or bundle; a round takes half a year


class Question(NamedTuple):
    """Facts of runs that must be equal, and the rule that a difference violates."""

    rule: str  # rule that a difference violates
    scope: Scope
    text: str
    kind: Callable[[Any], Hashable] = lambda item: None  # only items of one kind are compared


REPEATS = Question("B-3/other_conditions", scopes.MEASURED, "the repeats ran under different conditions")
MODES = Question("H-1/other_path", scopes.BOTH_MODES, "accuracy and performance ran differently")
DATA_OF_MODES = Question("H-3/other_model_or_data", scopes.BUNDLE_BENCHMARK, MODES.text)
AUDIT = Question("H-5/caching_audit_forged", scopes.AUDITED, "audit and runs used different systems")
HARNESS = Question("B-3/other_harness", scopes.CODE, "different versions of the harness")
_BUNDLE = Question("H-9/several_systems", scopes.BUNDLE, "the runs of this bundle used different systems")
BUNDLE = (
    _BUNDLE,
    _BUNDLE._replace(scope=scopes.BUNDLE_BENCHMARK, kind=lambda run: run.benchmark.submission_name),
    _BUNDLE._replace(scope=scopes.BUNDLE_MODE, kind=lambda run: (run.benchmark.submission_name, run.mode)),
)
# Questions on the two runs of a result, with manifests and with logs only. The text names the compared facts.
RECORDED_PAIR, LOGGED_PAIR = (
    tuple(Question("one-system", scope, text) for text, scope in table.items())
    for table in (scopes.PAIR, scopes.LOGGED)
)
# Questions on the results of a tree. The text is the fix. [inference_policies: implementations may differ by scenario,
# and numerical precisions may be picked by hand]
TREE = Question("submit/one-system", scopes.TREE, "submit the results of each system as a system of its own")
_MODEL = Question(
    "submit/one-model", scopes.BENCHMARK, "run all scenarios with one model", lambda candidate: candidate.benchmark
)
CLOSED_TREE = (
    TREE,
    _MODEL,
    _MODEL._replace(
        scope=scopes.PRECISION,
        kind=lambda candidate: (candidate.benchmark, str(candidate.facts.get("weights.precision"))),
    ),
)


class HasFacts(Protocol):
    @property
    def facts(self) -> Facts: ...


One = TypeVar("One")
Described = TypeVar("Described", bound=HasFacts)


def unlike(
    items: Iterable[Described], *questions: Question
) -> Iterator[tuple[Question, Described, Described, Differences]]:
    """Compare each item with the first item of its kind; yield each question with two items that differ, and how."""
    compared_items = list(items)
    for question in questions:
        first: dict[Hashable, Described] = {}
        for item in compared_items:
            earlier = first.setdefault(question.kind(item), item)
            if unequal := differences(earlier.facts, item.facts, question.scope):
                yield question, earlier, item, unequal


def too_far_apart(starts: Iterable[tuple[int, One]]) -> tuple[int, One, One] | None:
    """Return the days between the first and the last run, and these two runs; None if the days are within the limit.

    Args:
        starts: Start time in ns and run, for each run.
    """
    if not (in_order := sorted(starts, key=lambda start: start[0])):
        return None
    (early_ns, early), (late_ns, late) = in_order[0], in_order[-1]
    days = (late_ns - early_ns) // _DAY_NS
    return (days, early, late) if days > MAX_DAYS_APART else None
