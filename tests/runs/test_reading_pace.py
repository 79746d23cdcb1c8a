"""Readers of foreign files are linear: ten times as much takes at most twelve times as long, whatever stands there."""

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from compliance.accuracy.accuracy_text import read_scores
from compliance.accuracy.metrics import metric_of
from compliance.submission.check.audits import _STATED
from qsl.dataset_file import parse_rows
from runs.benchmarks import BENCHMARKS
from runs.errors import HarnessError
from runs.loadgen.accuracy_log import read_accuracy_log
from runs.loadgen.detail_log import read_detail
from runs.loadgen.summary_log import read_summary
from runs.loadgen.trace_log import read_trace
from runs.loadgen.user_conf import judge_conf
from runs.reading import read_object
from runs.record.requests_log import read_requests
from runs.yaml_file import read_yaml

pytestmark = pytest.mark.long
BENCHMARK = BENCHMARKS["llama3_1-8b"]
ENTRY = '{ "seq_id" : 0, "qsl_idx" : 1, "data" : "0A000000", "token_count" : 1 },\n'
ERROR = (
    ':::MLLOG {"key": "error_runtime", "value": "x", "time_ms": 1.5, "namespace": "mlperf::logging", "event_type": '
    '"POINT_IN_TIME", "metadata": {"is_error": true, "is_warning": false, "file": "x.cc", "line_no": 1}}\n'
)

# Reader, and what a hostile file of some size holds.
CASES: dict[str, tuple[Callable[[Path], object], Callable[[int], str]]] = {
    "JSON, deep": (lambda path: read_object(path, ""), lambda size: '{"a":' + "[" * size),
    "JSON, one number": (lambda path: read_object(path, ""), lambda size: '{"a":1.' + "1" * size + "}"),
    "JSON, escapes": (lambda path: read_object(path, ""), lambda size: '{"a":"' + "\\u0061" * size + '"}'),
    "YAML, keys": (
        lambda path: read_yaml(path, "--config"), lambda size: "".join(f"k{i}: 1\n" for i in range(size // 20)),
    ),
    "YAML, aliases": (
        lambda path: read_yaml(path, "--config"),
        lambda size: "a: &a 1\n" + "".join(f"k{i}: [*a, *a]\n" for i in range(size // 40)),
    ),
    "YAML, anchors": (
        lambda path: read_yaml(path, "--config"), lambda size: "".join(f"k{i}: &a{i} 1\n" for i in range(size // 20)),
    ),
    "detail log, errors": (read_detail, lambda size: ERROR * (size // 10)),
    "detail log, one line": (read_detail, lambda size: ":::MLLOG " + '{"key":' * size),
    "summary, digits": (read_summary, lambda size: "1" * size + "th percentile latency (ns) : 1\n"),
    "summary, blank lines": (read_summary, lambda size: " \n" * size),
    "accuracy log": (read_accuracy_log, lambda size: "[\n" + ENTRY * (size // 10) + "]\n"),
    "accuracy log, blanks": (read_accuracy_log, lambda size: "[" + "\n \t" * size),
    "trace": (read_trace, lambda size: "[" + '{"name": "Sample", ' * size),
    "requests.jsonl": (read_requests, lambda size: '{"seq": 1}\n' * size),
    "user.conf": (
        lambda path: judge_conf(path.read_text(), path, BENCHMARK, "Server"),
        lambda size: "*.*.a = 1 # \n" * (size // 10),
    ),
    "accuracy.txt, quotes": (
        lambda path: read_scores(metric_of(BENCHMARK), path.read_text()), lambda size: "'rouge1': " * size,
    ),
    "accuracy.txt, braces": (
        lambda path: read_scores(metric_of(BENCHMARK), path.read_text()), lambda size: "{" * size,
    ),
    "text of an audit": (lambda path: _STATED.findall(path.read_text()), lambda size: "\n " * size),
    "data set": (
        lambda path: parse_rows(path.read_bytes(), path, ("input",)), lambda size: '{"input": "a"}\n' * (size // 10),
    ),
}  # fmt: skip


def seconds(read: Callable[[Path], object], path: Path, content: str) -> float:
    """Processor time; the shortest of three."""
    path.write_text(content)
    times = []
    for _ in range(3):
        begin = time.process_time()
        with contextlib.suppress(HarnessError, ValueError, SyntaxError, RecursionError, MemoryError):
            read(path)
        times.append(time.process_time() - begin)
    return min(times)


def test_a_key_twice_is_found_in_the_time_of_reading(tmp_path: Path) -> None:
    """The standard library's own reader is not linear in the number of keys, by the processor's caches."""
    path, size = tmp_path / "file.json", 200_000
    content = "{" + "".join(f'"{i}":1,' for i in range(size)) + f'"{size - 1}":1}}'
    ours = seconds(lambda path: read_object(path, ""), path, content)
    assert ours <= 4 * seconds(lambda path: json.loads(path.read_bytes()), path, content)


@pytest.mark.parametrize("case", CASES)
def test_ten_times_as_much_takes_ten_times_as_long(case: str, tmp_path: Path) -> None:
    read, content = CASES[case]
    size = 20_000
    small, large = (seconds(read, tmp_path / "file.json", content(times * size)) for times in (1, 10))
    assert large <= 12 * max(small, 0.005), f"{small:.3f} s, then {large:.3f} s"
