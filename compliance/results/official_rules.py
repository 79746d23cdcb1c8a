"""Rules that a result for submission must meet in addition to LoadGen's own verdict, as rows of a table.

A row has a rule, its source, the value to compare and the comparison. A missing value gives no finding.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compliance.accuracy.accuracy_text import stated_score
from compliance.judge.rule import OURS, RuleRow, check_of, decides
from compliance.judge.verdict import Finding, compared
from compliance.results.log_numbers import DURATION_FROM, PRINTED, TOKENS_FROM, Formula, duration_ns, mean_output_tokens
from compliance.results.run_claim import RunClaim
from compliance.results.run_evidence import RunEvidence
from runs.loadgen.detail_log import OF_ROUNDS, DetailLog
from runs.loadgen.early_stopping import PERCENTILE, min_queries
from runs.numbers.numbers import LatencyNumbers, Numbers, reported_numbers
from runs.numbers.unloaded import exceeded, unloaded
from runs.rounds import NO_LIMITS, ROUNDS, SEED_NAMES, TREE_ROUNDS, Round, RoundBenchmark, TokenLimits

# All 356 published results of round v5.1 are within 2.3% of their accuracy.txt, most within 0.5%.
TOKENS_APART = 0.03


@dataclass(frozen=True)
class RuleInput:
    """A detail log, its numbers, and the claim of its run."""

    detail: DetailLog
    claim: RunClaim
    numbers: Numbers | None = None

    @property
    def entry(self) -> RoundBenchmark:
        return self.claim.entry

    @property
    def percentile(self) -> float:
        """Share of the queries that must be within the limit."""
        return self.entry.percentiles.get(self.detail.scenario, PERCENTILE.get(self.detail.scenario, 0.99))

    @property
    def min_queries(self) -> int:
        """Minimum number of queries for early stopping, or the round's setting if that is lower."""
        queries = min_queries(0 if self.detail.scenario == "Server" else 1, self.percentile)
        return min(queries, self.entry.min_queries.get(self.detail.scenario, queries))

    @property
    def token_latencies(self) -> bool:
        return self.detail.uses_token_latencies

    @property
    def limits(self) -> TokenLimits | None:
        """Limits of TTFT and TPOT; None if the scenario has none."""
        measured = self.detail.scenario == "Server" and self.token_latencies
        return self.entry.token_limits.get(self.claim.scenario) if measured else None

    @property
    def latency_ms(self) -> float | None:
        """Limit of the latency of a whole query, in ms."""
        limit_ns = None if self.entry.token_latencies else self.entry.latency_ns.get(self.claim.scenario)
        return None if limit_ns is None else limit_ns / 1e6


_CHECK = "[checker] performance_check."
_LONGER = {"Offline": "raise target_qps in user.conf and rerun", "SingleStream": "lower target_latency and rerun"}
_WHOLE_DATASET = "rerun with the complete dataset of the benchmark: --dataset-path FILE"
RuleValue = Callable[[RuleInput], Any]
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "at least": lambda value, wanted: value >= wanted,
    "at most": lambda value, wanted: value <= wanted,
    "below": lambda value, wanted: value < wanted,
    "": lambda value, wanted: math.isclose(value, wanted) if isinstance(wanted, float) else value == wanted,
    "one of": lambda value, wanted: value in wanted,
}


