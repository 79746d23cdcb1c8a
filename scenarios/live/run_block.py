"""A run in progress as a block of lines on a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from runs.wording import clock, duration, milliseconds
from scenarios.live.plain_lines import rate_text
from scenarios.live.run_view import LatencyView, LimitState, RunView

MAX_WIDTH = 110  # wider lines would wrap more often when the terminal becomes narrower
LABEL_WIDTH, P50_WIDTH, P99_WIDTH, GAUGE_WIDTH = 6, 14, 24, 12
MIN_GAUGE_WIDTH = 72  # width of a block from which latencies have a gauge
STATE_STYLES: dict[LimitState | None, str] = {
    "within limit": "green",
    "near limit": "yellow",
    "over limit": "bold red",
    None: "",
}
WARNING_STYLE, LABEL_STYLE, REST_STYLE, BAR_STYLE = "yellow", "dim", "dim", "cyan"


@dataclass(frozen=True)
class Signs:
    """The characters of bars and histories."""

    full: str
    half: str
    rest: str
    levels: str  # from low to high
    arrow: str


UNICODE = Signs("━", "╸", "─", "▁▂▃▄▅▆▇█", "›")
ASCII = Signs("=", "=", "-", "_.-=#", ">")


def signs_of(console: Console) -> Signs:
    """Return the characters that the encoding of a console contains."""
    return ASCII if console.options.ascii_only else UNICODE


@dataclass(frozen=True)
class _Row:
    """A line of a block."""

    rank: int  # a low terminal omits the lines with the highest ranks
    text: Text


def block_lines(view: RunView, width: int, height: int, signs: Signs = UNICODE) -> list[Text]:
    """Return the lines of a run, at most `height` lines of at most `width` columns."""
    columns = max(1, min(width, MAX_WIDTH))
    rows = list(_timed_rows(view, columns, signs) if view.is_timed else _untimed_rows(view, columns))
    rows.append(_Row(9, _steps(view, columns, signs)))
    shown_ranks = sorted(row.rank for row in rows)[: max(1, height)]
    lines = [row.text for row in rows if row.rank in shown_ranks]
    for line in lines:
        line.truncate(columns)
    return lines


def _timed_rows(view: RunView, columns: int, signs: Signs) -> Iterator[_Row]:
    left = "" if view.left_s is None else f", {clock(view.left_s)} left"
    yield _Row(0, _aligned(Text(view.title, "bold"), f"{clock(view.waited_s)}{left}", columns))
    yield _Row(1, _progress_bar(view, columns, signs))
    yield _Row(4, _rates(view))
    yield _Row(5, _open_queries(view, signs))
    latencies = [latency for latency in view.latencies if latency.p50_ms is not None or latency.p99_ms is not None]
    for rank, latency in enumerate(latencies, 2):
        yield _Row(rank, _latency(latency, columns, signs))
    for rank, warning in enumerate(view.warnings, 6):
        yield _Row(rank, Text(warning, WARNING_STYLE))
    yield from _remark(view)


def _untimed_rows(view: RunView, columns: int) -> Iterator[_Row]:
    yield _Row(0, _aligned(Text(view.title, "bold"), clock(view.waited_s), columns))
    yield _Row(1, Text(f"{view.doing} ({duration(view.stage_s)})"))
    yield from _remark(view)


def _remark(view: RunView) -> Iterator[_Row]:
    if view.remark:
        yield _Row(8, Text(view.remark, LABEL_STYLE))


def _aligned(left: Text, right: str, columns: int) -> Text:
    """Return a line with a text at each of its ends; the text at the right end stays in a narrow line."""
    left.truncate(max(0, columns - len(right) - 2), overflow="ellipsis")
    return left.append(" " * (columns - left.cell_len - len(right))).append(right)


def _label(text: str) -> Text:
    return Text().append(f"{text:<{LABEL_WIDTH}}", LABEL_STYLE)


def _progress_bar(view: RunView, columns: int, signs: Signs) -> Text:
    total = f" of {view.expected:,}" if view.expected else ""
    counts = f" {view.completed:,}{total} samples"
    percent = "" if view.share is None else f" {int(100 * view.share):>3}%"
    width = columns - len(counts) - len(percent)
    bar = _bar(view.share or 0.0, width, signs, BAR_STYLE) if width > 0 else Text()
    return bar.append(f"{counts}{percent}")


def _bar(share: float, width: int, signs: Signs, style: str) -> Text:
    halves = int(2 * width * min(share, 1.0))
    filled = signs.full * (halves // 2) + signs.half * (halves % 2)
    return Text().append(filled, style).append(signs.rest * (width - len(filled)), REST_STYLE)


def _rates(view: RunView) -> Text:
    offered = [f"offered {rate_text(view.offered_qps)}"] if view.offered_qps is not None else []
    rates = [*offered, f"completed {rate_text(view.completed_qps)}", f"{view.tokens_per_s:,.0f} tokens/s"]
    return _label("rate").append("  ".join(rates))


def _open_queries(view: RunView, signs: Signs) -> Text:
    text = _label("open").append(f"{view.open_queries:<{LABEL_WIDTH},} ")
    if len(view.open_history) > 1:
        text.append(sparkline(view.open_history, signs.levels), BAR_STYLE)
        text.append(f" max {max(view.open_history):,}", LABEL_STYLE)
    return text


def sparkline(values: Sequence[int], levels: str) -> str:
    """Return a character per value, with levels from 0 to the maximum."""
    highest = max(values)
    return "".join(levels[value * (len(levels) - 1) // highest if highest else 0] for value in values)


def _latency(latency: LatencyView, columns: int, signs: Signs) -> Text:
    p50 = "" if latency.p50_ms is None else f"p50 {milliseconds(latency.p50_ms)} ms"
    text = _label(latency.name).append(f"{p50:<{P50_WIDTH}}")
    if latency.p99_ms is None:
        return text.append(f"limit of p99: {latency.limit_ms:,.0f} ms" if latency.limit_ms else "", LABEL_STYLE)
    limit = f" of {latency.limit_ms:,.0f}" if latency.limit_ms else ""
    style = STATE_STYLES[latency.state]
    text.append(f"{f'p99 {milliseconds(latency.p99_ms)}{limit} ms':<{P99_WIDTH}}", style)
    if latency.share is not None:
        if columns >= MIN_GAUGE_WIDTH:
            text.append_text(_bar(latency.share, GAUGE_WIDTH, signs, style)).append("  ")
        text.append(str(latency.state), style)
    return text


def _steps(view: RunView, columns: int, signs: Signs) -> Text:
    """Return all steps of the run, with the present step emphasized; in a narrow line only the present step."""
    arrow = Text().append(f" {signs.arrow} ", REST_STYLE)
    line = arrow.join(Text(step, "bold" if step == view.step else REST_STYLE) for step in view.steps)
    if line.cell_len <= columns:
        return line
    return Text(f"step {view.steps.index(view.step) + 1} of {len(view.steps)}: {view.step}")
