"""The results of runs as rows, CSV and a table."""

import csv
import io
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from rich.table import Table
from rich.text import Text

from compliance.accuracy.metrics import METRICS
from runs.numbers.load import Load
from runs.wording import milliseconds, moment, precise, printable
from scenarios.status.run_status import LATENCIES, STATISTICS, Row, RunStatus
from scenarios.status.snapshot import relative_text

SCORES = tuple(dict.fromkeys(form.name for metric in METRICS.values() for form in metric.forms))
_LOAD = tuple(field.name for field in fields(Load))

COLUMNS = (
    *("directory", "label", "started", "benchmark", "scenario", "mode", "outcome", "official", "engine", "model"),
    *("accelerators", "accelerator", "target_qps", "samples", "samples_per_second", "tokens_per_second"),
    *(f"{name}_{statistic}_ms" for name in LATENCIES for statistic in STATISTICS),
    *("ttft_limit_ms", "tpot_limit_ms", *SCORES, *_LOAD, "repeats"),
)


def row_of(run: RunStatus) -> Row:
    """Return the facts and numbers of a finished run by column; None for a missing value."""
    started = moment(run.started_ns) if run.started_ns else None
    row = {"directory": str(run.root), "started": started, "outcome": run.text, **run.row()}
    return {name: row.get(name) for name in COLUMNS}


def rows_of(runs: Sequence[RunStatus]) -> tuple[list[Row], list[Row]]:
    """Return the rows of finished runs by start time, and the other runs with their state and the reason."""
    rows, without = [], []
    for run in sorted(runs, key=lambda listed_run: listed_run.started_ns or 0):
        if run.state == "finished":
            rows.append(row_of(run))
        else:
            without.append({"directory": str(run.root), "state": run.state, "text": run.text})
    return _with_repeats(rows), without


def _with_repeats(rows: list[Row]) -> list[Row]:
    """Return one row for the repeated runs performance/run_1, performance/run_2, … of a result: that of the first run.

    Its outcome is VALID only if each run is VALID.
    """
    merged: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: str(row["directory"])):
        folder = Path(str(row["directory"]))
        is_repeat = folder.parent.name == "performance" and folder.name.startswith("run_")
        key = str(folder.parent if is_repeat else folder), str(row["scenario"])
        first = merged.setdefault(key, row | {"repeats": 0})
        first["repeats"] += 1
        first["outcome"] = first["outcome"] if row["outcome"] == "VALID" else row["outcome"]
        first["official"] = first["official"] and row["official"]
    return sorted(merged.values(), key=lambda row: str(row["started"] or ""))


def no_result(run: Row) -> str:
    """Return a sentence on a run that the table omits."""
    return f"{run['directory']}: not listed: {run['state']}{': ' + run['text'] if run['text'] else ''}"


def as_csv(rows: Sequence[Row]) -> str:
    """Return CSV (RFC 4180) with a header and a line per run."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]) if rows else ["directory"])
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def as_table(rows: Sequence[Row]) -> Table:
    """Return a table with the columns that fit a line."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for title in ("scenario", "outcome", "samples/s", "tokens/s", "p99 TTFT", "p99 TPOT", "ROUGE-1", "directory"):
        right = title not in ("scenario", "outcome", "directory")
        table.add_column(title, justify="right" if right else "left", no_wrap=title != "directory", overflow="fold")
    for row in rows:
        table.add_row(
            Text(printable(row["scenario"])),
            Text(
                printable(row["outcome"]) + ("" if row["official"] else "*"),
                style="red" if row["outcome"] in ("INVALID", "FAIL") else "",
            ),
            _number(row["samples_per_second"]),
            _number(row["tokens_per_second"]),
            _ms(row["ttft_p99_ms"]),
            _ms(row["tpot_p99_ms"]),
            _number(row["rouge1"]),
            Text(
                printable((f"{row['label']}: " if row["label"] else "") + relative_text(Path(row["directory"])))
                + (f" and {row['repeats'] - 1} more" if row["repeats"] > 1 else "")
            ),
        )
    return table


def _number(value: float | None) -> str:
    return "" if value is None else precise(value) if value < 1000 else f"{value:,.0f}"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{milliseconds(value)} ms"
