"""Decision procedure of output_caching. From the finished runs it returns the next run or the outcome.

The module does not start runs or read files, so that simulations use the same code as the audit.

A stage has all runs with N samples. It begins with a reference run of unique samples, and one run of each repeating
kind. Up to MAX_ROUNDS - 1 repetitions follow. A repetition has a run of each undecided kind, then a reference run. The
reversed order compensates for systems that become faster or slower. A disturbance only slows a run down. So a kind
fails only if it is faster than all reference runs: by a wide margin in CLEAR_ROUNDS repetitions, or in CLOSE_ROUNDS
repetitions. A kind passes if one of its runs is as slow as a reference run.

In two cases, a stage ends without an outcome and the next stage has more samples. Either the reference run is too short
to be measured. Or only a later reference run, with samples that are no longer new, is as fast as the repeating runs.
Then the first reference run was disturbed, or the system caches responses.
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
MIN_SAMPLES_FOR_FEW = 16  # minimum number of samples for runs of the kind FEW
# Minimum duration of a reference run. In shorter runs, the start of threads and idle cores dominate the time.
MIN_REFERENCE_S = 2.0
AIM_S = 3.0  # planned duration of the next reference run; it exceeds the minimum, so one more stage is usually enough
MIN_GROWTH, MAX_GROWTH = 2, 16  # bounds for the growth of N per stage
# Minimum share of new samples if N is raised. Then the reference run shows how long new samples take.
MIN_NEW_SHARE = 1 / 3
MAX_ROUNDS = 6
MAX_RUNS = 30
MAX_MEASURED_S = 4 * 3600.0
# Above this ratio of a rate to its limit, CLEAR_ROUNDS repetitions are enough. Below it, CLOSE_ROUNDS are needed.
CLEAR_EXCESS = 2.0
CLEAR_ROUNDS, CLOSE_ROUNDS = 2, 5
# A repeating run that is slower than the reference by this ratio is repeated: a disturbance may hide a cache.
SLOWER = 1.3
ALIKE = 1.15  # maximum ratio between the rates of two runs of one kind that confirm each other


@dataclass(frozen=True)
class Plan:
    """The number and the indices of samples, and the limits, with which an audit starts."""

    samples: int
    max_samples: int
    threshold: float
    queries: int | None = None
    indices: tuple[int, ...] = ()  # positions of repeated samples; default: the sample nearest to the mean lengths
    min_reference_s: float = MIN_REFERENCE_S

    @property
    def min_runs(self) -> int:
        """Number of runs of an audit without repetitions."""
        return 1 + max(1, len(self.indices)) + (self.samples >= MIN_SAMPLES_FOR_FEW)


@dataclass(frozen=True)
class Run:
    """One run of the audit; `number` counts the repetitions in the stage, which has all runs with equal `samples`."""

    kind: str
    samples: int
    queries: int
    number: int


@dataclass(frozen=True)
class Measurement:
    """A finished run. In a reference run, `typical` is the position of the sample nearest to the mean lengths."""

    run: Run
    pace: Pace
    typical: int = 0


@dataclass(frozen=True)
class Outcome:
    """The outcome of the audit (NONE: no verdict is possible), the deciding pair of runs, and the findings."""

    verdict: Literal["PASS", "FAIL", "NONE"]
    reason: str = ""
    reference: Measurement | None = None
    test: Measurement | None = None
    findings: tuple[Finding, ...] = ()  # findings on the pair of runs that decides for each kind


@dataclass(frozen=True)
class _Pair:
    """A repeating run, and the reference run of the same stage that it is compared with."""

    reference: Measurement
    test: Measurement
    findings: tuple[Finding, ...]

    @property
    def limit_ratio(self) -> float:
        """Largest ratio of a rate to its limit."""
        return limit_ratio(self.findings)

    @property
    def over(self) -> bool:
        return any(not one.passed for one in self.findings if "limit" in one.numbers)

    @property
    def slower(self) -> bool:
        rates = [one.numbers for one in self.findings if "limit" in one.numbers]
        return any(rate["test"] * SLOWER < rate["expected"] for rate in rates)


State = Literal["passed", "failed", "open", "met or disturbed"]


@dataclass(frozen=True)
class _Kind:
    """State of one kind of repeating runs in a stage."""

    state: State
    deciding_rate: _Pair
    clear: bool = False  # True if the rate is far above the limit


def next_step(plan: Plan, done: Sequence[Measurement]) -> Run | Outcome:
    """Return the next run that the audit needs, or its outcome."""
    if not done:
        return Run(REFERENCE, plan.samples, plan.samples, 1)
    stage = [one for one in done if one.run.samples == done[-1].run.samples]
    references = [one for one in stage if one.run.kind == REFERENCE]
    size, first_s = references[0].run.samples, references[0].pace.seconds
    if first_s < plan.min_reference_s:
        more = _longer(size, first_s, plan.max_samples)
        why = f"{counted(size, 'sample')} took {first_s:.3g} s, required: at least {plan.min_reference_s:g} s"
        return (
            _more_samples(done, more)
            if more > size
            else Outcome("NONE", f"the system is too fast to be measured: {why}")
        )
    if min(one.pace.seconds for one in references) < plan.min_reference_s:
        return _new_samples(plan, done, references[0])
    # Number of complete repetitions. The first one ends with a repeating run, each later one with a reference run.
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
    if not unsettled:  # Only a stage with new samples can decide.
        return _new_samples(plan, done, references[0])
    if complete >= MAX_ROUNDS:
        return Outcome("NONE", f"{', '.join(unsettled)}: {complete} repetitions differ too much to be compared")
    for kind in unsettled:
        if (kind, complete + 1) not in ran:
            return _bounded(done, Run(kind, size, plan.queries or size, complete + 1), first_s)
    return _bounded(done, Run(REFERENCE, size, size, complete + 1), first_s)


def _longer(size: int, seconds: float, most: int) -> int:
    """Return the number of samples N with which a reference run will be long enough."""
    growth = min(MAX_GROWTH, max(MIN_GROWTH, ceil(AIM_S / max(seconds, 1e-9))))
    return min(size * growth, most)


def _more_samples(done: Sequence[Measurement], size: int) -> Run | Outcome:
    return _bounded(done, Run(REFERENCE, size, size, 1), done[-1].pace.seconds * MIN_GROWTH)


def _new_samples(plan: Plan, done: Sequence[Measurement], first: Measurement) -> Run | Outcome:
    """Return a run with more samples. It is needed if a later reference run was faster than the first one."""
    size = first.run.samples
    more = min(size * MIN_GROWTH, plan.max_samples)
    if more - size >= MIN_NEW_SHARE * more:
        return _more_samples(done, more)
    return Outcome(
        "NONE",
        f"{first.pace.label} was slower than a later run of the same samples: either it was disturbed, or the system "
        f"caches responses between runs; the dataset of {plan.max_samples:,} samples has too few new samples to decide",
    )


def _bounded(done: Sequence[Measurement], run: Run, expected_s: float) -> Run | Outcome:
    """Return the run, or the outcome NONE if the audit already has too many runs or took too long."""
    measured_s = sum(one.pace.seconds for one in done)
    if len(done) >= MAX_RUNS:
        return Outcome("NONE", f"{len(done)} runs differ too much to be compared")
    if run.number > 1 and measured_s + expected_s > MAX_MEASURED_S:
        return Outcome("NONE", f"runs of {duration(measured_s)} differ too much to be compared")
    return run


def _kinds(plan: Plan, reference: Measurement) -> list[str]:
    """Return the kinds of repeating runs, in the order of their first runs."""
    repeats = [f"repeat-{index}" for index in plan.indices or (reference.typical,)]
    return repeats + [FEW] * (reference.run.samples >= MIN_SAMPLES_FOR_FEW)


def _rates(pairs: Sequence[_Pair], name: str) -> list[list[float]]:
    """Return the rates of one run of each pair: of the `reference` or of the `test` run."""
    return [[one.numbers[name] for one in pair.findings if "limit" in one.numbers] for pair in pairs]


def _judge(plan: Plan, stage: Sequence[Measurement], kind: str) -> _Kind:
    first, *later = [one for one in stage if one.run.kind == REFERENCE]
    references = [first, *(one for one in later if one.pace.seconds >= plan.min_reference_s)]
    rows = [
        [_Pair(one, test, tuple(compare_paces(one.pace, test.pace, plan.threshold))) for one in references]
        for test in stage
        if test.run.kind == kind
    ]
    fresh = [row[0] for row in rows]  # compared with the first reference run, whose samples were new
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
        return _Kind("met or disturbed", deciding_rate, deciding_rate.limit_ratio >= CLEAR_EXCESS)
    return _Kind("open", mildest[-1])


def _alike(runs: Sequence[Sequence[float]]) -> bool:
    """Return True if the two fastest runs of a kind are nearly equal in every rate.

    Args:
        runs: Rates of each run.
    """
    return len(runs) > 1 and all(sorted(values)[-1] <= ALIKE * sorted(values)[-2] for values in zip(*runs, strict=True))


def _decided(plan: Plan, done: Sequence[Measurement], judged: Mapping[str, _Kind]) -> Outcome | None:
    pairs = [one.deciding_rate for one in judged.values()]
    findings = tuple(one for pair in pairs for one in pair.findings)
    worst = max(pairs, key=lambda pair: pair.limit_ratio)
    if all(one.state == "passed" for one in judged.values()):
        return Outcome("PASS", "", worst.reference, worst.test, findings)
    failed = [one.deciding_rate for one in judged.values() if one.state == "failed"]
    # Count a kind if it was far faster than the first reference run in each stage. The samples of that run were new.
    failed += [one.deciding_rate for kind, one in judged.items() if _fails_by_stages(plan, done, kind, one)]
    if failed:
        worst = max(failed, key=lambda pair: pair.limit_ratio)
        return Outcome("FAIL", "", worst.reference, worst.test, findings)
    return None


def _fails_by_stages(plan: Plan, done: Sequence[Measurement], kind: str, here: _Kind) -> bool:
    """Return True if new samples took far longer than repeated samples in multiple stages."""
    size = done[-1].run.samples
    earlier = []
    for samples in sorted({one.run.samples for one in done} - {size}):
        stage = [one for one in done if one.run.samples == samples]
        name = kind if kind == FEW or plan.indices else _kinds(plan, stage[0])[0]
        if any(one.run.kind == name for one in stage):
            earlier.append(_judge(plan, stage, name))
    found = [one for one in (*earlier, here) if one.clear]
    return bool(earlier) and len(found) == len(earlier) + 1 >= CLEAR_ROUNDS
