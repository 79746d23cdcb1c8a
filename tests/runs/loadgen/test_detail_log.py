"""The parser of mlperf_log_detail.txt."""

import importlib.metadata
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runs.errors import InputError
from runs.files.reading import DETAIL_LOG
from runs.loadgen.detail_log import MAX_KEPT_RECORDS, NEWEST, TruncatedLogError, read_detail

SEEDS = {"qsl": 2085463073848966840, "sample_index": 2747215439041700203, "schedule": 16159082839903944936}


def line(key: str, value: Any, *, is_error: bool = False, is_warning: bool = False, time_ms: float = 1.5) -> str:
    metadata = {"is_error": is_error, "is_warning": is_warning, "file": "x.cc", "line_no": 1, "pid": 1, "tid": 1}
    record = {
        "key": key,
        "value": value,
        "time_ms": time_ms,
        "namespace": "mlperf::logging",
        "event_type": "POINT_IN_TIME",
        "metadata": metadata,
    }
    return f":::MLLOG {json.dumps(record)}\n"


COMPLETE = "".join(
    [
        line("loadgen_version", "6.0.17 @ d6147c7eb7"),
        line("effective_scenario", "Server"),
        line("effective_test_mode", "PerformanceOnly"),
        line("effective_accuracy_log_rng_seed", 0),
        *(line(f"effective_{name}_rng_seed", seed) for name, seed in SEEDS.items()),
        line("loaded_qsl_set", [3, 1, 2]),
        line("generic_message", "one"),
        line("generic_message", "two"),
        line("power_end", "now"),
        line("result_validity", "VALID"),
        line("result_scheduled_samples_per_sec", 22.5),
        line("num_errors", 0),
    ]
)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def to_file(content: str | bytes) -> Path:
        path = tmp_path / "mlperf_log_detail.txt"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to_file


Write = Callable[[str | bytes], Path]


def test_settings_and_results_are_read(write: Write) -> None:
    log = read_detail(write(COMPLETE))
    assert (log.scenario, log.mode, log.validity) == ("Server", "PerformanceOnly", "VALID")
    assert log.finished
    assert log.has_results
    assert log.loaded_qsl_set == [3, 1, 2]
    assert log.seeds.schedule_rng_seed == SEEDS["schedule"]  # exact above 2**63
    assert log.effective("qsl_rng_seed") == SEEDS["qsl"]
    assert log.effective("unheard_of", 7) == 7
    assert log.get("generic_message") == "two"  # the last one counts
    assert log.number("result_scheduled_samples_per_sec") == 22.5
    assert (log.errors, log.warnings, log.error_count) == ([], [], 0)


def test_errors_and_warnings_keep_their_lines(write: Write) -> None:
    log = read_detail(
        write(COMPLETE + line("error_runtime", "boom", is_error=True, time_ms=9) + line("w", "hm", is_warning=True))
    )
    count = COMPLETE.count("\n")
    assert [(error.key, error.value, error.time_ms, error.line_number) for error in log.errors] == [
        ("error_runtime", "boom", 9.0, count + 1)
    ]
    assert [warning.line_number for warning in log.warnings] == [count + 2]


def test_all_errors_are_counted_although_few_are_kept(write: Write) -> None:
    log = read_detail(write(line("error_runtime", "boom", is_error=True) * (MAX_KEPT_RECORDS + 5)))
    assert (len(log.errors), log.error_count) == (MAX_KEPT_RECORDS, MAX_KEPT_RECORDS + 5)


@pytest.mark.parametrize(("printed", "value"), [("nan", math.nan), ("-inf", -math.inf), ("inf", math.inf)])
def test_numbers_outside_json_are_read(write: Write, printed: str, value: float) -> None:
    text = line("result_rate", 12345).replace("12345", printed)
    read = read_detail(write(text)).number("result_rate")
    assert read == value or (math.isnan(read) and math.isnan(value))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"hello\n", "line 1 starts with"),
        (COMPLETE.encode("utf-16"), "line 1 starts with"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "line 1"),
        (COMPLETE.encode() + b":::MLLOG {broken}\n", "is not valid JSON"),
        (COMPLETE.encode() + b":::MLLOG [1]\n", "has no key and value"),
        (COMPLETE.encode() + b':::MLLOG {"key": "x"}\n', "has no key and value"),
        (COMPLETE.encode() + b':::MLLOG {"key": "x", "value": 1}\n', "has no time_ms or no metadata"),
        (COMPLETE.encode() + b':::MLLOG {"key": "\xff", "value": 1}\n', "is not valid JSON"),
        (b":::MLLOG " + b"[" * 200_000 + b"\n", "is not valid JSON"),
        (COMPLETE.replace('"value": 22.5', '"value" : 9.5, "value": 22.5').encode(), "has a field twice"),
    ],
)
def test_damaged_lines_are_refused(write: Write, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_detail(write(content))


def test_a_line_above_the_limit_is_refused(write: Write) -> None:
    with pytest.raises(InputError, match="line 2 is longer than 16,384 KiB"):
        read_detail(write(line("a", 1).encode() + b":::MLLOG " + b"x" * (DETAIL_LOG.line_bytes + 10)))


@pytest.mark.parametrize(
    ("version", "counts"),
    [("5.0.15 @ a09ef11160", False), ("4.1", False), ("5.0.21", True), ("6.0.17", True), ("unknown", False)],
)
def test_older_versions_have_no_count_of_errors(write: Write, version: str, counts: bool) -> None:
    assert read_detail(write(line("loadgen_version", version))).counts_errors is counts


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("4.0 @ e34bdc6e82", ""),
        ("6.0.17 @ d6147c7eb7", ""),
        ("6.0 @ NA", ""),
        ("3.1 @ 0000000000", "older than the supported versions (4.0 to 6.0.17)"),
        ("6.0.18 @ 0000000000", "newer than the supported versions"),
        ("7.0", "newer than"),
        ("6.0.1x", "not among"),
        (6, "not among"),
    ],
)
def test_an_unsupported_version_is_named(write: Write, version: object, expected: str) -> None:
    sentence = read_detail(write(line("loadgen_version", version))).unknown_version()
    assert expected in sentence
    assert bool(sentence) == bool(expected)


