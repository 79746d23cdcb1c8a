"""TEST06: strict verdict over logged answers, and the official script's text."""

import json
import subprocess
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest

from compliance.audits.audit_registry import find_audit
from compliance.audits.base import AuditRequest
from compliance.audits.test06 import dtype_of, judge_entries, official_text
from runs.errors import ExecutionError, InputError
from runs.loadgen.accuracy_log import AccuracyEntry, read_accuracy_log
from tests.support.audit_legs import entry, logged, write_leg
from tests.support.published import CHECKOUT, PUBLISHED, needs_checkout, needs_published

STOPS = (128001, 128008, 128009)
BOS = (128000,)
SPECIAL = tuple(range(128000, 128256))
GOOD = [10, 11, 12, 128009]


def failed(entries: Sequence[AccuracyEntry], *, scenario: str = "Offline", count: int = 1) -> set[str]:
    checks = judge_entries(
        entries,
        scenario=scenario,
        stop_ids=STOPS,
        bos_ids=BOS,
        expected_count=count,
        max_tokens=128,
        special_ids=SPECIAL,
    )
    return {check.text for check in checks if not check.passed}


def test_honest_answers_pass() -> None:
    assert failed([entry(GOOD), entry([1, 2])], count=2) == set()
    assert failed([entry(GOOD, first=GOOD[:1])], scenario="Server") == set()
    assert failed([entry([5] * 128)]) == set()


@pytest.mark.parametrize(
    ("answer", "check"),
    [
        (entry([10, 128009, 128009]), "end-of-sequence id once"),
        (entry([10, 128001, 128009]), "end-of-sequence id once"),
        (entry([128009, 10]), "end-of-sequence id last"),
        (entry([10, 128008, 11]), "end-of-sequence id last"),
        (entry([128000, 10, 11]), "begin-of-sequence id"),
        (entry([10, 11, 128000]), "begin-of-sequence id"),
        (entry([10, 128006, 11]), "other special ids"),
        (entry([10, 11, 128255]), "other special ids"),
        (entry([10]), "length"),
        (entry([5] * 129), "length"),
        (entry([10, 11], count=3), "token count"),
        (AccuracyEntry(0, 0, b"\x01\x00\x00\x00\x02", 1, None), "whole token ids"),
        (entry([-1, 5]), "whole token ids"),
        (entry([10, 11], first=[11]), "first token"),
    ],
)
def test_each_fault_fails_its_check(answer: AccuracyEntry, check: str) -> None:
    assert check in failed([entry(GOOD), answer], count=2)
    assert check not in failed([entry(GOOD), entry(GOOD)], count=2)


@pytest.mark.parametrize("first", [None, [], [11], [10, 99], [*GOOD, 1]])
def test_first_token_record_is_needed_and_true_outside_offline(first: list[int] | None) -> None:
    assert failed([entry(GOOD, first=first)], scenario="Server") == {"first token"}


def test_number_of_answers_is_exact_and_an_empty_log_fails() -> None:
    assert failed([entry(GOOD)] * 99, count=100) == {"number of logged answers"}
    assert failed([entry(GOOD)] * 101, count=100) == {"number of logged answers"}
    assert "number of logged answers" in failed([], count=100)
    assert "length" in failed([], count=0)  # no answer proves nothing


def test_a_begin_id_that_also_ends_is_judged_as_an_end() -> None:
    checks = judge_entries(
        [entry([1, 2, 0])], scenario="Offline", stop_ids=(0,), bos_ids=(0,), expected_count=1, max_tokens=128
    )
    assert all(check.passed for check in checks)


def test_special_ids_that_begin_or_end_are_judged_as_such_alone() -> None:
    assert failed([entry([128000, 10])]) == {"begin-of-sequence id"}
    assert failed([entry([10, 128009, 128009])]) == {"end-of-sequence id once", "end-of-sequence id last"}
    unknown = judge_entries(
        [entry([5, 7])], scenario="Offline", stop_ids=STOPS, bos_ids=BOS, expected_count=1, max_tokens=128
    )
    assert "other special ids" not in {check.text for check in unknown}  # nothing is claimed of what is not known


def test_int64_answers_are_read_as_such() -> None:
    wide = AccuracyEntry(0, 0, array("q", [10, 11, 12]).tobytes(), 3, array("q", [10]).tobytes())
    assert dtype_of([wide]).name == "int64"
    assert failed([wide], scenario="Server") == set()
    assert dtype_of([wide, entry([1, 2, 3, 4])]).name == "int32"
    # Counting half the tokens does not make int32 ids into int64 ones.
    assert failed([entry([1, 2, 3, 4], count=2)]) == {"token count"}