@dataclass(frozen=True)
class Limit:
    """One comparison of a value with its limit."""

    rule: str
    source: str
    summary: str
    fix: str
    name: str  # name of the compared value
    found: RuleValue | str  # key of an integer in the log, or a function that returns the value or None
    how: str  # key of _HOLDS
    wanted: RuleValue
    shown: str = "{:,}"  # format of both values
    shown_found: str = ""
    why: str = ""  # text after the required value
    slack: float = 0.0  # tolerance as a share of the limit, for numbers that LoadGen prints with few digits
    keys: tuple[str, ...] = ()  # deciding keys of the log, if `found` is a function
    formula_of: Callable[[RuleInput], Formula] = lambda inputs: ("", ())  # formula of a computed value, and its keys
    fix_of: Callable[[RuleInput], str] = lambda inputs: ""  # replaces `fix` unless it is empty

    def judged(self, inputs: RuleInput) -> Iterator[Finding]:
        wanted = self.wanted(inputs)
        if wanted is None:
            return
        value = inputs.detail.integer(self.found) if isinstance(self.found, str) else self.found(inputs)
        if value is None:
            return
        bound = wanted if not self.slack else wanted * (1 - self.slack if self.how == "at least" else 1 + self.slack)
        required = ", ".join(wanted) if self.how == "one of" else self.shown.format(wanted)
        required += inputs.claim.limit_in_rules(self.rule)
        passed = _HOLDS[self.how](value, bound)
        formula, keys = self.formula_of(inputs)
        finding = compared(
            self.rule,
            passed,
            (self.shown_found or self.shown).format(value) + (f" ({formula})" if formula else ""),
            f"{self.how} {required}".strip() + self.why,
            inputs.detail.path,
            decided_by=(self.found,) if isinstance(self.found, str) else keys or self.keys,
            value=value,
            wanted=wanted,
            text=self.name,
        )
        yield finding if passed else replace(finding, fix=self.fix_of(inputs))


def _took_s(inputs: RuleInput) -> float | None:
    took_ns = duration_ns(inputs.detail, inputs.numbers) if inputs.numbers is not None else None
    return None if took_ns is None else took_ns / 1e9


def _equal_issue(inputs: RuleInput) -> str | None:
    """Return the setting as text; None if the log is of a LoadGen that may not log it."""
    effective = inputs.detail.effective("sample_concatenate_permutation")
    if effective is None and inputs.detail.version < OF_ROUNDS:
        return None
    return str(effective).lower()


def _mean_tokens(inputs: RuleInput) -> float | None:
    return mean_output_tokens(inputs.detail, inputs.numbers) if inputs.numbers and inputs.token_latencies else None


def _tokens_target(bound: str) -> RuleValue:
    """Return a function that reads a limit of output tokens per sample from the accuracy targets."""
    return lambda inputs: getattr(inputs.claim.targets.get("TOKENS_PER_SAMPLE", NO_LIMITS), bound)


def _size_asked(inputs: RuleInput) -> int:
    entry, size = inputs.entry, inputs.detail.integer("qsl_reported_total_count")
    allowed = entry.data_set, entry.performance_samples, entry.accuracy_samples_of(inputs.claim.scenario)
    return size if size in allowed else entry.data_set


def _latency_from(inputs: RuleInput) -> Formula:
    is_interactive = inputs.claim.scenario == "Interactive"
    return "", ("result_99.00_percentile_latency_ns" if is_interactive else "effective_target_latency_ns",)


def _latency_ms(inputs: RuleInput) -> float | None:
    """Return the effective latency limit in ms. Interactive has no such setting, so return its p99 latency."""
    value = inputs.detail.get(_latency_from(inputs)[1][0])
    return value / 1e6 if isinstance(value, int) and inputs.detail.scenario == "Server" else None


def _of_queries(key: str) -> RuleValue:
    """Return a function that reads a number of the log; None in Offline, because it has only one query."""
    return lambda inputs: None if inputs.detail.scenario == "Offline" else inputs.detail.number(key)


