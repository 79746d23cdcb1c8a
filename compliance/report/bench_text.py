"""The texts of the page of a bench: the conclusion in one sentence, key numbers, repeated loads and missing checks."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from compliance.report.bench_charts import MEASURES
from runs.bench.bench_record import BenchRecord, BenchRun, Latency
from runs.wording import counted, four_digits, limit_text, milliseconds


class KeyNumber(NamedTuple):
    """A number with its unit and, for a latency, its limit."""

    value: str
    name: str


def conclusion(record: BenchRecord) -> str:
    """Return the result of a bench in one sentence."""
    best = record.best
    what = f"rate within the limits ({record.limits})" if record.limits else "rate without saturation"
    if best is not None and best.low is not None:
        tokens = f", {best.tokens_per_s:,.0f} output tokens/s" if best.tokens_per_s else ""
        above = "no measured rate" if best.high is None else f"{four_digits(best.high)} queries/s"
        return f"Highest {what}: {four_digits(best.low)} queries/s{tokens}; {above} is too high."
    if record.undecided:
        return f"No best rate: {record.undecided}."
    runs = [run for run in record.runs if run.verdict != "failed"]
    if rates := [run.asked_qps for run in runs if run.asked_qps]:
        return f"No {what} was found; lowest measured rate: {four_digits(min(rates))} queries/s."
    if measured := [run for run in runs if run.output_tokens_per_s]:
        fastest = max(measured, key=lambda run: run.output_tokens_per_s or 0)
        load = f"{fastest.concurrency} open queries" if fastest.concurrency else fastest.scenario
        return f"Highest throughput: {fastest.output_tokens_per_s:,.0f} output tokens/s ({load})."
    return "No run has numbers."


def key_numbers(record: BenchRecord) -> list[KeyNumber]:
    """Return the numbers of the run at the best rate, its second run, and the Offline rate."""
    runs = {run.number: run for run in record.runs}
    numbers = []
    best = runs.get(record.best.run) if record.best is not None and record.best.run is not None else None
    again = runs.get(record.best.again) if record.best is not None and record.best.again is not None else None
    if best is not None and best.asked_qps is not None:
        numbers.append(KeyNumber(four_digits(best.asked_qps), "queries/s, best rate"))
        for measure, name, limit_name in MEASURES:
            latency: Latency | None = getattr(best, measure)
            value = None if latency is None else latency.at(record.percentile or "p50")
            if value is not None and not (measure == "latency" and getattr(record.limits, limit_name, None) is None):
                limit = limit_text(getattr(record.limits, limit_name, None))
                text = f"ms {record.percentile or 'p50'} {name} at this rate, limit {limit}"
                second = None if again is None else getattr(again, measure)
                repeated = None if second is None else second.at(record.percentile or "p50")
                text += "" if repeated is None else f"; second run: {milliseconds(repeated)}"
                numbers.append(KeyNumber(milliseconds(value), text))
    offline = next(
        (run.output_tokens_per_s for run in record.runs if run.kind == "offline" and run.output_tokens_per_s), None
    )
    if offline:
        numbers.append(KeyNumber(four_digits(offline), "output tokens/s, Offline"))
    return numbers


def repeated_loads(record: BenchRecord, labels: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield name and values of each load with multiple runs: median (lowest to highest).

    Args:
        labels: Names of the runs.
    """
    by_load: dict[tuple[str, float | None], list[tuple[str, BenchRun]]] = {}
    for label, run in zip(labels, record.runs, strict=True):
        by_load.setdefault((run.kind, run.asked_qps or run.concurrency), []).append((label, run))
    for group in by_load.values():
        if len(group) > 1:
            runs = [run for _, run in group]
            yield f"{group[0][0]}, {counted(len(runs), 'run')}", "; ".join(_spreads(runs))


def _spreads(runs: Sequence[BenchRun]) -> Iterator[str]:
    for name, values in (
        ("output tokens/s", [run.output_tokens_per_s for run in runs]),
        ("mean TTFT, ms", [None if run.ttft is None else run.ttft.mean for run in runs]),
        ("mean TPOT, ms", [None if run.tpot is None else run.tpot.mean for run in runs]),
    ):
        numbers = [value for value in values if value is not None]
        if len(numbers) == len(runs):
            middle, low, high = map(milliseconds, (median(numbers), min(numbers), max(numbers)))
            yield f"{name} {middle} ({low} to {high})"


def unchecked(record: BenchRecord) -> Iterator[str]:
    """Yield what the runs of a bench cannot show."""
    done = [run for run in record.runs if run.verdict != "failed"]
    counts = [run for run in done if run.tokens is not None]
    is_server = "://" in record.target
    lacking: dict[str, list[BenchRun]] = {
        "share of prompt tokens from a cache: unknown": [run for run in done if run.cached_share is None],
        "output tokens: estimated without a tokenizer": [run for run in counts if run.tokens and run.tokens.estimated],
        "output tokens: the server does not count them, so only the client counted them": [
            run for run in counts if is_server and run.tokens and run.tokens.server is None
        ],
        "delays of the client: not measured": [
            run for run in done if run.kind == "server" and (run.client is None or run.client.issue_to_engine is None)
        ],
        "processor time of other processes: not measured": [run for run in done if run.contention is None],
        "attestations: missing": [run for run in done if run.seal_sha256 is None],
    }
    if record.percentile is None:
        yield f"percentiles: {record.percentile_reason}"
    if record.limits is None:
        yield "limits: the scenario has none for this model; give --limits ttft=MS,tpot=MS"
    yield from (f"{text} ({counted(len(runs), 'run')})" for text, runs in lacking.items() if runs)
    if not any(run.again or run.repetition > 1 for run in record.runs):
        yield "noise: no load was measured twice; give --repeats 3"
    if record.accelerators is None:
        yield "tokens/s per accelerator: the number of accelerators is unknown"