def test_the_newest_supported_version_is_the_installed_one() -> None:
    assert tuple(int(part) for part in importlib.metadata.version("mlcommons-loadgen").split(".")) == NEWEST


OFFLINE = {
    "effective_scenario": "Offline", "generated_samples_per_query": 52_800, "generated_query_count": 24_576,
    "qsl_reported_total_count": 24_576, "effective_performance_sample_count": 24_576,
}  # fmt: skip


@pytest.mark.parametrize(
    ("version", "fills_up", "samples", "queries"),
    [
        ("4.1 @ 379ee5345a", True, 73_728, 1),
        ("4.1 @ 379ee5345a", False, 52_800, 1),
        ("4.0 @ e34bdc6e82", None, None, 1),  # the setting was not logged yet
        ("5.0.10", True, 73_728, 24_576),
        ("5.0.11", True, 52_800, 24_576),
    ],
)
def test_the_number_of_samples_of_an_offline_query_is_derived(
    write: Write, version: str, fills_up: bool | None, samples: int | None, queries: int
) -> None:
    values = {"loadgen_version": version, **OFFLINE}
    if fills_up is not None:
        values["effective_sample_concatenate_permutation"] = fills_up
    log = read_detail(write("".join(line(key, value) for key, value in values.items())))
    assert (log.samples_per_query, log.queries_generated) == (samples, queries)


@pytest.mark.parametrize(
    ("cut", "problem"),
    [(1, "is cut off"), (5, "is cut off"), (9, "is cut off"), (40, "is not valid JSON .*"), (150, ".*")],
)
def test_a_truncated_last_line_is_reported_as_such(write: Write, cut: int, problem: str) -> None:
    last = line("num_errors", 0)
    with pytest.raises(TruncatedLogError, match=rf"line 2 {problem}: the file ends in the middle of a line"):
        read_detail(write(line("a", 1) + last[:cut]))


@pytest.mark.parametrize(
    ("key", "value", "use"),
    [
        ("loaded_qsl_set", "text", "loaded_qsl_set"),
        ("loaded_qsl_set", [1, -2], "loaded_qsl_set"),
        ("loaded_qsl_set", [1, True], "loaded_qsl_set"),
        ("loaded_qsl_set", [1, "1"], "loaded_qsl_set"),
        ("effective_qsl_rng_seed", 1.5, "seeds"),
        ("effective_scenario", 3, "scenario"),
        ("effective_test_mode", None, "mode"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(write: Write, key: str, value: Any, use: str) -> None:
    log = read_detail(write(COMPLETE + line(key, value)))
    with pytest.raises(InputError, match=key):
        getattr(log, use)


def test_windows_line_ends_are_read(write: Write) -> None:
    assert read_detail(write(COMPLETE.replace("\n", "\r\n"))).validity == "VALID"


def test_a_log_of_two_runs_is_refused(tmp_path: Path) -> None:
    def record(key: str, pid: int, warning: str = "false") -> str:
        metadata = f'{{"is_error": false, "is_warning": {warning}, "pid": {pid}}}'
        return f':::MLLOG {{"key": "{key}", "value": 1, "time_ms": 0.1, "metadata": {metadata}}}\n'

    path = tmp_path / "detail.txt"
    path.write_text(record("a", 1) + record("b", 1) + record("generic_message", 1) * 2 + record("w", 1, "true") * 2)
    assert read_detail(path).repeated == {}
    path.write_text(record("a", 1) + record("b", 1) + record("a", 2))
    assert read_detail(path).repeated == {"a": 3}
