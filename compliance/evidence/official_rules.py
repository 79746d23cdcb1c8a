"""The requirements on official results beyond LoadGen's own verdict, as rows of a table.

A row is a rule with its source, what is compared, and how. Without a value to compare there is no finding.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compliance.accuracy.accuracy_text import stated_score
from compliance.evidence.log_arithmetic import PRINTED, duration_ns, mean_output_tokens
from compliance.evidence.run_evidence import Requirements, RunEvidence
from compliance.judge.check import check, decides
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import OURS, RERUN, RuleRow
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.early_stopping import PERCENTILE, min_queries
from runs.numbers.numbers import LatencyNumbers, Numbers, reported_numbers
from runs.rounds import NO_LIMITS, ROUNDS, RoundBenchmark, TokenLimits

# All 356 published results of round v5.1 are within 2.3 % of their accuracy.txt, most within 0.5 %.
TOKENS_APART = 0.03
SEEDS = ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed")


@dataclass(frozen=True)
class RuleInput:
    """A log, and what a round requires of it."""

    detail: DetailLog
    scenario: str  # as the run claims it
    required: Requirements
    numbers: Numbers | None = None

    @property
    def entry(self) -> RoundBenchmark:
        return self.required.entry

    @property
    def percentile(self) -> float:
        """The share of the queries that must be within the limit."""
        return self.entry.percentiles.get(self.detail.scenario, PERCENTILE.get(self.detail.scenario, 0.99))

    @property
    def min_queries(self) -> int:
        """By early stopping. What a round requires as a setting is more where nothing stops early, and less where it
        is the whole dataset."""
        queries = min_queries(0 if self.detail.scenario == "Server" else 1, self.percentile)
        return min(queries, self.entry.min_queries.get(self.detail.scenario, queries))

    @property
    def token_latencies(self) -> bool:
        return self.detail.uses_token_latencies

    @property
    def limits(self) -> TokenLimits | None:
        """Of the latencies of tokens, where they are measured."""
        measured = self.detail.scenario == "Server" and self.token_latencies
        return self.entry.token_limits.get(self.scenario) if measured else None

    @property
    def latency_ms(self) -> float | None:
        """The limit of a whole query."""
        limit_ns = None if self.entry.token_latencies else self.entry.latency_ns.get(self.scenario)
        return None if limit_ns is None else limit_ns / 1e6


_CHECK = "[checker] performance_check."
Value = Callable[[RuleInput], Any]
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "at least": lambda found, wanted: found >= wanted,
    "at most": lambda found, wanted: found <= wanted,
    "below": lambda found, wanted: found < wanted,
    "": lambda found, wanted: math.isclose(found, wanted) if isinstance(wanted, float) else found == wanted,
    "one of": lambda found, wanted: found in wanted,
}


@dataclass(frozen=True)
class Row:
    """One comparison."""

    rule: str
    source: str
    summary: str
    fix: str
    name: str  # what is compared
    found: Value | str  # the key of a whole number in the log; or a function, None without a value
    how: str  # a key of _HOLDS
    wanted: Value
    shown: str = "{:,}"  # form of both values
    shown_found: str = ""
    why: str = ""  # after the required value
    slack: float = 0.0  # share of the wanted number, for numbers that LoadGen prints with few digits
    keys: tuple[str, ...] = ()  # records of the log that decide, if `found` is a function

    def judged(self, given: RuleInput) -> Iterator[Finding]:
        wanted = self.wanted(given)
        if wanted is None:
            return
        found = given.detail.integer(self.found) if isinstance(self.found, str) else self.found(given)
        if found is None:
            return
        bound = wanted if not self.slack else wanted * (1 - self.slack if self.how == "at least" else 1 + self.slack)
        required = ", ".join(wanted) if self.how == "one of" else self.shown.format(wanted)
        yield compared(
            self.rule,
            self.name,
            _HOLDS[self.how](found, bound),
            (self.shown_found or self.shown).format(found),
            f"{self.how} {required}".strip() + self.why,
            given.detail.path,
            decided_by=(self.found,) if isinstance(self.found, str) else self.keys,
            value=found,
            wanted=wanted,
        )


def _took_s(given: RuleInput) -> float | None:
    took_ns = duration_ns(given.detail, given.numbers) if given.numbers is not None else None
    return None if took_ns is None else took_ns / 1e9


def _mean_tokens(given: RuleInput) -> float | None:
    return mean_output_tokens(given.detail, given.numbers) if given.numbers and given.token_latencies else None


def _tokens_target(bound: str) -> Value:
    """A limit of output tokens a sample from the accuracy targets: a performance run issues the same samples."""
    return lambda given: getattr(given.entry.targets_of(given.scenario).get("TOKENS_PER_SAMPLE", NO_LIMITS), bound)


def _size_asked(given: RuleInput) -> int:
    entry, found = given.entry, given.detail.integer("qsl_reported_total_count")
    allowed = entry.data_set, entry.performance_samples, entry.accuracy_samples_of(given.scenario)
    return found if found in allowed else entry.data_set


def _latency_ms(given: RuleInput) -> float | None:
    """The latency effective limit; in Interactive, which has no such setting, the latency."""
    key = "result_99.00_percentile_latency_ns" if given.scenario == "Interactive" else "effective_target_latency_ns"
    found = given.detail.get(key)
    return found / 1e6 if isinstance(found, int) and given.detail.scenario == "Server" else None


def _of_queries(key: str) -> Value:
    """A number of the log; none in Offline, which has one query."""
    return lambda given: None if given.detail.scenario == "Offline" else given.detail.number(key)


def _limits(name: str, p99_key: str) -> tuple[Row, Row]:
    """Rows for a latency and for the effective limit. The official checker requires less than the limit, LoadGen no
    more than the limit."""

    def limit_ms(given: RuleInput) -> float | None:
        return None if given.limits is None else float(getattr(given.limits, f"{name}_ms"))

    def p99_ms(given: RuleInput) -> float | None:
        values: LatencyNumbers | None = getattr(given.numbers, f"{name}_ns")
        return None if values is None else values.p99 / 1e6

    def in_force_ms(given: RuleInput) -> float | None:
        return None if p99_ms(given) is None else given.detail.integer(limit_key) / 1e6

    title, limit_key = name.upper(), f"requested_server_{name}_latency"
    return (
        Row(f"perf-{name}", f"{_CHECK}llm_check; Interactive: [loadgen] mlperf.conf",
            f"p99 {title} is below the scenario's limit", "lower target_qps", f"p99 {title}",
            p99_ms, "below", limit_ms, "{:g} ms", "{:.2f} ms", keys=(p99_key,)),
        Row("perf-limits", "[loadgen] mlperf.conf", "LoadGen judged by the scenario's limits",
            "leave ttft_latency and tpot_latency alone", f"effective {title} limit",
            in_force_ms, "at most", limit_ms, "{:g} ms", why=", which early stopping is judged by", keys=(limit_key,)),
    )  # fmt: skip


PERFORMANCE_ROWS = (
    Row("perf-benchmark-scenario", "[rules] scenarios", "the benchmark has this scenario",
        "run a scenario of the benchmark", "scenario",
        lambda a: a.scenario, "one of", lambda a: a.required.scenarios, "{}"),
    Row("perf-min-duration", f"{_CHECK}min_duration_check", "min_duration is 600 s or more",
        "set min_duration = 600000 and rerun", "min_duration",
        "effective_min_duration_ms", "at least", lambda a: a.required.min_duration_ms, "{:,} ms"),
    Row("perf-duration", "[rules] minimum duration", "the run took 600 s or more",
        "raise Offline target_qps or lower SingleStream target_latency, and run again", "duration",
        _took_s, "at least", lambda a: a.required.min_duration_ms and a.required.min_duration_ms / 1000, "{:g} s",
        "{:.2f} s",
        slack=PRINTED, keys=("result_min_duration_met",)),
    Row("perf-max-duration", "[rules] minimum duration", "max_duration does not end a run before min_duration",
        "remove max_duration and run again", "max_duration",
        lambda a: a.detail.integer("effective_max_duration_ms") or None, "at least",
        lambda a: a.detail.integer("effective_min_duration_ms"), "{:,} ms", why=", the run's min_duration",
        keys=("effective_max_duration_ms",)),
    Row("perf-data-set", "[rules] dataset", "the whole dataset was in use", RERUN, "dataset",
        "qsl_reported_total_count", "", _size_asked, "{:,}", "{:,} samples"),
    Row("perf-sample-count", f"{_CHECK}performance_sample_count_check",
        "performance_sample_count is the dataset's size", "leave performance_sample_count_override alone",
        "performance_sample_count",
        "effective_performance_sample_count", "at least", lambda a: a.entry.performance_samples),
    Row("perf-samples", f"{_CHECK}min_query_count_check", "Offline's query has the whole dataset",
        "do not lower min_query_count", "samples in the query",
        lambda a: a.detail.samples_per_query if a.detail.scenario == "Offline" else None,
        "at least", lambda a: a.entry.offline_min_samples, keys=("generated_samples_per_query",)),
    Row("perf-percentile", "[loadgen] mlperf.conf", "the percentile is the scenario's",
        "leave target_latency_percentile alone", "percentile",
        _of_queries("effective_target_latency_percentile"), "at least", lambda a: a.percentile, "{:g}",
        keys=("effective_target_latency_percentile",)),
    Row("perf-queries", "[rules] early stopping", "there are queries enough for early stopping", "run longer",
        "queries", _of_queries("result_query_count"), "at least",
        lambda a: a.min_queries, "{:,.0f}",
        why=" (early stopping)", keys=("result_query_count",)),
    Row("perf-equal-issue", "[loadgen] mlperf.conf: sample_concatenate_permutation",
        "each sample is issued equally often",
        "leave sample_concatenate_permutation alone", "sample_concatenate_permutation",
        lambda a: str(a.detail.effective("sample_concatenate_permutation")).lower(), "",
        lambda a: "true" if a.entry.equal_issue else None, "{}",
        keys=("effective_sample_concatenate_permutation",)),
    Row("perf-token-latencies", f"{_CHECK}llm_check", "token latencies are in use", "leave use_token_latencies alone",
        "token latencies", lambda a: "on" if a.token_latencies else "off", "",
        lambda a: "on" if a.entry.token_latencies else None, "{}",
        why=" (use_token_latencies)",
        keys=("requested_use_token_latencies", "effective_use_token_latencies")),
    Row("perf-output-tokens", "[rules] generation settings",
        "no more output tokens a sample than the benchmark generates", "generate at most that many tokens",
        "output tokens", _mean_tokens, "at most", lambda a: a.entry.max_tokens.get("performance"),
        "{}", "{:.2f} a sample on average", slack=4 * PRINTED),
    *(
        Row("perf-tokens-per-sample", "[checker] TOKENS_PER_SAMPLE of accuracy-target and accuracy-upper-limit",
            "output tokens a sample are those that the accuracy target has",
            "compare tokens/s with samples/s in the logs; generate as in the accuracy run", "output tokens",
            _mean_tokens, how, _tokens_target(bound), "{:.2f}", "{:.2f} a sample on average", slack=4 * PRINTED)
        for how, bound in (("at least", "low"), ("at most", "high"))
    ),
    Row("perf-limits", f"{_CHECK}latency_check", "LoadGen judged by the scenario's limits",
        "leave target_latency alone", "target latency",
        _latency_ms, "at most", lambda a: a.latency_ms, "{:g} ms",
        keys=("effective_target_latency_ns", "result_99.00_percentile_latency_ns")),
    *_limits("ttft", "result_first_token_99.00_percentile_latency_ns"),
    *_limits("tpot", "result_time_per_output_token_99.00_percentile_ns"),
)  # fmt: skip
ACCURACY_ROWS = (
    Row("accuracy-samples", "[checker] accuracy_check.dataset_check", "the whole dataset was answered", RERUN,
        "dataset", "qsl_reported_total_count", "", _size_asked, "{:,}",
        "{:,} samples"),
)  # fmt: skip


def _declared(rows: Iterable[Row]) -> Iterator[RuleRow]:
    for row in {row.rule: row for row in rows}.values():
        yield row.rule, "error", row.source, row.summary, row.fix


@decides("official", *_declared(PERFORMANCE_ROWS), needs=("log", "numbers"))
def performance_limits(run: RunEvidence) -> Iterator[Finding]:
    """Apply the rows for performance runs."""
    given = RuleInput(run.detail, run.scenario_name, run.requirements, reported_numbers(run.detail))
    for row in PERFORMANCE_ROWS:
        yield from row.judged(given)


@decides("official", *_declared(ACCURACY_ROWS), needs=("log",))
def accuracy_limits(run: RunEvidence) -> Iterator[Finding]:
    """Apply the rows for accuracy runs."""
    given = RuleInput(run.detail, run.scenario_name, run.requirements)
    for row in ACCURACY_ROWS:
        yield from row.judged(given)


@decides(
    "official",
    ("perf-seeds", "error", f"{_CHECK}seeds_check", "the seeds are the round's",
     "run with the LoadGen of the round, or name the round with --round"),
    needs=("log",),
)  # fmt: skip
def performance_seeds(run: RunEvidence) -> Iterator[Finding]:
    """Are the effective seeds those of the round?"""
    yield seeds("perf-seeds", run.detail, run.requirements.rounds)


@decides(
    "official",
    ("accuracy-seeds", "error", "[rules] seeds of the round", "the seeds are the round's",
     "run with the LoadGen of the round"),
    needs=("log",),
)  # fmt: skip
def accuracy_seeds(run: RunEvidence) -> Iterator[Finding]:
    """Are the effective seeds those of the round?"""
    yield seeds("accuracy-seeds", run.detail, run.requirements.rounds)


def seeds(rule: str, detail: DetailLog, rounds: Sequence[str]) -> Finding:
    """Compare the three effective seeds with those of a round, or of several of which one is enough."""
    found = {name: detail.effective(name) for name in SEEDS}
    wanted = [vars(ROUNDS[name].seeds) for name in rounds]
    of = next((one for one in ROUNDS.values() if vars(one.seeds) == found), None)
    said = f"those of {of}" if of else "those of no known round"
    names, required = list(SEEDS), f"those of {' or '.join(rounds)}"
    if found not in wanted and len(wanted) == 1:  # then those that differ are named
        names = [name for name in SEEDS if found[name] != wanted[0][name]]
        said = ", ".join(f"effective_{name} is {found[name]}" for name in names) + (f", {said}" if of else "")
        required = f"{', '.join(str(wanted[0][name]) for name in names)} ({rounds[0]})"
    return compared(
        rule,
        "seeds",
        found in wanted,
        said,
        required,
        detail.path,
        decided_by=[f"effective_{name}" for name in names],
        value=str(of or "none known"),
        wanted=tuple(rounds),
    )


@decides(
    "plausible",
    ("perf-tokens-accuracy", "error", OURS, "the performance run has the output tokens a sample of the accuracy run",
     "compare tokens/s with samples/s in the logs; generate as in the accuracy run"),
)  # fmt: skip
def tokens_as_in_accuracy(tokens: float | None, detail: Path, text: str, named: str) -> Iterator[Finding]:
    """Compare output tokens a sample of a performance run with those in accuracy.txt.

    Args:
        tokens: output tokens a sample, by the detail log.
        text: the content of accuracy.txt. named: its name.
    """
    wanted = next(iter(stated_score(text.splitlines(), "tokens_per_sample").values), 0.0)
    if not tokens or wanted <= 0:
        return
    yield compared(
        "perf-tokens-accuracy",
        "output tokens of both runs",
        abs(tokens - wanted) <= TOKENS_APART * wanted,
        f"{tokens:.2f} a sample, by tokens/s and samples/s",
        f"{wanted:.2f}, as {named} has it, within 3 %",
        detail,
        value=tokens,
        wanted=wanted,
    )


PERFORMANCE, ACCURACY = (check(performance_limits),), (check(accuracy_limits),)
PERFORMANCE_SEEDS, ACCURACY_SEEDS = (check(performance_seeds),), (check(accuracy_seeds),)
