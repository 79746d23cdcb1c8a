"""Decision procedure of output_caching. From the finished runs it returns the next run or the outcome.

The module does not start runs or read files, so that simulations use the same code as the audit.

A stage has all runs with N samples. It begins with a reference run. A round has a run of each undecided repeating kind
and then a reference run. So each repeating run is between two reference runs, and a system that becomes faster or
slower affects both. No reference run has a sample that an earlier run issued to this engine. If the dataset has too few
such samples, the reference run gets a new engine.

Each repeating run is compared with each reference run of the stage. If a rate is equal to its limit, all orders of the
runs by speed are equally likely, whatever disturbs them. A kind fails if so many pairs are above the limit that this
has at most the probability MAX_CHANCE_OF_FAIL, and passes correspondingly. This is the rank test of Mann and Whitney.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, comb, gcd, sqrt
from statistics import median
from typing import Literal

from compliance.audits.pace import (
    Pace,
    Ratio,
    SampleLengths,
    compare_paces,
    length_finding,
    mean_lengths,
    pace_finding,
    rate_spread,
    relative_lengths,
)
from compliance.judge.verdict import Finding
from runs.wording import counted, duration

REFERENCE, FEW = "reference", "few"
MIN_SAMPLES_FOR_FEW = 16  # minimum number of samples for runs of the kind FEW
# Duration from which a reference run is long enough. In shorter runs, the start of threads and idle cores matter.
ENOUGH_REFERENCE_S = 2.0
AIM_S = 3.0  # planned duration of the next reference run; it exceeds the minimum, so one more stage is usually enough
# Minimum duration of a reference run that has all samples of the dataset.
MIN_REFERENCE_S = 0.5
MIN_GROWTH, MAX_GROWTH = 2, 16  # bounds for the growth of N per stage
MAX_ROUNDS = 7
MAX_RUNS = 32
MAX_MEASURED_S = 6 * 3600.0
MAX_CHANCE_OF_FAIL, MAX_CHANCE_OF_PASS = 0.002, 0.02
# Above this ratio of a rate to its limit in all pairs of runs, CLEAR_TESTS repeating runs are enough for FAIL.
CLEAR_EXCESS = 2.0
CLEAR_TESTS = 2
# Share of the threshold and its correction below which a rate is clearly below the limit.
CLEARLY_BELOW = 0.5
# Maximum ratio of the rates of comparable runs on a steady system.
STEADY = 1.08
# Maximum ratio of the rates of reference runs, whose samples differ, if the median decides after the last round.
COMPARABLE = 1.25
# Maximum ratio of the relative prompt and output tokens of a repeated sample, whose shares of the work are unknown.
MAX_SHARE = 1.5
ROUNDING = 1e-9  # a rate that is equal to the limit counts as too fast


@dataclass(frozen=True)
class Plan:
    """The samples and the limits with which an audit starts."""

    samples: int
    rows: int  # rows of the dataset that the audit may use
    threshold: float
    queries: int | None = None
    indices: tuple[int, ...] = ()  # positions of repeated samples; default: the sample nearest to the mean lengths
    starts_engine: bool = True  # False if the system is a server that the harness cannot start again

    @property
    def min_runs(self) -> int:
        """Number of runs of an audit with one round."""
        return 2 + max(1, len(self.indices)) + (self.samples >= MIN_SAMPLES_FOR_FEW)


@dataclass(frozen=True)
class CachingRun:
    """One run of the audit."""

    kind: str
    samples: int  # N of the stage
    queries: int
    number: int  # of the runs of this kind in the stage
    rows: tuple[int, ...] = ()  # rows of the dataset that LoadGen loads
    engine: int = 1  # number of the engine, from 1


@dataclass(frozen=True)
class Measurement:
    """A finished run. `loaded` contains the rows that LoadGen loaded, in its order."""

    run: CachingRun
    pace: Pace
    loaded: tuple[int, ...] = ()


@dataclass(frozen=True)
class CachingOutcome:
    """The outcome of the audit (NONE: no verdict is possible), and what decided it."""

    verdict: Literal["PASS", "FAIL", "NONE"]
    reason: str = ""
    fix: str = ""
    references: tuple[Measurement, ...] = ()  # reference runs of the last stage
    tests: tuple[Measurement, ...] = ()  # runs of the deciding kind
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()  # kinds that were left out


StepState = Literal["passed", "failed", "open"]


@dataclass(frozen=True)
class _Rate:
    """One rate of a kind of repeating runs: its ratio to the reference, for each pair of runs."""

    pairs: tuple[Ratio, ...]
    tests: int  # number of repeating runs

    @property
    def references(self) -> int:
        return len(self.pairs) // self.tests

    @property
    def above(self) -> int:
        """Number of pairs above the limit."""
        return sum(pair.excess >= 1 - ROUNDING for pair in self.pairs)

    @property
    def excess(self) -> float:
        return median(pair.excess for pair in self.pairs)

    @property
    def is_clear(self) -> bool:
        """True if the rate is far above its limit in all pairs of runs."""
        return min(pair.excess for pair in self.pairs) >= CLEAR_EXCESS

    def state(self, *, steady: bool) -> StepState:
        if chance(self.tests, self.references, len(self.pairs) - self.above) <= MAX_CHANCE_OF_FAIL:
            return "failed"
        if self.tests >= CLEAR_TESTS and self.is_clear:
            return "failed"
        clearly = all(pair.value < 1 + CLEARLY_BELOW * (pair.limit - 1) for pair in self.pairs)
        slowed = any(pair.value * max(1.0, 1 / (1 + pair.correction)) < 1 / STEADY for pair in self.pairs)
        if clearly and (self.tests > 1 or (steady and not slowed)):
            return "passed"
        return "passed" if chance(self.tests, self.references, self.above) <= MAX_CHANCE_OF_PASS else "open"

    def finding(self, kind: str, *, failed: bool) -> Finding:
        pair = sorted(self.pairs, key=lambda pair: pair.value)[len(self.pairs) // 2]
        limit = median(pair.limit for pair in self.pairs)
        correction_share = limit - 1 - pair.threshold
        value = median(pair.value for pair in self.pairs)
        value_text = (
            f"{value:.3f} × the reference ({self.above} of {counted(len(self.pairs), 'pair')} of runs at the limit)"
        )
        required = f"below {limit:.3f} (threshold {pair.threshold:g}, lengths {correction_share:+.3f})"
        numbers = {"ratio": value, "limit": limit, "threshold": pair.threshold, "correction": correction_share}
        numbers |= {"pairs": len(self.pairs), "pairs_at_limit": self.above}
        return pace_finding(f"{kind}: {pair.name}", not failed, value_text, required, name=pair.name, **numbers)


@dataclass(frozen=True)
class _Kind:
    """State of one kind of repeating runs in a stage."""

    name: str
    tests: tuple[Measurement, ...]
    rates: tuple[_Rate, ...]
    reference_spread: float

    @property
    def steady(self) -> bool:
        """True if the reference runs have nearly equal rates."""
        return self.reference_spread <= STEADY

    @property
    def by_median(self) -> StepState:
        """The state after the last round. Runs of equal samples must have nearly equal rates."""
        spread_of_tests = rate_spread([1 / test.pace.mean_latency_ns for test in self.tests])
        if spread_of_tests > STEADY or self.reference_spread > COMPARABLE:
            return "open"
        return "failed" if self.excess >= 1 - ROUNDING else "passed"

    @property
    def state(self) -> StepState:
        states = [rate.state(steady=self.steady) for rate in self.rates]
        return "failed" if "failed" in states else "open" if "open" in states else "passed"

    @property
    def is_clear(self) -> bool:
        return any(rate.is_clear for rate in self.rates)

    @property
    def excess(self) -> float:
        """Median ratio of the fastest rate to its limit."""
        return max(rate.excess for rate in self.rates)


def next_step(plan: Plan, done: Sequence[Measurement]) -> CachingRun | CachingOutcome:
    """Return the next run that the audit needs, or its outcome."""
    if not done:
        return _reference(plan, done, plan.samples, 1)
    size, engine = done[-1].run.samples, done[-1].run.engine
    stage = [measurement for measurement in done if measurement.run.samples == size]
    references = [measurement for measurement in stage if measurement.run.kind == REFERENCE]
    first, shortest_s = references[0], min(reference.pace.seconds for reference in references)
    if len(stage) == 1 and shortest_s < ENOUGH_REFERENCE_S:
        longer = _longer(plan, done, size, shortest_s)
        if longer > size:
            return _bounded(done, _reference(plan, done, longer, 1), shortest_s * MIN_GROWTH)
    if shortest_s < MIN_REFERENCE_S:
        samples = f"{counted(size, 'sample')} took {shortest_s:.3g} s, required: at least {MIN_REFERENCE_S:g} s"
        fix = "audit with a larger dataset or a slower model"
        return CachingOutcome("NONE", f"the system is too fast to be measured: {samples}", fix)
    kinds, notes = _kinds(plan, first)
    if not kinds:
        fix = "use --sample-index auto" if plan.indices else "audit with more --samples"
        return CachingOutcome("NONE", "; ".join(notes), fix)
    rounds, tests = (
        len(references) - 1,
        [measurement for measurement in stage if measurement.run.number <= len(references) - 1],
    )
    lengths = {
        row: length
        for measurement in done
        if measurement.run.kind == REFERENCE
        for row, length in measurement.pace.lengths.items()
    }
    judged = [_judge(plan, references, tests, kind, lengths) for kind in kinds] if rounds else []
    if (outcome := _decided(references, judged, notes, lengths)) is not None:
        return _remembered(plan, done) or outcome if outcome.verdict == "PASS" else outcome
    unsettled = [judged_kind.name for judged_kind in judged if judged_kind.state == "open"] or list(kinds)
    if rounds >= MAX_ROUNDS:
        return CachingOutcome("NONE", f"{', '.join(unsettled)}: {rounds} rounds differ too much to be compared", _IDLE)
    ran = {(measurement.run.kind, measurement.run.number) for measurement in stage}
    for kind in unsettled:
        if (kind, rounds + 1) not in ran:
            run = CachingRun(kind, size, plan.queries or size, rounds + 1, kinds[kind], engine)
            return _bounded(done, run, shortest_s)
    return _bounded(done, _reference(plan, done, size, rounds + 2), shortest_s)


_IDLE = "run the audit again on an idle machine"


@cache
def chance(tests: int, references: int, misses: int) -> float:
    """Return the probability of at most so many misplaced pairs, if all orders of the runs are equally likely."""
    return sum(_orders(tests, references, count) for count in range(misses + 1)) / comb(tests + references, tests)


@cache
def _orders(tests: int, references: int, misplaced: int) -> int:
    """Return the number of orders of the runs with exactly so many misplaced pairs."""
    if misplaced < 0:
        return 0
    if not tests or not references:
        return int(misplaced == 0)
    return _orders(tests - 1, references, misplaced - references) + _orders(tests, references - 1, misplaced)


# Samples -------------------------------------------------------------------------------------------------------------


@cache
def spread_rows(count: int) -> tuple[int, ...]:
    """Return all rows of a dataset in an order in which each part is spread evenly over the dataset.

    So parts of a dataset that is sorted by length have similar lengths. The step is near the golden ratio.
    """
    step = max(1, round(count * 0.618034))
    while gcd(step, count) != 1:
        step += 1
    return tuple(place * step % count for place in range(count))


def issued_rows(done: Iterable[Measurement], engine: int) -> set[int]:
    """Return the rows that runs issued to an engine."""
    return {row for measurement in done if measurement.run.engine == engine for row in measurement.pace.counts}


def _reference(plan: Plan, done: Sequence[Measurement], size: int, number: int) -> CachingRun | CachingOutcome:
    """Return a reference run of samples that the engine has not computed, on a new engine if they are too few."""
    engine = done[-1].run.engine if done else 1
    issued = issued_rows(done, engine)
    rows = [row for row in spread_rows(plan.rows) if row not in issued]
    if len(rows) < size and not plan.starts_engine:
        text = f"the dataset is too small: {len(rows)} of {counted(plan.rows, 'row')} are new to the server, and the "
        text += f"next reference run needs {size}"
        fix = "audit with a larger dataset, or with fewer --samples and a server that was just started"
        return CachingOutcome("NONE", text, fix)
    if len(rows) < size:
        engine, rows = engine + 1, list(spread_rows(plan.rows))
    return CachingRun(REFERENCE, size, size, number, tuple(rows[:size]), engine)


def _longer(plan: Plan, done: Sequence[Measurement], size: int, seconds: float) -> int:
    """Return the number of samples N with which a reference run will be long enough, if the dataset has so many."""
    most = plan.rows
    if not plan.starts_engine:  # Leave samples for the second reference run.
        most = (plan.rows - len(issued_rows(done, done[-1].run.engine))) // 2
    growth = min(MAX_GROWTH, max(MIN_GROWTH, ceil(AIM_S / max(seconds, 1e-9))))
    return min(size * growth, most)


def _kinds(plan: Plan, first: Measurement) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """Return the kinds of repeating runs with the rows that they load, and the reasons why others are left out."""
    kinds, notes = {}, []
    for index in plan.indices or (first.loaded.index(first.pace.rows_near_means[0]),):
        row, kind = first.loaded[index], f"repeat-{index}"
        if why := _too_far(plan, first.pace, (row,)):
            notes.append(f"{kind}: the repeated sample (row {row}) has {why}")
        else:
            kinds[kind] = first.run.rows
    if first.run.samples >= MIN_SAMPLES_FOR_FEW:
        rows = first.pace.rows_near_means
        if why := _too_far(plan, first.pace, rows):
            notes.append(f"{FEW}: the samples nearest to the mean lengths have {why}")
        else:
            kinds[FEW] = rows
    if plan.indices and notes:  # The user named a sample that cannot be compared.
        return {}, notes
    return kinds, notes


def _too_far(plan: Plan, pace: Pace, rows: tuple[int, ...]) -> str:
    """Return the lengths of rows as text if the correction of the limit cannot compensate for them."""
    prompts, outputs = relative_lengths(pace, dict.fromkeys(rows, 1), pace.lengths)
    if abs(1 / sqrt(prompts * outputs) - 1) <= plan.threshold and max(prompts, outputs) <= MAX_SHARE * min(
        prompts, outputs
    ):
        return ""
    return f"{prompts:.2f} × the mean prompt tokens and {outputs:.2f} × the mean output tokens of the reference run"


# Verdicts ------------------------------------------------------------------------------------------------------------


def _judge(
    plan: Plan, references: Sequence[Measurement], tests: Sequence[Measurement], kind: str, lengths: SampleLengths
) -> _Kind:
    tests_of_kind = tuple(test for test in tests if test.run.kind == kind)
    paces = [reference.pace for reference in references]
    rows = [
        compare_paces(paces, test.pace, plan.threshold, lengths) for test in tests_of_kind
    ]  # test → rate → references
    rates = tuple(
        _Rate(tuple(pair for pairs in column for pair in pairs), len(tests_of_kind))
        for column in zip(*rows, strict=True)
    )
    return _Kind(kind, tests_of_kind, rates, rate_spread([1 / pair.value for pair in rows[0][0]]))


def _decided(
    references: Sequence[Measurement], judged: Sequence[_Kind], notes: Sequence[str], lengths: SampleLengths
) -> CachingOutcome | None:
    if not judged:
        return None
    states: dict[str, StepState] = {judged_kind.name: judged_kind.state for judged_kind in judged}
    if (
        judged[0].steady
        and all(judged_kind.is_clear for judged_kind in judged)
        and sum(len(judged_kind.tests) for judged_kind in judged) >= CLEAR_TESTS
    ):
        states = dict.fromkeys(states, "failed")
    if len(references) > MAX_ROUNDS:
        states |= {judged_kind.name: judged_kind.by_median for judged_kind in judged if judged_kind.state == "open"}
    failed = [judged_kind for judged_kind in judged if states[judged_kind.name] == "failed"]
    if not failed and "open" in states.values():
        return None
    findings: list[Finding] = []
    for kind_result in judged:
        worst = max(kind_result.rates, key=lambda rate: rate.excess)
        for rate in kind_result.rates:
            is_failed = rate.state(steady=kind_result.steady) == "failed"
            is_failed |= kind_result.state != "failed" and states[kind_result.name] == "failed" and rate is worst
            findings.append(rate.finding(kind_result.name, failed=is_failed))
        counts = {row: count for test in kind_result.tests for row, count in test.pace.counts.items() if row in lengths}
        if counts:
            repeated = mean_lengths(_lengths_of(kind_result.tests), counts)[1]
            findings.append(length_finding(kind_result.name, repeated, mean_lengths(lengths, counts)[1]))
    deciding = max(failed or judged, key=lambda judged_kind: judged_kind.excess)
    verdict: Literal["PASS", "FAIL"] = "FAIL" if failed else "PASS"
    return CachingOutcome(verdict, "", "", tuple(references), deciding.tests, tuple(findings), tuple(notes))


def _remembered(plan: Plan, done: Sequence[Measurement]) -> CachingOutcome | None:
    """Return the outcome NONE if reference runs are faster on new engines, whose samples earlier engines computed."""
    references = [measurement for measurement in done if measurement.run.kind == REFERENCE]
    rates = [
        [reference.pace.samples_per_second for reference in references if (reference.run.engine == 1) == is_first]
        for is_first in (True, False)
    ]
    if not rates[1] or median(rates[1]) < (1 + plan.threshold) * max(rates[0]):
        return None
    text = (
        f"samples that an earlier engine had computed took less time on a new engine: {median(rates[1]):.6g} instead "
    )
    text += f"of at most {max(rates[0]):.6g} samples/s; either the system keeps responses outside the engine, or the "
    text += "first runs were disturbed"
    return CachingOutcome("NONE", text, "audit with a larger dataset, which needs no new engine")


def _lengths_of(tests: Sequence[Measurement]) -> SampleLengths:
    """Return the mean lengths of each row over several runs."""
    rows = {row for test in tests for row in test.pace.lengths}
    lengths = {}
    for row in rows:
        both = [(test.pace.lengths[row], test.pace.counts[row]) for test in tests if row in test.pace.lengths]
        total = sum(count for _, count in both)
        lengths[row] = (both[0][0][0], sum(length[1] * count for length, count in both) / total)
    return lengths


def _bounded(
    done: Sequence[Measurement], run: CachingRun | CachingOutcome, expected_s: float
) -> CachingRun | CachingOutcome:
    """Return the run, or the outcome NONE if the audit already has too many runs or took too long."""
    measured_s = sum(measurement.pace.seconds for measurement in done)
    if isinstance(run, CachingOutcome):
        return run
    if len(done) >= MAX_RUNS:
        return CachingOutcome("NONE", f"{len(done)} runs differ too much to be compared", _IDLE)
    if run.number > 1 and measured_s + expected_s > MAX_MEASURED_S:
        return CachingOutcome("NONE", f"runs of {duration(measured_s)} differ too much to be compared", _IDLE)
    return run