def _limits(name: str, p99_key: str) -> tuple[Limit, Limit]:
    """Return the rows for a latency and its limit. The checker requires "below", but LoadGen "at most"."""

    def limit_ms(inputs: RuleInput) -> float | None:
        return None if inputs.limits is None else float(getattr(inputs.limits, f"{name}_ms"))

    def p99_ms(inputs: RuleInput) -> float | None:
        values: LatencyNumbers | None = getattr(inputs.numbers, f"{name}_ns")
        return None if values is None else values.p99 / 1e6

    def in_force_ms(inputs: RuleInput) -> float | None:
        return None if p99_ms(inputs) is None else inputs.detail.integer(limit_key) / 1e6

    def fix(inputs: RuleInput) -> str:
        values: LatencyNumbers | None = getattr(inputs.numbers, f"{name}_ns")
        limit = limit_ms(inputs)
        fixed_share = unloaded(title, values, limit * 1e6, None) if values and limit else None
        return (
            exceeded(title, f"{limit:g} ms", f"{fixed_share.ns / 1e6:.2f} ms", fixed_share.queries)
            if fixed_share
            else ""
        )

    title, limit_key = name.upper(), f"requested_server_{name}_latency"
    return (
        Limit(f"perf-{name}", f"{_CHECK}llm_check; Interactive: [loadgen] mlperf.conf",
            f"p99 {title}", "lower target_qps and rerun", f"p99 {title}",
            p99_ms, "below", limit_ms, "{:,.10g} ms", "{:,.2f} ms", keys=(p99_key,), fix_of=fix),
        Limit("perf-limits", "[loadgen] mlperf.conf", "latency limit in LoadGen's settings",
            "remove ttft_latency and tpot_latency from user.conf", f"{title} limit in LoadGen's settings",
            in_force_ms, "at most", limit_ms, "{:,.10g} ms", why=" (limit for early stopping)", keys=(limit_key,)),
    )  # fmt: skip


