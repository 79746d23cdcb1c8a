"""The columns of a row: a row of the result store has all of them, a row that the gate checks has some."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

ColumnType = Literal["TEXT", "REAL", "INTEGER"]
ColumnRole = Literal["identity", "condition", "system", "technique", "number", "record"]
# Origin of a value. result: the directories. conditions: the manifest and the logs. engine: the recorded configuration
# of the engine. numbers: the performance run. accuracy: the accuracy run. store: the store itself.
ColumnSource = Literal[
    "result", "verdict", "conditions", "engine", "numbers", "accuracy", "audits", "declaration", "gate", "store"
]
RAW = "raw_result_json"


@dataclass(frozen=True)
class Column:
    """A column. The numbers of two runs are comparable if all condition columns are equal: the CONDITIONS of
    runs/record/fingerprint.py, and the rate. System and techniques may differ."""

    name: str
    type: ColumnType
    role: ColumnRole
    source: ColumnSource
    facts: tuple[str, ...] = ()  # facts of runs/record/fingerprint.py; the first fact that is known is the value


def _setting(name: str) -> tuple[str, ...]:
    """Return the facts on an engine setting: effective, declared by the operator of a server, and requested."""
    return f"resolved.{name}", f"resolved.declared.{name}", f"engine_options.{name}"


COLUMNS = (
    Column("run_id", "TEXT", "identity", "result"),
    Column("timestamp", "TEXT", "identity", "conditions"),
    Column("ingested_at", "TEXT", "identity", "store"),
    Column("run_directory", "TEXT", "identity", "result"),
    Column("round", "TEXT", "identity", "result"),
    Column("status", "TEXT", "identity", "verdict"),
    Column("error_message", "TEXT", "identity", "verdict"),
    Column("certification", "TEXT", "identity", "verdict"),
    Column("manifest_sha256", "TEXT", "identity", "conditions"),
    Column("support_status_reason", "TEXT", "identity", "gate"),
    Column("quality_evidence", "TEXT", "identity", "gate"),
    Column("quality_results", "TEXT", "identity", "declaration"),
    Column("quality_results_sha256", "TEXT", "identity", "gate"),
    Column("valid", "INTEGER", "identity", "verdict"),
    Column("official", "INTEGER", "identity", "conditions"),
    Column("scenario", "TEXT", "condition", "conditions", ("scenario",)),
    Column("lg_model_name", "TEXT", "condition", "conditions", ("benchmark", "loadgen_key")),
    Column("dataset_sha256", "TEXT", "condition", "conditions", ("dataset_sha256",)),
    Column("sampling", "TEXT", "condition", "conditions"),
    Column("target_qps", "REAL", "condition", "conditions"),
    Column("min_duration_ms", "INTEGER", "condition", "conditions", ("loadgen.min_duration_ms",)),
    Column("min_query_count", "INTEGER", "condition", "conditions", ("loadgen.min_query_count",)),
    Column("performance_sample_count", "INTEGER", "condition", "conditions", ("loadgen.performance_sample_count",)),
    Column("sample_count", "INTEGER", "condition", "conditions", ("sample_count",)),
    Column("enable_prefix_caching", "INTEGER", "condition", "conditions", _setting("enable_prefix_caching")[:2]),
    Column("loadgen_version", "TEXT", "system", "conditions", ("loadgen.version",)),
    Column("gpu_type", "TEXT", "system", "conditions"),
    Column("hostname", "TEXT", "system", "conditions", ("host.hostname",)),
    Column("cpu", "TEXT", "system", "conditions", ("host.cpu",)),
    Column("model", "TEXT", "system", "conditions"),
    Column("model_sha256", "TEXT", "system", "conditions"),
    Column("engine", "TEXT", "system", "engine"),
    Column("engine_version", "TEXT", "system", "conditions"),
    Column("dtype", "TEXT", "system", "conditions", _setting("dtype")),
    Column("engine_options", "TEXT", "system", "conditions"),
    Column("attention_backend", "TEXT", "system", "engine"),
    Column("harness_commit", "TEXT", "system", "conditions", ("harness.git_commit",)),
    Column("gpu_count", "INTEGER", "system", "conditions"),
    Column("cores_usable", "INTEGER", "system", "conditions", ("host.cores_usable",)),
    Column("tp", "INTEGER", "system", "conditions", _setting("tensor_parallel_size")),
    Column("max_model_len", "INTEGER", "system", "conditions", _setting("max_model_len")),
    Column("max_num_seqs", "INTEGER", "system", "conditions", _setting("max_num_seqs")[:2]),
    Column("mechanism", "TEXT", "technique", "declaration"),
    Column("mechanism_variant", "TEXT", "technique", "declaration"),
    Column("compression_method", "TEXT", "technique", "declaration"),
    Column("compression_scope", "TEXT", "technique", "declaration"),
    Column("compression_ratio", "REAL", "technique", "declaration"),
    Column("compression_overhead_ms", "REAL", "technique", "declaration"),
    Column("decompression_overhead_ms", "REAL", "technique", "declaration"),
    Column("quality_eval_id", "TEXT", "technique", "declaration"),
    Column("quality_eval_status", "TEXT", "technique", "declaration"),
    Column("quality_delta_summary", "TEXT", "technique", "declaration"),
    Column("draft_model_id", "TEXT", "technique", "declaration"),
    Column("speculative_acceptance_rate", "REAL", "technique", "declaration"),
    Column("quality_baseline", "REAL", "technique", "declaration"),
    Column("speculative_wasted_tokens", "INTEGER", "technique", "declaration"),
    Column("mechanism_notes", "TEXT", "technique", "declaration"),
    Column("support_status", "TEXT", "technique", "declaration"),
    Column("kv_cache_dtype", "TEXT", "technique", "engine"),
    Column("quantization", "TEXT", "technique", "engine"),
    Column("draft_model", "TEXT", "technique", "engine"),
    Column("mechanism_eval_registered", "INTEGER", "technique", "declaration"),
    Column("quality_eval_registered", "INTEGER", "technique", "declaration"),
    Column("speculative", "INTEGER", "technique", "engine"),
    Column("numbers_from", "TEXT", "number", "numbers"),
    Column("audits", "TEXT", "number", "audits"),
    Column("samples_per_second", "REAL", "number", "numbers"),
    Column("throughput_tok_s", "REAL", "number", "numbers"),
    Column("duration_s", "REAL", "number", "numbers"),
    Column("ttft_p50_ms", "REAL", "number", "numbers"),
    Column("ttft_p99_ms", "REAL", "number", "numbers"),
    Column("tpot_p50_ms", "REAL", "number", "numbers"),
    Column("tpot_p99_ms", "REAL", "number", "numbers"),
    Column("latency_p50_ms", "REAL", "number", "numbers"),
    Column("latency_p99_ms", "REAL", "number", "numbers"),
    Column("output_tokens_mean", "REAL", "number", "numbers"),
    Column("rouge1", "REAL", "number", "accuracy"),
    Column("rouge2", "REAL", "number", "accuracy"),
    Column("rougeL", "REAL", "number", "accuracy"),
    Column("rougeLsum", "REAL", "number", "accuracy"),
    Column("samples", "INTEGER", "number", "numbers"),
    Column("gen_len", "INTEGER", "number", "accuracy"),
    Column("gen_num", "INTEGER", "number", "accuracy"),
    Column("accuracy_passed", "INTEGER", "number", "accuracy"),
    Column(RAW, "TEXT", "record", "store"),
)
COLUMN_NAMES = tuple(column.name for column in COLUMNS)
GROUPABLE = (
    "scenario", "lg_model_name", "model", "gpu_type", "gpu_count", "tp", "dtype", "engine", "engine_version",
    "hostname", "round", "status", "valid", "official", "support_status", "kv_cache_dtype",
    "mechanism", "mechanism_variant", "compression_method", "compression_scope", "quality_eval_id",
    "quality_eval_status",
)  # fmt: skip
_PYTHON_TYPES: dict[ColumnType, tuple[type, ...]] = {"TEXT": (str,), "REAL": (int, float), "INTEGER": (int,)}


def columns_of(by_source: Mapping[ColumnSource, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns of these sources; None for a value that its source does not have."""
    return {column.name: by_source[column.source].get(column.name) for column in COLUMNS if column.source in by_source}


def odd_values(row: Mapping[str, Any], ignored: Collection[str] = ()) -> Iterator[str]:
    """Yield sentences about values that do not have the type of their column; None fits every column."""
    for column in COLUMNS:
        value = row.get(column.name)
        if value is not None and column.name not in ignored and not isinstance(value, _PYTHON_TYPES[column.type]):
            yield f"{column.name} is {str(value)[:40]!r}, but the column has the type {column.type}"
