"""Verdict on one run directory: its files, compared with each other and with its events.

`not_judged` lists the checks whose input is missing. A damaged file is the error of the verdict, which still has the
findings on the other files.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compliance.judge.rule import Check, check_of, decides
from compliance.judge.text import TextLayout
from compliance.judge.verdict import Finding, NotApplied, Policy, Verdict, not_applied
from compliance.mlperf_endpoints import load
from compliance.mlperf_endpoints.derive import COMPLETED, DURATION, FAILED, ISSUED, LATENCY, TPOT, TTFT, WINDOW
from compliance.mlperf_endpoints.endpoints_evidence import EndpointsEvidence
from compliance.mlperf_endpoints.folder_rules import (
    KEEP,
    check_clock,
    check_files,
    check_reported_numbers,
    hidden_failures,
    honest_tokens,
    order_of_events,
)
from compliance.mlperf_endpoints.load import judge_load
from compliance.mlperf_endpoints.point_rules import accuracy, accuracy_files, point, rescored
from compliance.mlperf_endpoints.round_tables import RoundTables, judge_tables, round_tables
from compliance.mlperf_endpoints.settings import settings_in_force
from compliance.mlperf_endpoints.steady_state import check_steady_state, steady_state_line
from compliance.mlperf_endpoints.summary_comparison import windowed
from compliance.mlperf_endpoints.texts import check_token_counts, prompts, responses, times
from compliance.sources import Case, VerdictRequest
from runs.errors import HarnessError, SetupError
from runs.files.writing import sha256_of
from runs.mlperf_endpoints.events import MAX_EVENTS_BYTES
from runs.mlperf_endpoints.folder import EndpointsRun, read_folder
from runs.mlperf_endpoints.layout import AUDIT_FILES, CACHED, EVENTS, FILES, REFERENCE, SUMMARY
from runs.numbers.numbers import measured_row, time_texts
from runs.wording import counted, shortened_list


@dataclass
class ClientDetails:
    """What `verify` states of a run directory of the client besides the findings."""

    directory: str
    run: EndpointsRun | None = field(default=None, repr=False)  # None: unreadable
    tables: RoundTables = field(default_factory=round_tables, repr=False)
    numbers: dict[str, Any] = field(default_factory=dict)  # recomputed numbers
    lines: list[str] = field(default_factory=list)  # recomputed numbers as text
    measured: dict[str, float] = field(default_factory=dict)  # main numbers: samples_per_second, ttft_p99_ms, …

    def as_json(self, verdict: "FolderVerdict", common: dict[str, Any]) -> dict[str, Any]:
        return common | {
            "schema_version": 2,
            "client": "MLPerf Endpoints",
            "reasons": verdict.reasons,
            "directories": [self.directory],
            "held_to_official_rules": [verdict.counts_official],
            "numbers": self.numbers,
            "tables": self.tables.record(),
        }

    def hashes(self) -> dict[str, Any]:
        """Return the SHA-256 of the readable files that the verdict covers, for the JSON."""
        hashes = {}
        for name in (*FILES, *AUDIT_FILES):
            with suppress(HarnessError, OSError):
                hashes[name] = sha256_of(Path(self.directory) / name, max_bytes=MAX_EVENTS_BYTES)
        return {"sha256": hashes}


FolderVerdict = Verdict[ClientDetails]


def client_run(
    path: Path, model_path: str | None = None, dataset_path: Path | None = None, tables: RoundTables | None = None
) -> EndpointsEvidence:
    """Return a run directory as a subject. An unreadable directory has an error.

    Args:
        model_path: model whose tokenizer counts tokens.
        dataset_path: dataset file, to rescore responses and compare prompts.
        tables: tables of the round. Default: those of the newest round.
    """
    tables = tables or round_tables()
    try:
        return EndpointsEvidence(read_folder(path), model_path, dataset_path, tables)
    except HarnessError as error:
        return EndpointsEvidence(EndpointsRun(path), model_path, dataset_path, tables, error=error)


def client_details(case: EndpointsEvidence, verdict: FolderVerdict) -> ClientDetails:
    """Return the details of a run directory. Without events or a summary, the verdict has an error."""
    path = case.run.root
    details = ClientDetails(str(path), tables=case.tables)
    if case.error is not None:
        return details
    details.run = case.run
    for part, name in zip(verdict.parts, (REFERENCE, CACHED), strict=False):
        for entry in not_applied(part) if part.error is None else ():
            what = f"{', '.join(entry.rules) or entry.what} of the audit's {name}"
            verdict.not_applied.append(NotApplied(entry.why, what=what))
    with suppress(HarnessError):
        if case.metrics:
            details.numbers = case.numbers
            details.measured = _measured(case)
            details.lines = list(_lines(case, details.measured))
    if verdict.error is None and (lacking := {EVENTS, SUMMARY} & set(case.run.missing)):
        name = sorted(lacking)[0]
        verdict.error = SetupError(f"{path / name} is missing: the numbers cannot be recomputed", KEEP)
    return details


@decides("contradiction", needs=("load",))
def _load(case: EndpointsEvidence) -> Iterator[Finding]:
    """Compare the load with the requested load."""
    assert case.load is not None  # see `needs`
    yield from judge_load(case.load)


@decides("official")
def _tables(case: EndpointsEvidence) -> Iterator[Finding]:
    """Check the age of the tables of the round."""
    yield from judge_tables(case.tables)


def _no_audit(case: EndpointsEvidence) -> str:
    return "" if case.has_audit else "the run has no audit"


@decides("contradiction", applies=_no_audit, also=("endpoints-audit",))
def _audit(case: EndpointsEvidence) -> Iterator[Finding]:
    """Check the audit. The rules on any run apply to its two runs, which are parts of this run."""
    from compliance.mlperf_endpoints.client_audits import judge_audit  # only runs with an audit need it

    yield from judge_audit(case.run, case.load)


def _without_measured_run(_: EndpointsEvidence) -> Iterator[NotApplied]:
    yield NotApplied("the directory contains only an audit", what="a measured run")


_SERIES = {"ttft": TTFT, "tpot": TPOT, "latency": LATENCY}
# Checks in the order of their findings.
ON_EACH_RUN = tuple(map(check_of, (check_files, order_of_events, check_clock, check_reported_numbers)))
_CHECKS = (
    *ON_EACH_RUN,
    *map(check_of, (hidden_failures, honest_tokens)),
    check_of(_load, load),
    *map(check_of, (settings_in_force, prompts, responses, check_token_counts, times, check_steady_state)),
    check_of(_audit),
    *map(check_of, (rescored, accuracy_files, point, accuracy)),
    check_of(_tables, judge_tables),
)


VERIFY = Policy(
    checks={
        "client run": _CHECKS,
        "audit alone": (Check(_without_measured_run, ()), check_of(_audit)),
        "audit run": ON_EACH_RUN,
    },
    keeps_damaged_parts=True,
    details={"client run": client_details, "audit alone": client_details},
    contradictions_end=True,
)
OFFICIAL = replace(VERIFY, official=True)


def _measured(case: EndpointsEvidence) -> dict[str, float]:
    window = "window_" if windowed(case.run, case.metrics) else ""
    grids = {name: case.metrics.get(metric, {}).get("percentiles", {}) for name, metric in _SERIES.items()}
    times_ns = {name: {f"p{share}": grid.get(f"{share}.0") for share in (50, 90, 99)} for name, grid in grids.items()}
    return measured_row(case.numbers[f"{window}qps"], case.numbers[f"{window}tps"], times_ns)


def _lines(case: EndpointsEvidence, measured: dict[str, float]) -> Iterator[str]:
    """Yield the recomputed numbers as lines of text."""
    config, metrics = case.run.config, case.metrics
    load = config.settings.load_pattern.text if config else "load unknown"
    model = (config.model_params.name if config else "") or "unknown"
    yield f"{load}, {'streaming' if case.streaming else 'not streaming'}, model {model}"
    yield f"samples: {metrics[ISSUED]:,} issued, {metrics[COMPLETED]:,} completed, of which {metrics[FAILED]:,} failed"
    for name, over, span in (("duration", "", DURATION), ("window of LoadGen's Server scenario", "window_", WINDOW)):
        qps, span_s = case.numbers[f"{over}qps"], metrics[span] / 1e9
        tps = case.numbers[f"{over}tps"] or (case.reported_tokens and span_s and case.reported_tokens / span_s)
        rate = "none" if qps is None else f"{qps:.6g}/s"
        mark = ", reported" if bool(over) == windowed(case.run, metrics) else ""
        yield f"{name} {span_s:.2f} s{mark}: QPS {rate}" + (f", TPS {tps:.6g}" if tps else "")
    yield from (f"{name}: {text}" for name, text in time_texts(measured).items())
    if case.steady_state is not None:
        yield steady_state_line(case.steady_state)


def _head(verdict: FolderVerdict) -> Iterator[str]:
    details, reasons = verdict.details, " ".join(shortened_list(verdict.reasons, 3).split())
    yield f"{verdict.outcome}: {reasons}" if reasons else verdict.outcome
    against = len(verdict.of("error")) + (verdict.error is not None)
    eligible = f"no, {counted(against, 'reason')}" if against else "no violation of the rules that were checked"
    yield f"eligible for submission: {eligible}"
    yield f"run directory of MLPerf Endpoints: {details.directory}"
    yield from (f"  {line}" for line in details.lines)


RUN = TextLayout(
    _head,
    shown=lambda verdict: verdict.of("error", "warning", "note"),
    tail=lambda verdict: (
        *(f"  {line}" for line in verdict.details.tables.lines()),
        f"  {counted(len(verdict.of('pass')), 'finding')} passed; --json lists them",
    ),
)


def client_run_cases(paths: Sequence[Path], request: VerdictRequest) -> list[Case]:
    """Return the run directories, for `verify`."""
    policy, scores, tables = OFFICIAL if request.official else VERIFY, request.scores, round_tables(request.seed_sets)
    runs = (client_run(path, scores.model_path, scores.dataset_path, tables) for path in paths)
    return [Case(run, policy, RUN, home=run.run.root) for run in runs]