PERFORMANCE_ROWS = (
    Limit("perf-benchmark-scenario", "[rules] scenarios", "scenario of the run",
        "run a scenario of the benchmark: --scenario NAME", "scenario",
        lambda a: a.claim.scenario, "one of",
        lambda a: tuple(sorted(a.entry.scenarios)) if a.claim.division is None else None, "{}"),
    Limit("perf-min-duration", f"{_CHECK}min_duration_check", "effective min_duration",
        "set min_duration = 600000 in user.conf and rerun", "min_duration",
        "effective_min_duration_ms", "at least", lambda a: a.claim.min_duration_ms, "{:,} ms"),
    Limit("perf-duration", "[rules] minimum duration", "duration of the run",
        "set min_duration = 600000 in user.conf and rerun", "duration",
        _took_s, "at least", lambda a: a.claim.min_duration_s, "{:,.10g} s",
        "{:,.2f} s",
        slack=PRINTED, formula_of=lambda a: DURATION_FROM.get(a.detail.scenario, ("", ())),
        fix_of=lambda a: _LONGER.get(a.detail.scenario, "")),
    Limit("perf-max-duration", "[rules] minimum duration", "effective max_duration, compared with min_duration",
        "remove max_duration from user.conf and rerun", "max_duration",
        lambda a: a.detail.integer("effective_max_duration_ms") or None, "at least",
        lambda a: a.detail.integer("effective_min_duration_ms"), "{:,} ms", why=" (min_duration of the run)",
        keys=("effective_max_duration_ms",)),
    Limit("perf-data-set", "[rules] dataset", "number of samples in the dataset", _WHOLE_DATASET, "dataset size",
        "qsl_reported_total_count", "", _size_asked, "{:,} samples"),
    Limit("perf-sample-count", f"{_CHECK}performance_sample_count_check",
        "effective performance_sample_count", "remove performance_sample_count_override from user.conf",
        "LoadGen's setting performance_sample_count",
        "effective_performance_sample_count", "at least", lambda a: a.entry.performance_samples),
    Limit("perf-samples", f"{_CHECK}min_query_count_check", "number of samples in the Offline query",
        "remove min_query_count from user.conf, or set it to the required number", "samples in the Offline query",
        lambda a: a.detail.samples_per_query if a.detail.scenario == "Offline" else None,
        "at least", lambda a: a.entry.offline_min_samples, keys=("generated_samples_per_query",)),
    Limit("perf-percentile", "[loadgen] mlperf.conf", "effective target_latency_percentile",
        "remove target_latency_percentile from user.conf", "target percentile",
        _of_queries("effective_target_latency_percentile"), "at least", lambda a: a.percentile, "{:g}",
        keys=("effective_target_latency_percentile",)),
    Limit("perf-queries", "[rules] early stopping", "number of queries for early stopping",
        "raise min_duration in user.conf and rerun", "number of queries", _of_queries("result_query_count"), "at least",
        lambda a: a.min_queries, "{:,.0f}",
        why=" (minimum for early stopping)", keys=("result_query_count",)),
    Limit("perf-equal-issue", "[loadgen] mlperf.conf: sample_concatenate_permutation",
        "effective sample_concatenate_permutation",
        "remove sample_concatenate_permutation from user.conf", "sample_concatenate_permutation",
        _equal_issue, "",
        lambda a: "true" if a.entry.equal_issue else None, "{}",
        keys=("effective_sample_concatenate_permutation",)),
    Limit("perf-token-latencies", f"{_CHECK}llm_check", "effective use_token_latencies",
        "remove use_token_latencies from user.conf",
        "token latencies", lambda a: "on" if a.token_latencies else "off", "",
        lambda a: "on" if a.entry.token_latencies else None, "{}",
        why=" (use_token_latencies)",
        keys=("requested_use_token_latencies", "effective_use_token_latencies")),
    Limit("perf-output-tokens", "[rules] generation settings",
        "output tokens per sample", "limit the output tokens to the maximum of the benchmark",
        "output tokens", _mean_tokens, "at most", lambda a: a.entry.max_tokens.get("performance"),
        "{} per sample", "{:.2f} per sample on average", slack=4 * PRINTED,
        formula_of=lambda a: TOKENS_FROM.get(a.detail.scenario, ("", ()))),
    *(
        Limit("perf-tokens-per-sample", "[checker] TOKENS_PER_SAMPLE of accuracy-target and accuracy-upper-limit",
            "output tokens per sample, compared with the accuracy target",
            "rerun with the generation settings of the accuracy run", "output tokens",
            _mean_tokens, how, _tokens_target(bound), "{:.2f} per sample", "{:.2f} per sample on average",
            slack=4 * PRINTED, formula_of=lambda a: TOKENS_FROM.get(a.detail.scenario, ("", ())))
        for how, bound in (("at least", "low"), ("at most", "high"))
    ),
    Limit("perf-limits", f"{_CHECK}latency_check", "latency limit in LoadGen's settings",
        "remove target_latency from user.conf", "target latency",
        _latency_ms, "at most", lambda a: a.latency_ms, "{:,.10g} ms",
        formula_of=_latency_from),
    *_limits("ttft", "result_first_token_99.00_percentile_latency_ns"),
    *_limits("tpot", "result_time_per_output_token_99.00_percentile_ns"),
)  # fmt: skip
ACCURACY_ROWS = (
    Limit("accuracy-samples", "[checker] accuracy_check.dataset_check", "number of samples in the dataset",
        _WHOLE_DATASET, "dataset size", "qsl_reported_total_count", "", _size_asked, "{:,} samples"),
)  # fmt: skip


def _declared(rows: Iterable[Limit]) -> Iterator[RuleRow]:
    for row in {row.rule: row for row in rows}.values():
        yield row.rule, "error", row.source, row.summary, row.fix


@decides("official", *_declared(PERFORMANCE_ROWS), needs=("log", "numbers"))
def performance_limits(run: RunEvidence) -> Iterator[Finding]:
    """Compare the values of a performance run with their limits (PERFORMANCE_ROWS)."""
    inputs = RuleInput(run.detail, run.claim, reported_numbers(run.detail))
    for row in PERFORMANCE_ROWS:
        yield from row.judged(inputs)


@decides("official", *_declared(ACCURACY_ROWS), needs=("log",))
def accuracy_limits(run: RunEvidence) -> Iterator[Finding]:
    """Compare the values of an accuracy run with their limits (ACCURACY_ROWS)."""
    inputs = RuleInput(run.detail, run.claim)
    for row in ACCURACY_ROWS:
        yield from row.judged(inputs)


