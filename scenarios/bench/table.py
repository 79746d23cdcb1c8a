"""The console output of a bench: a table with a line for each run, and the closing lines."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from runs.bench.bench_record import NEEDED, BenchRecord, BenchRun, Best, Latency
from runs.wording import four_digits, milliseconds, printable
from scenarios.console import say

WIDTH = 100
SEVERAL_TOKENS = 1.02  # mean number of tokens in a part above which the table states the number
_NAME = 13
_COLUMNS = (7, 7, 7, 7, 9, 7, 7, 9, 6, 10)  # widths after the name
_STYLES = {
    "maximum": "bold", "within": "green", "outside": "red", "saturated": "bold red", "unchecked": "yellow",
    "unclear": "yellow", "failed": "bold red",
}  # fmt: skip


def column_names(record: BenchRecord) -> str:
    """Return the names of the columns. Latencies are in ms."""
    high = record.percentile or "max"
    names = ("offered", "done", "tok/s", "open", "TTFT p50", high, "≤", "TPOT p50", high, "in limits")
    return _row("run", names) + "  verdict"


def line(record: BenchRecord, run: BenchRun) -> Text:
    """Return the line of a run, of at most WIDTH columns."""
    style = _STYLES.get(run.verdict, "")
    if run.verdict == "failed":
        return _one_line(f"{run_title(run):<{_NAME}} failed: {printable(' '.join(run.reasons))}", style)
    opened = None if run.open is None else "rising" if run.verdict == "saturated" else f"{run.open.mean:.3g}"
    tokens, within = run.output_tokens_per_s, run.within_limits
    cells = (
        *(rate(run.offered_qps), rate(run.done_qps), None if tokens is None else f"{tokens:.0f}", opened),
        *_latency(record, run.ttft),
        _ms(None if run.ttft is None else run.ttft.bound),
        *_latency(record, run.tpot),
        None if within is None else f"{100 * within:.1f} %",
    )
    text = _one_line(_row(run_title(run), cells))
    verdict = run.verdict.upper() if run.verdict in ("outside", "saturated") else run.verdict
    return text.append(f"  {verdict}", style)


def run_title(run: BenchRun) -> str:
    """Return a name of a run for the table: its kind and its load, or that it repeats the best rate."""
    if run.kind == "concurrency":
        return f"{run.concurrency} open"
    if run.kind == "offline":
        return "Offline"
    share = "" if run.share is None else f"{100 * run.share:.3g}%"
    return f"{'again' if run.again else run.scenario} {share or rate(run.asked_qps)}"


def reasons(run: BenchRun) -> Iterator[str]:
    """Yield the causes that may distort the numbers of a run, and the reasons for its verdict."""
    if run.verdict != "failed":
        yield from (f"  {reason}" for reason in run.reasons)


def bench_closing(record: BenchRecord) -> Iterator[str]:
    """Yield lines on the best rate, its second run, and the causes that may distort the numbers."""
    runs = {run.number: run for run in record.runs}
    best = record.best
    if record.undecided is not None:
        fix = "" if record.percentile else f"; give --queries {NEEDED['p90']} or more, or --limits none"
        yield f"no best rate: {record.undecided}{fix}"
    if best is not None:
        yield _best(record, best)
        if best.run is not None and best.again is not None:
            yield from _again(record, runs[best.run], runs[best.again])
    trust = [*_client(record), *_cached(record), *_tokens(record)]
    if any(run.tpot is not None and run.itl is None for run in record.runs):
        trust.append("ITL not measured")
    if trust:
        yield " · ".join(trust)


def _best(record: BenchRecord, best: Best) -> str:
    has_limits = record.limits is not None
    what = "within limits" if has_limits else "without saturation"
    if best.low is None:
        over = f"{rate(best.high)} q/s already {'exceeds a limit or ' if has_limits else ''}saturates the system"
        return f"no rate {what}: {over}"
    tokens = f" ({best.tokens_per_s:,.0f} tok/s at {rate(best.low)})" if best.tokens_per_s else ""
    if best.high is None:
        return f"best rate {what}: at least {rate(best.low)} q/s requested{tokens}; no measured rate is too high"
    return f"best rate {what}: between {rate(best.low)} and {rate(best.high)} q/s requested{tokens}"


def _again(record: BenchRecord, first: BenchRun, second: BenchRun) -> Iterator[str]:
    parts = []
    for name in ("ttft", "tpot"):
        before, after = (_value(record, getattr(run, name)) for run in (first, second))
        if before and after is not None:
            high = record.percentile or "max"
            parts.append(f"{high} {name.upper()} {milliseconds(after)} ms ({100 * (after / before - 1):+.0f} %)")
    if first.done_qps and second.done_qps:
        parts.append(f"{rate(second.done_qps)} q/s done ({100 * (second.done_qps / first.done_qps - 1):+.1f} %)")
    if parts:
        yield f"again: {', '.join(parts)}"


def _client(record: BenchRecord) -> Iterator[str]:
    late = [run.client.issue_to_engine for run in record.runs if run.client and run.client.issue_to_engine is not None]
    if late:
        yield f"client late p99 {milliseconds(max(late))} ms"


def _cached(record: BenchRecord) -> Iterator[str]:
    done = [run for run in record.runs if run.verdict != "failed" and run.tokens is not None]
    shares = [run.cached_share for run in done if run.cached_share is not None]
    if done:
        share = f"{100 * max(shares):.1f} %" if len(shares) == len(done) else "unknown"
        yield f"cached {share}"


def _tokens(record: BenchRecord) -> Iterator[str]:
    counts = [run.tokens for run in record.runs if run.tokens is not None]
    both = [(count.server, count.counted) for count in counts if count.server is not None and count.counted is not None]
    if any(count.estimated for count in counts):
        yield "tokens estimated"
    elif both:
        server, counted = (sum(numbers) for numbers in zip(*both, strict=True))
        same = server == counted
        yield "token counts agree" if same else f"tokens: server {server:,}, client {counted:,}"


def rate(value: float | None) -> str | None:
    """Return a rate with four significant digits; None for none."""
    return None if value is None else four_digits(value)


def _value(record: BenchRecord, latency: Latency | None) -> float | None:
    return None if latency is None else latency.at(record.percentile) if record.percentile else latency.max


def _latency(record: BenchRecord, latency: Latency | None) -> tuple[str | None, str | None]:
    return _ms(None if latency is None else latency.p50), _ms(_value(record, latency))


def _ms(value: float | None) -> str | None:
    return None if value is None else milliseconds(value) if value >= 0.1 else f"{value:.2g}"


def _row(name: str, cells: tuple[str | None, ...]) -> str:
    return f"{name:<{_NAME}}" + "".join(
        f"{'-' if cell is None else cell:>{width}}" for cell, width in zip(cells, _COLUMNS, strict=True)
    )


def _one_line(text: str, style: str = "") -> Text:
    return Text(text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}...", style, no_wrap=True, overflow="ignore")


def token_gaps(run: BenchRun) -> Iterator[str]:
    """Yield a line with the time between tokens, if it was measured."""
    if run.itl is None:
        return
    statistics = [(name, run.itl.at(name)) for name in ("p50", "p95", "p99")]
    cells = [f"{name} {_ms(value)}" for name, value in statistics if value is not None]
    has_parts = run.tokens_per_part is not None and run.tokens_per_part > SEVERAL_TOKENS
    parts = f" between parts of {run.tokens_per_part:.2f} tokens" if has_parts else ""
    yield f"  ITL {'  '.join(cells)} ms{parts}"


def show(console: Console, record: BenchRecord, run: BenchRun) -> None:
    """Print the line of a run, its time between tokens and its reasons."""
    console.print(line(record, run), highlight=False, soft_wrap=True)
    for text in token_gaps(run):
        say(console, text)
    for text in reasons(run):
        say(console, text)
