"""output_caching: its plan, its rule near the limits, and runs that have no verdict."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compliance.audits.audit_registry import judged_again, runs_in_turn, write_audit
from compliance.audits.base import AuditResult, NoVerdictError, RunSpec
from compliance.audits.caching_steps import MAX_RUNS
from compliance.audits.catalog.output_caching import CachingOptions
from compliance.audits.discovery import AUDITS, find_audit
from compliance.audits.options import AuditRequest
from compliance.audits.run_artifacts import RunArtifacts
from runs.errors import ExecutionError, ExitCode, InputError, SetupError
from tests.support.runs.audit_runs import request_of, write_run
from tests.support.runs.recorded import recorded

TEST = find_audit("output_caching")
LENGTHS = (100, 50)  # prompt and output tokens of each row
UNIQUE = [(index, *LENGTHS) for index in range(10)]


def request(scenario: str = "Offline", **more: object) -> AuditRequest[CachingOptions]:
    return request_of(TEST.name, scenario=scenario, **{"samples": 10, **more})


Run = Callable[..., tuple[AuditResult, list[str]]]


@pytest.fixture
def run_planned_audit(tmp_path: Path) -> Run:
    """Write each planned run with the pace of its label, and judge all of them."""

    def play(audit: AuditRequest[CachingOptions], **paces: dict[str, Any]) -> tuple[AuditResult, list[str]]:
        finished = runs_in_turn(TEST, audit, lambda spec: run_for(tmp_path, spec, audit.scenario, paces))
        return TEST.verify(audit, finished), [run.spec.label for run in finished]

    return play


def run_for(folder: Path, spec: RunSpec, scenario: str, paces: dict[str, dict[str, Any]]) -> RunArtifacts:
    """Write a run of 1 s per sample, unless the label, the kind and round, or the kind has a pace.

    `reference` may have `lengths`: prompt and output tokens of some rows.
    """
    name, _, number = spec.label.replace("-", "_").rpartition("_")
    name = name.rpartition("_n")[0]
    kind = name.partition("_")[0]
    pace = next((paces[key] for key in (f"{name}_{number}", name, f"{kind}_{number}", kind) if key in paces), {})
    pace = {"latency_ms": 1_000.0, "rate": 1.0, **pace}
    pace.pop("lengths", None)
    rows, count = spec.rows or (), spec.requested or 0
    chosen = range(len(rows)) if kind != "repeat" else [spec.settings["performance_issue_same_index"]]
    own_lengths = pace.pop("repeated_lengths", None)
    lengths = paces["reference"].get("lengths", {})
    samples = [
        (index, *(own_lengths or lengths.get(rows[index], LENGTHS)))
        for index in (chosen[place % len(chosen)] for place in range(count))
    ]
    return write_run(folder / spec.label, spec, scenario=scenario, samples=samples, loaded=range(len(rows)), **pace)


def test_the_planned_runs_have_the_expected_audit_configurations(tmp_path: Path) -> None:
    audit = request(sample_index=(3,), audit_samples=25)
    (reference,) = TEST.runs(audit)
    assert reference.render() == (
        "*.*.mode = 2\n*.*.performance_issue_unique = 1\n*.*.performance_issue_same = 0\n"
        "*.*.performance_issue_same_index = 0\n*.*.performance_sample_count_override = 10\n"
        "*.*.sample_concatenate_permutation = 0\n*.*.min_query_count = 10\n*.*.min_duration = 0\n"
        "*.*.max_duration = 0\n*.*.max_query_count = 0\n"
    )
    (repeat,) = TEST.more_runs(audit, [write_run(tmp_path / "run", reference, rate=1.0, samples=UNIQUE)])
    assert repeat.label == "repeat-3-n10-round1"
    assert "*.*.performance_issue_same = 1\n*.*.performance_issue_same_index = 3\n" in str(repeat.render())
    assert "*.*.min_query_count = 25\n" in str(repeat.render())
    assert repeat.in_force["samples_per_query"] == 25


# Scenario, further fields of the request, pace of the reference, pace of the repeats, whether the audit passes
LIMITS = [
    # Strict, because of the requested threshold
    ("SingleStream", {}, {}, {"latency_ms": 1000.0}, True),
    ("SingleStream", {}, {}, {"latency_ms": 2000.0}, True),
    ("SingleStream", {}, {}, {"latency_ms": 910.0}, True),
    ("SingleStream", {}, {}, {"latency_ms": 870.0}, False),
    ("SingleStream", {"threshold": 0.25}, {}, {"latency_ms": 800.0}, False),
    ("SingleStream", {"threshold": 0.26}, {}, {"latency_ms": 800.0}, True),
    ("Offline", {}, {}, {"latency_ms": 910.0}, True),
    ("Offline", {}, {}, {"latency_ms": 909.0}, False),
    ("Offline", {}, {}, {"latency_ms": 1 / 0.00117}, False),  # 15% less
    # The longest response decides the duration of an Offline run, so the samples/s show no cache.
    ("Offline", {}, {}, {"rate": 2.0}, True),
    # A prefix cache shortens only the first token.
    ("SingleStream", {}, {"ttft_ms": 20.0}, {"ttft_ms": 20.0, "latency_ms": 920.0}, True),
    ("SingleStream", {}, {"ttft_ms": 20.0}, {"ttft_ms": 14.0}, True),
    ("SingleStream", {}, {"ttft_ms": 20.0}, {"ttft_ms": 13.3}, False),
    ("SingleStream", {}, {"ttft_ms": 4.0}, {"ttft_ms": 1.0}, False),
    # A sample that is 4% shorter may be faster for its length. A longer one must be slower for its length.
    ("Offline", {"sample_index": (0,)}, {"lengths": {0: (96, 48)}}, {"latency_ms": 1000 / 1.13}, True),
    ("Offline", {"sample_index": (0,)}, {"lengths": {0: (96, 48)}}, {"latency_ms": 1000 / 1.15}, False),
    ("Offline", {"sample_index": (0,)}, {"lengths": {0: (104, 52)}}, {"latency_ms": 1000 / 1.04}, True),
    ("Offline", {"sample_index": (0,)}, {"lengths": {0: (104, 52)}}, {"latency_ms": 1000 / 1.07}, False),
    # Fewer queries wait for fewer others.
    ("Offline", {"audit_samples": 5}, {}, {"latency_ms": 560.0}, True),
    ("Offline", {"audit_samples": 5}, {}, {"latency_ms": 400.0}, False),
    # Shortened responses
    ("Offline", {"sample_index": (3,)}, {}, {"repeated_lengths": (100, 25)}, False),
]


@pytest.mark.parametrize(("scenario", "more", "reference", "repeat", "passed"), LIMITS)
def test_verdicts_change_at_the_limits(
    run_planned_audit: Run,
    scenario: str,
    more: dict[str, Any],
    reference: dict[str, Any],
    repeat: dict[str, Any],
    passed: bool,
) -> None:
    result, _ = run_planned_audit(request(scenario, **more), reference=reference, repeat=repeat)
    assert result.passed is passed, result.reason
    assert result.record()["threshold"] == more.get("threshold", 0.10)


def test_the_result_names_the_deciding_run_and_its_samples(run_planned_audit: Run) -> None:
    fast = {"latency_ms": 300.0}
    result, labels = run_planned_audit(request(sample_index=(3, 5)), reference={}, repeat={}, repeat_5=fast)
    assert labels == [
        "reference-n10-round1", "repeat-3-n10-round1", "repeat-5-n10-round1", "reference-n10-round2",
        "repeat-5-n10-round2", "reference-n10-round3",
    ]  # fmt: skip
    assert not result.passed
    assert result.record()["decided_by"].startswith("repeat-5-n10")
    details = result.details
    assert (details["first_samples"], details["samples"], details["loadable_samples"]) == (10, 10, 64)
    assert (details["reference_samples"], details["new_reference_samples"], details["engines"]) == (30, 30, 1)
    assert "30 of 30 reference samples were new to the engine" in result.text


def test_a_reference_run_that_repeats_a_sample_is_refused(run_planned_audit: Run, tmp_path: Path) -> None:
    """The request logs show what the engine computed before, whatever the audit planned."""
    audit_request = request(sample_index=(3,))
    finished = runs_in_turn(TEST, audit_request, lambda spec: run_for(tmp_path, spec, "Offline", {"reference": {}}))
    again = replace(finished[2].spec, rows=finished[0].spec.rows)
    finished[2] = run_for(tmp_path / "again", again, "Offline", {"reference": {}})
    with pytest.raises(ExecutionError, match="earlier runs issued 10 of its 10 samples"):
        TEST.verify(audit_request, finished)


@pytest.mark.parametrize("samples", [10, 64])
def test_runs_too_short_to_measure_have_no_verdict(run_planned_audit: Run, samples: int) -> None:
    """All 64 samples take 24 ms, in the second reference run or in the only run."""
    with pytest.raises(
        NoVerdictError, match=r"too fast to be measured: 64 samples took 0\.024 s, required: at least 0\.5 s"
    ) as caught:
        run_planned_audit(request(samples=samples), reference={"rate": 2_672.0}, repeat={"rate": 4_290.0})
    assert caught.value.exit_code == ExitCode.REFUSED
    assert "larger dataset" in caught.value.fix


def test_samples_are_added_until_the_reference_run_is_long_enough(run_planned_audit: Run) -> None:
    result, labels = run_planned_audit(request(), reference={"rate": 20.0}, repeat={"rate": 20.0}, few={"rate": 20.0})
    assert labels == [
        "reference-n10-round1", "reference-n60-round1", "repeat-0-n60-round1", "few-n60-round1", "reference-n60-round2"
    ]  # fmt: skip
    assert result.passed
    assert "N = 60, raised from 10; 2 reference runs of 3 s; 5 runs; 130 of 130 reference samples" in result.reason
    assert "reference score = 20.0\ntest score = 20.0\n" in result.text


def test_sample_indexes_are_positions_in_the_order_of_loading(tmp_path: Path) -> None:
    (spec,) = TEST.runs(request())
    lengths = [(10, 5), (400, 100), (220, 60), (210, 55), (100, 128), *[(300, 50)] * 5]
    samples = [(index, *both) for index, both in enumerate(lengths)]
    run = write_run(tmp_path / "run", spec, rate=1.0, samples=samples, loaded=[9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    # The means are 244 and 59.8 tokens. Sample 2 (220, 60) is at place 7 of the loaded set.
    assert TEST.more_runs(request(), [run])[0].label == "repeat-7-n10-round1"


def test_a_named_sample_of_unusual_length_has_no_verdict(run_planned_audit: Run) -> None:
    with pytest.raises(NoVerdictError, match="repeat-0: the repeated sample") as caught:
        run_planned_audit(request(sample_index=(0,)), reference={"lengths": {0: (10, 5)}})
    assert caught.value.fix == "use --sample-index auto"


# Completeness, and runs without verdict -------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["reference", "repeat"])
@pytest.mark.parametrize(("completed", "passed"), [(89, False), (90, True), (100, True)])
def test_at_least_nine_of_ten_samples_must_have_a_response(
    run_planned_audit: Run, label: str, completed: int, passed: bool
) -> None:
    paces: dict[str, dict[str, Any]] = {"reference": {}, "repeat": {}, "few": {}}
    paces[label]["completed"] = completed
    result, _ = run_planned_audit(request(samples=100, loaded_count=200, sample_index=(3,)), **paces)
    assert result.passed is passed


@pytest.mark.parametrize("pace", [{"rate": 0.0}, {"rate": -1.0}, {"latency_ms": 0.0}])
def test_runs_without_rate_and_latency_have_no_verdict(run_planned_audit: Run, pace: dict[str, Any]) -> None:
    with pytest.raises(ExecutionError, match="allow no comparison"):
        run_planned_audit(request(), reference={}, repeat=pace)


def test_a_single_run_has_no_verdict(tmp_path: Path) -> None:
    spec = TEST.runs(request())[0]
    run = write_run(tmp_path / "run", spec, samples=UNIQUE)
    for runs, why in (([], "0 finished runs"), ([run], "reference-n64-round1 is missing")):
        with pytest.raises(ExecutionError, match=why):
            TEST.verify(request(), runs)


def test_a_missing_run_prevents_a_verdict(tmp_path: Path) -> None:
    audit = request(samples=16, sample_index=(3,))
    (spec,) = TEST.runs(audit)
    reference = write_run(tmp_path / "run", spec, rate=1.0, samples=[(index, 100, 50) for index in range(16)])
    (spec,) = TEST.more_runs(audit, [reference])
    repeat = write_run(tmp_path / "run2", spec, rate=1.0, samples=[UNIQUE[3]] * 16, loaded=range(16))
    with pytest.raises(ExecutionError, match="few-n16-round1 is missing"):
        TEST.verify(audit, [reference, repeat])
    with pytest.raises(ExecutionError, match="must start with the reference run"):
        TEST.verify(audit, [repeat, reference])


def test_an_audit_of_an_earlier_version_has_no_verdict() -> None:
    folder = recorded() / "caching-of-an-earlier-version" / "audit" / "output_caching"
    with pytest.raises(NoVerdictError, match="an earlier version of the harness made this audit"):
        judged_again(folder, TEST, request(samples=None))


def test_issued_samples_that_contradict_the_audit_are_refused(tmp_path: Path) -> None:
    spec = TEST.runs(request())[0]
    run = write_run(tmp_path / "run", spec, samples=[UNIQUE[0]] * 10)
    with pytest.raises(ExecutionError, match="contradict audit"):
        TEST.more_runs(request(), [run])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("effective_performance_issue_unique", False),
        ("effective_performance_issue_unique", 1),
        ("effective_samples_per_query", 64),
        ("effective_min_duration_ms", 600000),
        ("effective_test_mode", "AccuracyOnly"),
        ("effective_sample_concatenate_permutation", None),
    ],
)
def test_an_ignored_audit_config_prevents_a_verdict(tmp_path: Path, key: str, value: object) -> None:
    spec = TEST.runs(request())[0]
    write_run(tmp_path / "good", spec, samples=UNIQUE).check_engaged()
    run = write_run(tmp_path / "bad", spec, samples=UNIQUE, changed={key: value})
    with pytest.raises(ExecutionError, match=f"not apply audit.config: {key}"):
        run.check_engaged()


@pytest.mark.parametrize("key", ["power_end", "result_validity"])
def test_an_unfinished_run_prevents_a_verdict(tmp_path: Path, key: str) -> None:
    spec = TEST.runs(request())[0]
    run = write_run(tmp_path / "bad", spec, samples=UNIQUE, changed={key: None})
    with pytest.raises(ExecutionError, match="did not finish"):
        run.check_engaged()


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["Server", "Interactive"])
def test_the_server_scenario_is_refused(scenario: str) -> None:
    with pytest.raises(SetupError, match="arrival rate determines"):
        TEST.validate(request(scenario))


@pytest.mark.parametrize(
    ("more", "error", "says"),
    [
        ({"samples": 65}, InputError, "must be at most 64"),
        ({"samples": 33, "starts_engine": False}, SetupError, "too small: 64 rows, required: at least 66"),
        ({"samples": 0}, InputError, "at least 1"),
        ({"audit_samples": 0}, InputError, "at least 1"),
        ({"sample_index": (10,)}, InputError, "must be 0 to 9"),
        ({"sample_index": (-1,)}, InputError, "must be 0 to 9"),
        ({"sample_index": (3, 3)}, InputError, "twice"),
        ({"threshold": 0.0}, InputError, "must be between 0 and 1"),
        ({"threshold": 1.0}, InputError, "must be between 0 and 1"),
        ({"threshold": -0.1}, InputError, "must be between 0 and 1"),
        ({"threshold": float("nan")}, InputError, "must be between 0 and 1"),
    ],
)
def test_invalid_audit_options_are_refused(more: dict[str, object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        TEST.validate(request(**more))


def test_valid_audit_options_are_accepted() -> None:
    TEST.validate(request(audit_samples=500, sample_index=(0, 9), threshold=0.999))
    TEST.validate(request(samples=None, loaded_count=5, sample_index=(4,)))
    assert TEST.run_counts(request(samples=None)) == (4, MAX_RUNS)


# Record and text ------------------------------------------------------------------------------------------------------


def test_record_and_text_have_the_rates_and_counts_of_both_runs(run_planned_audit: Run, tmp_path: Path) -> None:
    result, _ = run_planned_audit(request(sample_index=(3,)), reference={}, repeat={"latency_ms": 50.0, "rate": 20.0})
    record = result.record()
    assert record["ref_qps"] == pytest.approx(1.0)
    assert record["audit_qps"] == pytest.approx(20.0)
    assert (record["ref_completed"], record["ref_requested"]) == (10, 10)
    assert (record["audit_completed"], record["audit_requested"]) == (10, 10)
    assert "repeat-3: 20 samples/s, reference: 1 samples/s" in record["reason"]
    lines = result.text.splitlines()
    assert lines[:3] == ["Verifying performance.", "reference score = 1.0", "test score = 20.0"]
    assert lines[3].startswith("TEST FAIL: ")
    assert "TEST PASS" not in result.text
    assert lines[4] == "audit: output_caching, from this harness; MLCommons has no such test"
    write_audit(tmp_path, result)
    assert json.loads((tmp_path / "audit_output_caching.json").read_text())["passed"] is False
    assert (tmp_path / "verify_performance.txt").read_text() == result.text


def test_details_do_not_replace_the_fixed_fields_of_a_record(run_planned_audit: Run) -> None:
    result, _ = run_planned_audit(request(), reference={}, repeat={"latency_ms": 50.0})
    assert replace(result, details={"passed": True, "test": "x"}).record()["passed"] is False


def test_the_record_is_written_before_the_text(run_planned_audit: Run, tmp_path: Path) -> None:
    result, _ = run_planned_audit(request(), reference={}, repeat={})
    (tmp_path / "verify_performance.txt").mkdir()  # the text cannot be written
    with pytest.raises(OSError, match="verify_performance"):
        write_audit(tmp_path, result)
    assert (tmp_path / "audit_output_caching.json").exists()
    assert not list(tmp_path.glob(".*tmp"))


def test_names_of_audits_have_only_letters_digits_and_underscores() -> None:
    assert {"output_caching", "TEST04", "TEST06", "output_consistency", "output_length"} <= AUDITS.keys()
    assert all(re.fullmatch("[A-Za-z0-9_]+", name) and test.name == name for name, test in AUDITS.items())
    with pytest.raises(InputError, match="output_caching, output_consistency"):
        find_audit("TEST01")