@decides(
    "official",
    ("perf-seeds", "error", f"{_CHECK}seeds_check", "random seeds of the run",
     "rerun with the LoadGen of the round, or give another round with --round"),
    needs=("log",),
)  # fmt: skip
def performance_seeds(run: RunEvidence) -> Iterator[Finding]:
    """Compare the effective seeds with the seeds of the round."""
    yield seeds("perf-seeds", run.detail, run.claim.rounds)


@decides(
    "official",
    ("accuracy-seeds", "error", "[rules] seeds of the round", "random seeds of the run",
     "rerun with the LoadGen of the round"),
    needs=("log",),
)  # fmt: skip
def accuracy_seeds(run: RunEvidence) -> Iterator[Finding]:
    """Compare the effective seeds with the seeds of the round."""
    yield seeds("accuracy-seeds", run.detail, run.claim.rounds)


def round_of_seeds(detail: DetailLog) -> Round | None:
    """Return the supported round that has the effective seeds of a log."""
    effective = {name: detail.effective(name) for name in SEED_NAMES}
    return next((in_round for in_round in ROUNDS.values() if vars(in_round.seeds) == effective), None)


def seeds(rule: str, detail: DetailLog, rounds: Sequence[str]) -> Finding:
    """Compare the three effective random seeds with the seeds of rounds. One round must match."""
    effective = {name: detail.effective(name) for name in SEED_NAMES}
    wanted = [vars(TREE_ROUNDS[name].seeds) for name in rounds]
    round_name = round_of_seeds(detail)
    value = f"seeds of {round_name}" if round_name else "seeds of no supported round"
    names, required = list(SEED_NAMES), f"seeds of {' or '.join(rounds)}"
    if effective not in wanted and len(wanted) == 1:  # then list only the seeds that differ
        names = [name for name in SEED_NAMES if effective[name] != wanted[0][name]]
        value = ", ".join(f"effective_{name} is {effective[name]}" for name in names) + (
            f", {value}" if round_name else ""
        )
        required = f"{', '.join(str(wanted[0][name]) for name in names)} ({rounds[0]})"
    kept = effective in wanted
    finding = compared(
        rule,
        kept,
        value,
        required,
        detail.path,
        decided_by=[f"effective_{name}" for name in names],
        value=str(round_name or "none known"),
        wanted=tuple(rounds),
        text="random seeds",
    )
    return (
        replace(
            finding,
            fix=f"rerun with the LoadGen of the round, or apply the rules of {round_name}: --round {round_name}",
        )
        if round_name and not kept
        else finding
    )


@decides(
    "plausible",
    ("perf-tokens-accuracy", "error", OURS, "output tokens per sample, compared with the accuracy run",
     "rerun with the generation settings of the accuracy run"),
)  # fmt: skip
def tokens_as_in_accuracy(tokens: float | None, detail: Path, text: str, named: str) -> Iterator[Finding]:
    """Compare the output tokens per sample of a performance run with accuracy.txt.

    Args:
        tokens: Output tokens per sample, by the detail log.
        text: Content of accuracy.txt. named: Its name.
    """
    wanted = next(iter(stated_score(text.splitlines(), "tokens_per_sample").values), 0.0)
    if not tokens or wanted <= 0:
        return
    yield compared(
        "perf-tokens-accuracy",
        abs(tokens - wanted) <= TOKENS_APART * wanted,
        f"{tokens:.2f} (tokens/s ÷ samples/s)",
        f"{wanted:.2f} ± {TOKENS_APART:.0%} ({named})",
        detail,
        value=tokens,
        wanted=wanted,
    )


PERFORMANCE, ACCURACY = (check_of(performance_limits),), (check_of(accuracy_limits),)
PERFORMANCE_SEEDS, ACCURACY_SEEDS = (check_of(performance_seeds),), (check_of(accuracy_seeds),)
