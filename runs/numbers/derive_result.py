"""The result of a run, computed from its files alone."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from runs.benchmark import LOADGEN_SCENARIO, Scenario
from runs.errors import ExecutionError, InputError
from runs.loadgen.detail_log import DetailLog, TruncatedLogError
from runs.loadgen.replay import expected_order, expected_samples
from runs.loadgen.summary_log import cross_check
from runs.loadgen.trace_log import Trace
from runs.numbers.invalid import errors_found, invalid_reasons
from runs.numbers.load import load_of
from runs.numbers.log_comparison import SEEDS, compare_log, compare_order
from runs.numbers.numbers import RATE_KEYS, Numbers, reported_numbers
from runs.numbers.rederive import Derived, derive_numbers
from runs.numbers.result import Counts, Disagreement, EffectiveSettings, RunNumbers
from runs.record.finished_run import ACCURACY, PERFORMANCE, FinishedRun
from runs.record.layout import RunDir, campaign_of
from runs.record.requests_log import RequestTable


def derive_result(run: FinishedRun, *, scenario: Scenario | None = None) -> RunNumbers:
    """Compute the result of a finished run.

    Args:
        scenario: requested scenario; default: LoadGen's scenario.

    Raises:
        ExecutionError: If LoadGen's logs are missing or LoadGen did not finish.
        InputError: If a file is damaged, or the mode or scenario of the run is not supported.
    """
    run_dir, detail = run.dir, _finished_detail(run)
    if detail.mode not in (PERFORMANCE, ACCURACY):
        raise InputError(
            f"{run_dir.detail}: the mode was {detail.mode}", f"only {PERFORMANCE} and {ACCURACY} runs have a result"
        )
    if detail.scenario not in RATE_KEYS:
        raise InputError(
            f"{run_dir.detail}: the scenario was {detail.scenario}", f"only {', '.join(RATE_KEYS)} runs have a result"
        )
    requests, notes = run.requests, []
    disagreements = [
        Disagreement(run_dir.summary.name, contradiction.found, None, 0, "", "summary")
        for contradiction in cross_check(run.summary, detail)
    ]
    if scenario is not None and LOADGEN_SCENARIO[scenario] != detail.scenario:
        disagreements.append(
            Disagreement("scenario", detail.scenario, LOADGEN_SCENARIO[scenario], 0, "(the second was requested)")
        )
    if requests is None:
        notes.append(f"{run_dir.requests.name} is missing: numbers could not be recomputed")
    else:
        disagreements += _order(detail, requests, run.trace)
    specific = _performance(run, disagreements) if run.is_performance else _accuracy(run, disagreements)
    return RunNumbers.model_validate(
        {
            "scenario": scenario or detail.scenario,
            "mode": detail.mode,
            "notes": notes,
            "loadgen_verdict": detail.validity,
            "in_force": _effective_settings(detail),
            "disagreements": [item for item in disagreements if item.about == "summary" or not detail.error_count],
            "counts": Counts(
                samples=None if requests is None else len(requests), samples_expected=expected_samples(detail)
            ),
            "output_tokens_mean": float(requests.output_tokens.mean()) if requests else None,
            **specific,
        }
    )


def _unfinished_error(run: RunDir, why: str, path: Path, *, missing: bool = False) -> ExecutionError:
    text, fix = f"{path} {why}: LoadGen did not finish", f"see {run.engine_log}, then rerun"
    return ExecutionError(text, fix, path=path, missing=missing)


def _finished_detail(run: FinishedRun) -> DetailLog:
    run_dir = run.dir
    for path in (run_dir.detail, run_dir.summary):
        if not path.is_file():
            raise _unfinished_error(run_dir, "is missing", path, missing=True)
        if path.stat().st_size == 0:
            raise _unfinished_error(run_dir, "is empty", path)
    try:
        detail = run.detail
    except TruncatedLogError as error:
        raise _unfinished_error(run_dir, "breaks off", run_dir.detail) from error
    # num_errors ends the log of a performance run, and power_end that of an accuracy run.
    if not detail.finished or (detail.has_results and detail.counts_errors and "num_errors" not in detail.values):
        raise _unfinished_error(run_dir, "breaks off", run_dir.detail)
    return detail


def _order(detail: DetailLog, requests: RequestTable, trace: Trace | None) -> list[Disagreement]:
    """Compare the samples in the request log with those that LoadGen issued."""
    disagreements = []
    if not np.array_equal(requests.seq, np.arange(len(requests))):
        missing = int(np.argmax(requests.seq != np.arange(len(requests))))
        disagreements.append(
            Disagreement("requests.jsonl", f"seq {missing} issued", "missing in the request log", 0, "")
        )
    if trace is not None:
        disagreements += compare_order(requests.sample_index, trace.sample_index, "trace")
    expected = expected_order(detail, len(requests))
    if expected is not None:
        disagreements += compare_order(requests.sample_index, expected, SEEDS)
    return disagreements


def _performance(run: FinishedRun, disagreements: list[Disagreement]) -> dict[str, Any]:
    """Return the fields of a performance run; add to `disagreements`."""
    detail = run.detail
    derived: Derived | None = None
    reported: Numbers | None = None
    if detail.has_results:
        reported = reported_numbers(detail)
        if run.requests is not None:
            try:
                derived = derive_numbers(detail, run.requests, run.trace)
                disagreements += compare_log(derived, detail)
            except InputError as error:
                disagreements.append(Disagreement("request log", None, error.message, 0, ""))
    try:
        manifest = run.manifest
    except InputError:  # Other rules report damaged files, which do not affect LoadGen's verdict.
        manifest = None
    reasons = invalid_reasons(
        detail,
        reported,
        derived,
        None if manifest is None else manifest.asked,
        in_campaign=campaign_of(run.dir.root) is not None,
        by_audit=manifest is not None and manifest.plan.audit,
    )
    fields: dict[str, Any] = {"verdict": "INVALID" if reasons else "VALID", "reasons": reasons, "reported": reported}
    if derived is not None:
        fields |= {
            "duration_ns": derived.duration_ns,
            "derived": derived.numbers,
            "derived_from": derived.source,
            "early_stopping": derived.early_stopping,
            "load": load_of(derived.times.scheduled_ns, derived.times.latency_ns)
            if detail.scenario == "Server"
            else None,
        }
    return fields


def _accuracy(run: FinishedRun, disagreements: list[Disagreement]) -> dict[str, Any]:
    """Return the fields of an accuracy run; add to `disagreements`."""
    detail, path = run.detail, run.dir.accuracy_log
    if not path.is_file():
        raise _unfinished_error(run.dir, "is missing", path, missing=True)
    entries = run.entries
    expected = expected_samples(detail)
    distinct = len({entry.qsl_idx for entry in entries})
    reasons = []
    if detail.error_count:
        reasons.append(f"{errors_found(detail)}; the official checker refuses an accuracy log with errors")
    if not len(entries) == distinct == expected:
        reasons.append(
            f"{path.name} contains {len(entries)} responses to {distinct} samples, required: one response to each of "
            f"{expected} samples"
        )
    if run.requests is not None and len(run.requests) != len(entries):
        name = f"responses in {path.name} and {run.dir.requests.name}"
        disagreements.append(Disagreement(name, len(entries), len(run.requests), 0, "samples"))
    return {"verdict": "INVALID" if reasons else "DONE", "reasons": reasons}


def _effective_settings(detail: DetailLog) -> EffectiveSettings:
    limited = detail.scenario == "Server" and detail.uses_token_latencies
    return EffectiveSettings(
        target_qps=detail.number("effective_target_qps"),
        min_duration_ms=detail.integer("effective_min_duration_ms"),
        min_query_count=detail.integer("effective_min_query_count"),
        performance_sample_count=detail.integer("effective_performance_sample_count"),
        ttft_limit_ns=detail.integer("requested_server_ttft_latency") if limited else None,
        tpot_limit_ns=detail.integer("requested_server_tpot_latency") if limited else None,
        **asdict(detail.seeds),
    )
