"""Does the submitted user.conf give the settings that the log shows?

LoadGen skips what it does not know, so this reader does as well: it looks for lines that it can hold against the log.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from compliance.submission.check.finding import Findings
from compliance.submission.check.reading import is_regular, read_text
from runs.benchmark import Benchmark
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.user_conf import Setting, in_force, lines_taken

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_MS = 1_000_000.0  # ns
# user.conf key → (record of the log, factor to its unit), by LoadGen scenario. [loadgen] TestSettings::FromConfig
_ANY: dict[str, tuple[str, float]] = {
    "min_duration": ("requested_min_duration_ms", 1),
    "max_duration": ("requested_max_duration_ms", 1),
    "min_query_count": ("requested_min_query_count", 1),
    "max_query_count": ("requested_max_query_count", 1),
    "performance_sample_count_override": ("requested_performance_sample_count_override", 1),
    "sample_concatenate_permutation": ("requested_sample_concatenate_permutation", 1),
    "use_token_latencies": ("requested_use_token_latencies", 1),
    "performance_issue_unique": ("requested_performance_issue_unique", 1),
    "performance_issue_same": ("requested_performance_issue_same", 1),
    "performance_issue_same_index": ("requested_performance_issue_same_index", 1),
    "qsl_rng_seed": ("requested_qsl_rng_seed", 1),
    "sample_index_rng_seed": ("requested_sample_index_rng_seed", 1),
    "schedule_rng_seed": ("requested_schedule_rng_seed", 1),
}
_OF_SCENARIO: dict[str, dict[str, tuple[str, float]]] = {
    "Offline": {"target_qps": ("requested_offline_expected_qps", 1)},
    "Server": {
        "target_qps": ("requested_server_target_qps", 1),
        "ttft_latency": ("requested_server_ttft_latency", _MS),
        "tpot_latency": ("requested_server_tpot_latency", _MS),
    },
    "SingleStream": {"target_latency": ("requested_single_stream_expected_latency_ns", _MS)},
}
# The one setting that every run has to choose, and LoadGen's default of it.
_TARGETS: dict[str, tuple[str, float]] = {
    "Offline": ("target_qps", 1.0),
    "Server": ("target_qps", 1.0),
    "SingleStream": ("target_latency", 0.0),
}


def check_user_conf(path: Path, names: set[str], benchmark: Benchmark, detail: DetailLog, findings: Findings) -> None:
    """Hold user.conf against the performance log.

    Args:
        names: further names of the model that the submitter may have given LoadGen.
    """
    models = (benchmark.loadgen_key, benchmark.submission_name, *sorted(names))
    _check(path, models, detail, findings)


def check_user_conf_of(path: Path, detail: DetailLog, findings: Findings) -> None:
    """The same where the name that LoadGen was given for the model is not known: of lines of any model only those
    are held against the log that no line of a named model can outweigh."""
    _check(path, None, detail, findings)


def _check(path: Path, models: tuple[str, ...] | None, detail: DetailLog, findings: Findings) -> None:
    if not is_regular(path):
        return  # has a finding already
    text = read_text(path, findings, "scenario-file")
    if text is None:
        return
    lines = list(_lines(text))
    scenario = detail.scenario
    named = set() if models is not None else {line.key for line in lines if line.model != "*"}
    models = models or ()
    for key, (record, factor) in {**_ANY, **_OF_SCENARIO.get(scenario, {})}.items():
        line = None if key in named else in_force(lines, models, scenario, key)
        logged = detail.get(record)
        if line is None or not isinstance(logged, int | float):
            continue
        value = float(line.value)
        if abs(value * factor - float(logged)) > 1e-5 * max(1.0, abs(float(logged))):
            said = f"line {line.line}: {line.name} = {value:g}"
            findings.add("user-conf-differs", path, said, f"{float(logged) / factor:g}, as {record} of the log has it")
    key, default = _TARGETS.get(scenario, ("", 0.0))
    record, factor = _OF_SCENARIO.get(scenario, {}).get(key, ("", 1.0))
    logged = detail.get(record)
    unset = key and key not in named and in_force(lines, models, scenario, key) is None
    if unset and isinstance(logged, int | float) and float(logged) != default:
        wanted = f"{float(logged) / factor:g}, as {record} of the log has it"
        findings.add("user-conf-absent", path, f"no line sets {scenario} {key}", wanted)


def _lines(text: str) -> Iterator[Setting]:
    """Those with a number, which LoadGen reads up to the first sign that belongs to none (of 5_00 the 5)."""
    for line in lines_taken(text):
        if number := _NUMBER.match(line.value):
            yield replace(line, value=number[0])
