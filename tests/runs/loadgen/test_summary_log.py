"""The parser of mlperf_log_summary.txt, and its comparison with the detail log."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runs.errors import InputError
from runs.loadgen.detail_log import read_detail
from runs.loadgen.summary_log import cross_check, read_summary
from runs.record.layout import RunDir

TEXT = """\
================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Completed samples per second    : 39.56
Completed tokens per second: 5103.99
Result is : INVALID
  Min duration satisfied : NO
Recommendations:
 * TTFT constrain not met: Reduce target QPS to improve latency.
TPOT Early Stopping Result:
 * Run successful.
Max Time to Output Token (ns)                : 27740227
WARNING: sample_concatenate_permutation was set to true. 
Check the generated_samples_per_query line in the detailed log for the real

No warnings encountered during test.

2 ERRORS encountered. See detailed log.
"""


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "mlperf_log_summary.txt"
    path.write_bytes(content)
    return path


def test_fields_are_normalized_and_in_order(tmp_path: Path) -> None:
    summary = read_summary(write(tmp_path, TEXT.encode()))
    assert summary.fields == [
        ("sut name", "PySUT"),
        ("completed samples per second", "39.56"),
        ("completed tokens per second", "5103.99"),
        ("result is", "INVALID"),
        ("min duration satisfied", "NO"),
        ("max time per output token (ns)", "27740227"),
    ]
    assert summary.verdict == "INVALID"
    assert (summary.error_count, summary.warning_count) == (2, 0)


def test_an_accuracy_summary_has_no_verdict(tmp_path: Path) -> None:
    footer = b"\nNo warnings encountered during test.\n\nNo errors encountered during test.\n"
    summary = read_summary(write(tmp_path, footer))
    assert (summary.verdict, summary.fields, summary.error_count) == (None, [], 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello\n", "neither a verdict"),
        (b"\xff\xfeabc", "is not text"),
        (b"a : b\n" * 400_000, "required: at most 1,048,576"),
    ],
)
def test_invalid_summaries_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_summary(write(tmp_path, content))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Result is ", " INVALID"),
        ("Completed samples per second    ", " 999.99"),
        ("90.00 percentile latency (ns)   ", " 1"),
        ("99.00 percentile time to output token (ns)   ", " 1"),
        ("qsl_rng_seed ", " 2085463073848966841"),
        ("  Early stopping satisfied", " NO"),
        ("min_duration (ms)", " 600000"),
        ("target_qps ", " 500.5"),
    ],
)
def test_an_edited_summary_contradicts_the_detail_log(
    copied_run: Callable[[str], RunDir], field: str, value: str
) -> None:
    run = copied_run("server")
    lines = run.summary.read_text().splitlines(keepends=True)
    edited = [f"{field}:{value}\n" if line.startswith(field) else line for line in lines]
    assert edited != lines
    run.summary.write_text("".join(edited))
    findings = cross_check(read_summary(run.summary), read_detail(run.detail))
    assert len(findings) == 1
    assert value.strip() in findings[0].found


def test_a_summary_without_error_count_is_cut_off(copied_run: Callable[[str], RunDir]) -> None:
    run = copied_run("server")
    run.summary.write_text(run.summary.read_text().replace("No errors encountered", ""))
    with pytest.raises(InputError, match="is cut off"):
        cross_check(read_summary(run.summary), read_detail(run.detail))
