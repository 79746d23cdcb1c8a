"""Decision procedure of output_caching: from the runs so far to the next run, or to the outcome.

Nothing here starts a run or reads a file, so that simulations drive the same code as the audit.

A stage is all runs of N samples; it has up to MAX_ROUNDS rounds. The first round is a reference run of unique samples,
then one run of each repeating kind. Each later round runs the kinds that are not settled, then the reference again: in
reverse order, so that a system that becomes faster or slower does not favor the same kind twice. A disturbance makes a
run slower and never faster. A kind therefore fails only if it is faster than all references, twice by a wide margin or
four times by a small one. It passes if one of its runs is as fast as a reference.

A stage ends without an outcome, and the next one has more samples, if its reference is too short to be measured, or if
only references of samples that the system had answered before are as fast as the repeating runs. Such a reference
does not show how long new samples take: either the first reference was disturbed, or the system keeps responses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from compliance.audits.pace import Pace, compare_paces, limit_ratio
from compliance.judge.finding import Finding
from runs.wording import counted, duration

REFERENCE, FEW = "reference", "few"
FEW_SAMPLES = 4
MIN_SAMPLES_FOR_FEW = 16  # fewer queries than this cannot repeat the few often enough
# Shortest reference run that is compared. Below it, starting threads and waking cores decide.
MIN_REFERENCE_S = 2.0
AIM_S = 3.0  # how long a longer reference is to take, so that one more is mostly enough
MIN_GROWTH, MAX_GROWTH = 2, 16  # of N, from stage to stage; a disturbed run may have looked too slow or too fast
# New samples that a larger N must bring, as a share of N, for its reference to show how long new samples take.
MIN_NEW_SHARE = 1 / 3
MAX_ROUNDS = 6
MAX_RUNS = 30
MAX_MEASURED_S = 4 * 3600.0
# Over the limit by so much, disturbances of two references explain it no more; below, five are needed.
CLEAR_EXCESS = 2.0
CLEAR_ROUNDS, CLOSE_ROUNDS = 2, 5
# So much slower than the reference, a repeating run may hide a cache behind a disturbance, and is measured again.
SLOWER = 1.3
ALIKE = 1.15  # two runs of one kind that differ less show its pace, also where it is slower than the reference


@dataclass(frozen=True)
class Plan:
    """What is audited. `max_samples` is what LoadGen can load; `queries` of the repeating runs, None as many as N."""

    samples: int
    max_samples: int
    threshold: float
    queries: int | None = None
    indices: tuple[int, ...] = ()  # of repeated samples; none: the one nearest the reference's mean lengths
    min_reference_s: float = MIN_REFERENCE_S

    @property
    def min_runs(self) -> int:
        """Runs of an audit that needs no repetition."""
        return 1 + max(1, len(self.indices)) + (self.samples >= MIN_SAMPLES_FOR_FEW)


@dataclass(frozen=True)
class Run:
    """One run: `kind` is REFERENCE, FEW or repeat-I; `number` is its round within the stage of `samples`."""

    kind: str
    samples: int
    queries: int
    number: int


@dataclass(frozen=True)
class Measurement:
    """A finished run. `typical`: of a reference, the position of the sample nearest the mean lengths."""

    run: Run
    pace: Pace
    typical: int = 0


@dataclass(frozen=True)
class Outcome:
    """The end: PASS, FAIL, or NONE with the reason. The pair of runs that decided, and the findings on it."""

    verdict: Literal["PASS", "FAIL", "NONE"]
    reason: str = ""
    reference: Measurement | None = None
    test: Measurement | None = None
    findings: tuple[Finding, ...] = ()  # on the deciding pair of each kind


@dataclass(frozen=True)
class _Pair:
    """A repeating run beside a reference run of its stage."""

    reference: Measurement
    test: Measurement
    findings: tuple[Finding, ...]

    @property
    def limit_ratio(self) -> float:
        """Rate divided by its limit, the largest of all rates."""
        return limit_ratio(self.findings)

    @property
    def over(self) -> bool:
        return any(not one.passed for one in self.findings if "limit" in one.numbers)

    @property
    def slower(self) -> bool:
        rates = [one.numbers for one in self.findings if "limit" in one.numbers]
        return any(rate["test"] * SLOWER < rate["expected"] for rate in rates)


State = Literal["passed", "failed", "open", "kept or disturbed"]


@dataclass(frozen=True)
class _Kind:
    """What a stage shows of one repeating kind."""

    state: State
    deciding_rate: _Pair
    clear: bool = False  # far over the limit


def next_step(plan: Plan, done: Sequence[Measurement]) -> Run | Outcome:
    """The run that is needed next, or the outcome."""
    if not done:
        return Run(REFERENCE, plan.samples, plan.samples, 1)
    stage = [one for one in done if one.run.samples == done[-1].run.samples]
    references = [one for one in stage if one.run.kind == REFERENCE]
    size, first_s = references[0].run.samples, references[0].pace.seconds
    if first_s < plan.min_reference_s:
        more = _longer(size, first_s, plan.max_samples)
        why = f"{counted(size, 'sample')} took {first_s:.3g} s, required: at least {plan.min_reference_s:g} s"
        return _more_samples(done, more) if more > size else Outcome("NONE", f"the system is too fast: {why}")
    if min(one.pace.seconds for one in references) < plan.min_reference_s:
        return _new_samples(plan, done, references[0])
    # The rounds that are complete: the first with its repeating runs, each later one with its reference.
    complete = max(one.run.number for one in references)
    ran = {(one.run.kind, one.run.number) for one in stage}
    kinds = _kinds(plan, references[0])
    if complete == 1 and (missing := [kind for kind in kinds if (kind, 1) not in ran]):
        return _bounded(done, Run(missing[0], size, plan.queries or size, 1), first_s)
    known = [one for one in stage if one.run.number <= complete]
    judged = {kind: _judge(plan, known, kind) for kind in kinds}
    if (outcome := _decided(plan, done, judged)) is not None:
        return outcome
    unsettled = [kind for kind, one in judged.items() if one.state == "open"]
    if not unsettled:  # what only new samples can tell
        return _new_samples(plan, done, references[0])
    if complete >= MAX_ROUNDS:
        return Outcome("NONE", f"{', '.join(unsettled)}: {complete} rounds differ too much to be compared")
    for kind in unsettled:
        if (kind, complete + 1) not in ran:
            return _bounded(done, Run(kind, size, plan.queries or size, complete + 1), first_s)
    return _bounded(done, Run(REFERENCE, size, size, complete + 1), first_s)


def _longer(size: int, seconds: float, most: int) -> int:
    """N for a reference run that is long enough."""
    growth = min(MAX_GROWTH, max(MIN_GROWTH, ceil(AIM_S / max(seconds, 1e-9))))
    return min(size * growth, most)


def _more_samples(done: Sequence[Measurement], size: int) -> Run | Outcome:
    return _bounded(done, Run(REFERENCE, size, size, 1), done[-1].pace.seconds * MIN_GROWTH)


def _new_samples(plan: Plan, done: Sequence[Measurement], first: Measurement) -> Run | Outcome:
    """More samples, because a later reference of the same samples was faster than the first."""
    size = first.run.samples
    more = min(size * MIN_GROWTH, plan.max_samples)
    if more - size >= MIN_NEW_SHARE * more:
        return _more_samples(done, more)
    return Outcome(
        "NONE",
        f"{first.pace.label} was slower than a later run of the same samples: either it was disturbed, or the system "
        f"keeps responses from run to run; of {plan.max_samples:,} samples, too few were not issued yet to decide",
    )


def _bounded(done: Sequence[Measurement], run: Run, expected_s: float) -> Run | Outcome:
    """The run, unless there were too many, or it would take too long."""
    measured_s = sum(one.pace.seconds for one in done)
    if len(done) >= MAX_RUNS:
        return Outcome("NONE", f"{len(done)} runs differ too much to be compared")
    if run.number > 1 and measured_s + expected_s > MAX_MEASURED_S:
        return Outcome("NONE", f"runs of {duration(measured_s)} differ too much to be compared")
    return run


def _kinds(plan: Plan, reference: Measurement) -> list[str]:
    """The repeating kinds, in the order of the first round."""
    repeats = [f"repeat-{index}" for index in plan.indices or (reference.typical,)]
    return repeats + [FEW] * (reference.run.samples >= MIN_SAMPLES_FOR_FEW)


def _rates(pairs: Sequence[_Pair], name: str) -> list[list[float]]:
    """Of each pair, the rates of its `reference` or its `test` run."""
    return [[one.numbers[name] for one in pair.findings if "limit" in one.numbers] for pair in pairs]


def _judge(plan: Plan, stage: Sequence[Measurement], kind: str) -> _Kind:
    first, *later = [one for one in stage if one.run.kind == REFERENCE]
    references = [first, *(one for one in later if one.pace.seconds >= plan.min_reference_s)]
    rows = [
        [_Pair(one, test, tuple(compare_paces(one.pace, test.pace, plan.threshold))) for one in references]
        for test in stage
        if test.run.kind == kind
    ]
    fresh = [row[0] for row in rows]  # beside the first reference, whose samples were new
    mildest = [min(row, key=lambda pair: pair.limit_ratio) for row in rows]
    over = [pair for row, pair in zip(rows, mildest, strict=True) if all(one.over for one in row)]
    if over:
        deciding_rate = min(over, key=lambda pair: pair.limit_ratio)
        clear = deciding_rate.limit_ratio >= CLEAR_EXCESS
        rounds = min(len(over), len(references))
        enough = rounds >= CLEAR_ROUNDS if clear else rounds >= CLOSE_ROUNDS and _alike(_rates(rows[0], "reference"))
        return _Kind("failed" if enough else "open", deciding_rate, clear)
    plausible = [pair for row in rows for pair in row if not pair.over and not pair.slower]
    settled = plausible or (mildest if _alike(_rates(fresh, "test")) else [])
    if settled and any(not pair.over for pair in fresh):
        return _Kind("passed", max(settled, key=lambda pair: pair.limit_ratio))
    if settled:
        deciding_rate = min(fresh, key=lambda pair: pair.limit_ratio)
        return _Kind("kept or disturbed", deciding_rate, deciding_rate.limit_ratio >= CLEAR_EXCESS)
    return _Kind("open", mildest[-1])


def _alike(runs: Sequence[Sequence[float]]) -> bool:
    """Whether the two fastest runs of a kind are about as fast as each other, in every rate.

    Args:
        runs: the rates of each run.
    """
    return len(runs) > 1 and all(sorted(values)[-1] <= ALIKE * sorted(values)[-2] for values in zip(*runs, strict=True))


def _decided(plan: Plan, done: Sequence[Measurement], judged: Mapping[str, _Kind]) -> Outcome | None:
    pairs = [one.deciding_rate for one in judged.values()]
    findings = tuple(one for pair in pairs for one in pair.findings)
    worst = max(pairs, key=lambda pair: pair.limit_ratio)
    if all(one.state == "passed" for one in judged.values()):
        return Outcome("PASS", "", worst.reference, worst.test, findings)
    failed = [one.deciding_rate for one in judged.values() if one.state == "failed"]
    # Of samples that were new in each stage, its first reference was slower than all that followed.
    failed += [one.deciding_rate for kind, one in judged.items() if _fails_by_stages(plan, done, kind, one)]
    if failed:
        worst = max(failed, key=lambda pair: pair.limit_ratio)
        return Outcome("FAIL", "", worst.reference, worst.test, findings)
    return None


def _fails_by_stages(plan: Plan, done: Sequence[Measurement], kind: str, here: _Kind) -> bool:
    """Whether new samples took far longer than repeated ones in several stages, while samples seen before did not."""
    size = done[-1].run.samples
    earlier = []
    for samples in sorted({one.run.samples for one in done} - {size}):
        stage = [one for one in done if one.run.samples == samples]
        name = kind if kind == FEW or plan.indices else _kinds(plan, stage[0])[0]
        if any(one.run.kind == name for one in stage):
            earlier.append(_judge(plan, stage, name))
    found = [one for one in (*earlier, here) if one.clear]
    return bool(earlier) and len(found) == len(earlier) + 1 >= CLEAR_ROUNDS