# Logs, the scenario, and the official script's lines: first token, end, length, verdict.
LOGS: list[tuple[list[AccuracyEntry], str, str]] = [
    ([], "Offline", "Skipped True True complete"),
    ([], "Server", "True True True complete"),
    ([entry([5, 6, 7]), entry([1, 2])], "Offline", "Skipped True True complete"),
    ([entry([5, 2, 2])], "Offline", "Skipped False True failed"),
    ([entry([2, 2])], "Offline", "Skipped True True complete"),
    ([entry([10, 128009, 128009])], "Offline", "Skipped True True complete"),
    ([entry([5, 6], first=[5]), entry([5, 6], first=[])], "Server", "True True True complete"),
    ([entry(GOOD, first=[9])], "Server", "False True True failed"),
    ([entry(GOOD)], "SingleStream", "False True True failed"),
    ([entry(GOOD, count=9)], "Offline", "Skipped True False failed"),
]


@pytest.mark.parametrize(("entries", "scenario", "lines"), LOGS)
def test_official_text(entries: list[AccuracyEntry], scenario: str, lines: str) -> None:
    first, end, length, verdict = lines.split()
    assert official_text(entries, scenario=scenario) == (
        f"First token check pass: {first}\nEOS check pass: {end}\nSample length check pass: {length}\n"
        f"TEST06 verification {verdict}\n"
    )


@needs_checkout
@pytest.mark.parametrize(("entries", "scenario", "lines"), LOGS)
def test_the_text_is_that_of_the_official_script(
    tmp_path: Path, entries: list[AccuracyEntry], scenario: str, lines: str
) -> None:
    assert official_text(entries, scenario=scenario) == run_official_test06(tmp_path, scenario, entries)


@needs_checkout
@needs_published
def test_of_published_logs_too(tmp_path: Path) -> None:
    found = sorted(PUBLISHED.glob("**/TEST06/accuracy/mlperf_log_accuracy.json"))
    assert found
    for number, path in enumerate(found):
        scenario, entries = path.parents[2].name, read_accuracy_log(path)
        (folder := tmp_path / str(number)).mkdir()
        assert official_text(entries, scenario=scenario) == run_official_test06(folder, scenario, entries), path


def run_official_test06(folder: Path, scenario: str, entries: Sequence[AccuracyEntry]) -> str:
    (folder / "mlperf_log_accuracy.json").write_text(json.dumps([logged(one) for one in entries]))
    script = Path(CHECKOUT) / "compliance" / "TEST06" / "run_verification.py"
    options = ["-c", folder, "-o", folder / "out", "-s", scenario, "-d", dtype_of(entries).name]
    subprocess.run([sys.executable, script, *options], cwd=folder, capture_output=True, check=True)
    return (folder / "out" / "TEST06" / "verify_accuracy.txt").read_text()


def request(**more: object) -> AuditRequest:
    values = {"scenario": "Offline", "loadgen_key": "llama3_1-8b", "loaded_count": 64, "stop_ids": STOPS, **more}
    return AuditRequest.model_validate(values)


def test_plan_is_the_official_configuration() -> None:
    spec = find_audit("TEST06").legs(request())[0]
    assert spec.render() == (
        "*.*.mode = 2\n*.*.accuracy_log_rng_seed = 720381539243781796\n*.*.accuracy_log_sampling_target = 100\n"
        "*.*.min_query_count = 100\n*.*.min_duration = 0\n*.*.sample_concatenate_permutation = 0\n"
    )


def test_verdict_has_the_official_text_and_copies_the_log(tmp_path: Path) -> None:
    test = find_audit("TEST06")
    spec = test.legs(request())[0]
    entries = [entry([10, 128009, 128009], seq=seq, index=seq) for seq in range(100)]
    leg = write_leg(tmp_path / "leg", spec, samples=[(seq, 9, 3) for seq in range(100)], entries=entries)
    result = test.verify(request(), [leg])
    assert not result.passed
    assert result.text.endswith("TEST06 verification complete\n")
    assert result.record()["official_passed"] is True
    assert "end-of-sequence id once" in result.reason
    assert result.copies == {"accuracy/mlperf_log_accuracy.json": leg.run.accuracy_log}


@pytest.mark.parametrize(("scenario", "required"), [("Offline", True), ("SingleStream", False)])
def test_required_where_the_benchmark_asks_for_it(tmp_path: Path, scenario: str, required: bool) -> None:
    test = find_audit("TEST06")
    samples = [(seq, 9, 3) for seq in range(100)]
    entries = [entry(GOOD, seq=seq, index=seq) for seq in range(100)]
    spec = test.legs(request())[0]
    leg = write_leg(tmp_path / "leg", spec, scenario=scenario, samples=samples, entries=entries)
    assert test.verify(request(scenario=scenario), [leg]).required == required


def test_refusals(tmp_path: Path) -> None:
    test = find_audit("TEST06")
    with pytest.raises(InputError, match="end-of-sequence ids"):
        test.validate(request(stop_ids=()))
    with pytest.raises(InputError, match="--samples"):
        test.validate(request(samples=5))
    with pytest.raises(ExecutionError, match="1 finished legs"):
        test.verify(request(), [])
