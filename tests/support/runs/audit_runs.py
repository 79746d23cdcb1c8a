"""Small finished runs, written file by file: what an audit's verify function reads."""

import json
from array import array
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from compliance.audits.base import RunSpec
from compliance.audits.options import AuditRequest
from compliance.audits.run_artifacts import RunArtifacts
from runs.loadgen.accuracy_log import AccuracyEntry
from runs.numbers.numbers import LATENCIES, RATE_KEYS, latency_keys
from runs.record.layout import RunDir
from runs.record.requests_log import RequestLogLine, encode_line
from scenarios.audit.audit_config import audit_options


def detail_lines(values: Mapping[str, Any]) -> str:
    """A detail log with these records."""
    records = (
        {"key": key, "value": value, "time_ms": 1.0, "metadata": {"is_error": False, "is_warning": False, "pid": 1}}
        for key, value in values.items()
    )
    return "".join(f":::MLLOG {json.dumps(record)}\n" for record in records)


def write_run(
    root: Path,
    spec: RunSpec,
    *,
    scenario: str = "Offline",
    latency_ms: float = 100.0,
    rate: float = 100.0,
    ttft_ms: float | None = None,
    samples: Sequence[tuple[int, int, int]] = (),
    outputs: Sequence[Sequence[int]] = (),
    completed: int | None = None,
    loaded: Sequence[int] | None = None,
    entries: Sequence[AccuracyEntry] = (),
    changed: Mapping[str, Any] | None = None,
) -> RunArtifacts:
    """A run whose every sample took `latency_ms`.

    Args:
        samples: (sample index, prompt tokens, output tokens) in the order of issue.
        outputs: IDs of each response; made up where not given.
        completed: samples LoadGen counts; default: all of `samples`.
        changed: records of the detail log that are to be different (None = missing).
    """
    root.mkdir(parents=True)
    run = RunDir(root)
    count = len(samples) if completed is None else completed
    accuracy = spec.mode == "accuracy"
    values: dict[str, Any] = {
        "loadgen_version": "6.0.17",
        "effective_scenario": scenario,
        "effective_test_mode": "AccuracyOnly" if accuracy else "PerformanceOnly",
        "requested_use_token_latencies": True,
        "qsl_reported_total_count": 64,
        "effective_min_duration_ms": 0,
        "loaded_qsl_set": list(loaded if loaded is not None else sorted({index for index, _, _ in samples})),
        "generated_samples_per_query": count if scenario == "Offline" else 1,
        "power_end": "12-31-2026 10:00:00.000",
    }
    if not accuracy:
        values |= {"result_validity": "VALID", "num_errors": 0}
        values["result_query_count"] = min(count, 1) if scenario == "Offline" else count
        values |= dict.fromkeys(RATE_KEYS[scenario].values(), rate)
        shown = {"latency_ns": latency_ms, "ttft_ns": ttft_ms or 0.0, "tpot_ns": 1.0}
        for name in LATENCIES if ttft_ms is not None else ("latency_ns",):
            values |= {key: int(shown[name] * 1e6) for _, key in latency_keys(name)}
    values |= {f"effective_{key}": value for key, value in spec.in_force.items()}
    values |= changed or {}
    run.detail.write_text(detail_lines({key: value for key, value in values.items() if value is not None}))
    lines = b""
    for seq, (index, prompt_tokens, output_tokens) in enumerate(samples):
        ids = outputs[seq] if outputs else [7] * output_tokens
        lines += encode_line(
            RequestLogLine(
                seq, index, prompt_tokens, len(ids), 1_000, None, 2_000, "stop", sha256(array("i", ids)).hexdigest()
            )
        )
    run.requests.write_bytes(lines)
    run.accuracy_log.write_text(json.dumps([as_loadgen_writes(entry) for entry in entries]))
    return RunArtifacts(run, spec=spec)


def entry(
    ids: Sequence[int], *, seq: int = 0, index: int = 0, first: Sequence[int] | None = None, count: int | None = None
) -> AccuracyEntry:
    """A logged response of int32 IDs; without `first` as in Offline."""
    return AccuracyEntry(
        seq,
        index,
        array("i", ids).tobytes(),
        len(ids) if count is None else count,
        None if first is None else array("i", first).tobytes(),
    )


def as_loadgen_writes(entry: AccuracyEntry) -> dict[str, Any]:
    """An entry as LoadGen writes it."""
    record: dict[str, Any] = {"seq_id": entry.seq_id, "qsl_idx": entry.qsl_idx, "data": entry.data.hex().upper()}
    if entry.token_count is not None:
        record["token_count"] = entry.token_count
    if entry.token_data is not None:
        record["token_data"] = entry.token_data.hex().upper()
    return record


def request_of(test: str, **more: Any) -> AuditRequest[Any]:
    """The request of an audit, by facts of the system and options of the audit.

    Raises:
        InputError: the audit has no such option, or its value is not allowed.
    """
    facts = {name: more.pop(name) for name in list(more) if name in AuditRequest.model_fields}
    values = {"scenario": "Offline", "loadgen_key": "llama3_1-8b", "loaded_count": 64, **facts}
    return AuditRequest(options=audit_options({"test": test, **more}), **values)
