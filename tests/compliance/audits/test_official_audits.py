"""TEST06 and TEST04: the verdicts, and the texts of the official scripts. Some tests need a checkout of the scripts."""

import json
import subprocess
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest

from compliance.audits.base import RunSpec
from compliance.audits.catalog.test04 import official_outcome
from compliance.audits.discovery import find_audit
from compliance.audits.logged_tokens import dtype_of, judge_entries, official_text
from compliance.audits.options import AuditOptions, AuditRequest
from compliance.audits.run_artifacts import RunArtifacts
from runs.errors import ExecutionError, InputError, SetupError
from runs.loadgen.accuracy_log import AccuracyEntry, read_accuracy_log
from runs.record.layout import RunDir
from tests.support.published import CHECKOUT, PUBLISHED, needs_checkout, needs_published
from tests.support.runs.audit_runs import as_loadgen_writes, entry, request_of, write_run

STOPS = (128001, 128008, 128009)
BOS = (128000,)
SPECIAL = tuple(range(128000, 128256))
GOOD = [10, 11, 12, 128009]


def failed_check_names(entries: Sequence[AccuracyEntry], *, scenario: str = "Offline", count: int = 1) -> set[str]:
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


def test_correct_responses_pass_test06() -> None:
    assert failed_check_names([entry(GOOD), entry([1, 2])], count=2) == set()
    assert failed_check_names([entry(GOOD, first=GOOD[:1])], scenario="Server") == set()
    assert failed_check_names([entry([5] * 128)]) == set()


@pytest.mark.parametrize(
    ("response", "check"),
    [
        (entry([10, 128009, 128009]), "responses with multiple end-of-sequence IDs"),
        (entry([10, 128001, 128009]), "responses with multiple end-of-sequence IDs"),
        (entry([128009, 10]), "responses that continue after an end-of-sequence ID"),
        (entry([10, 128008, 11]), "responses that continue after an end-of-sequence ID"),
        (entry([128000, 10, 11]), "responses with a begin-of-sequence ID"),
        (entry([10, 11, 128000]), "responses with a begin-of-sequence ID"),
        (entry([10, 128006, 11]), "responses with another special ID"),
        (entry([10, 11, 128255]), "responses with another special ID"),
        (entry([10]), "responses with a wrong length"),
        (entry([5] * 129), "responses with a wrong length"),
        (entry([10, 11], count=3), "responses with a wrong token_count"),
        (AccuracyEntry(0, 0, b"\x01\x00\x00\x00\x02", 1, None), "responses with damaged token IDs"),
        (entry([-1, 5]), "responses with damaged token IDs"),
        (entry([10, 11], first=[11]), "responses with a wrong reported first token"),
    ],
)
def test_each_faulty_response_violates_its_check(response: AccuracyEntry, check: str) -> None:
    assert check in failed_check_names([entry(GOOD), response], count=2)
    assert check not in failed_check_names([entry(GOOD), entry(GOOD)], count=2)


@pytest.mark.parametrize("first", [None, [], [11], [10, 99], [*GOOD, 1]])
def test_a_missing_or_wrong_first_token_fails_outside_offline(first: list[int] | None) -> None:
    assert failed_check_names([entry(GOOD, first=first)], scenario="Server") == {
        "responses with a wrong reported first token"
    }


def test_missing_and_additional_responses_fail() -> None:
    assert failed_check_names([entry(GOOD)] * 99, count=100) == {"number of logged responses"}
    assert failed_check_names([entry(GOOD)] * 101, count=100) == {"number of logged responses"}
    assert "number of logged responses" in failed_check_names([], count=100)
    assert "responses with a wrong length" in failed_check_names([], count=0)  # an empty log proves nothing


@pytest.mark.parametrize(
    ("odd", "count", "severity"),
    [([10, 128000], 1, "note"), ([10, 128000], 5, "note"), ([10, 128000], 6, "error"), ([128000, 10], 1, "error")],
)
def test_a_generated_begin_of_sequence_id_is_a_note_or_warning(odd: list[int], count: int, severity: str) -> None:
    entries = [entry(odd)] * count + [entry([10, 11])] * (100 - count)
    judged = judge_entries(entries, scenario="Offline", stop_ids=STOPS, bos_ids=BOS, expected_count=100, max_tokens=128)
    assert [finding.severity for finding in judged if finding.rule == "test06-begin"] == [severity]


@pytest.mark.parametrize(
    ("logged", "issued", "severity"),
    [
        *[(87, 5000, "warning"), (108, 5000, "warning"), (100, 5000, "pass"), (100, None, "pass")],
        *[(99, 100, "error"), (99, None, "error"), (0, 5000, "error"), (59, 5000, "error"), (90, 101, "error")],
    ],
)
def test_another_number_of_responses_is_a_warning_if_loadgen_drew_them(
    logged: int, issued: int | None, severity: str
) -> None:
    checks = judge_entries(
        [entry([10, 11])] * logged,
        scenario="Offline", stop_ids=STOPS, bos_ids=BOS, expected_count=100, max_tokens=128, issued=issued,
    )  # fmt: skip
    assert [check.severity for check in checks if check.rule == "test06-count"] == [severity]


def test_an_id_that_begins_and_ends_is_treated_as_an_end() -> None:
    checks = judge_entries(
        [entry([1, 2, 0])], scenario="Offline", stop_ids=(0,), bos_ids=(0,), expected_count=1, max_tokens=128
    )
    assert all(check.passed for check in checks)


def test_begin_and_end_ids_are_checked_separately() -> None:
    assert failed_check_names([entry([128000, 10])]) == {"responses with a begin-of-sequence ID"}
    assert failed_check_names([entry([10, 128009, 128009])]) == {
        "responses with multiple end-of-sequence IDs",
        "responses that continue after an end-of-sequence ID",
    }
    unknown = judge_entries(
        [entry([5, 7])], scenario="Offline", stop_ids=STOPS, bos_ids=BOS, expected_count=1, max_tokens=128
    )
    assert "responses with another special ID" not in {
        check.text for check in unknown
    }  # unknown special IDs are not judged


def test_responses_of_int64_ids_are_read() -> None:
    wide = AccuracyEntry(0, 0, array("q", [10, 11, 12]).tobytes(), 3, array("q", [10]).tobytes())
    assert dtype_of([wide]).name == "int64"
    assert failed_check_names([wide], scenario="Server") == set()
    assert dtype_of([wide, entry([1, 2, 3, 4])]).name == "int32"
    # The counts of half of the tokens do not make int64 IDs of int32 ones.
    assert failed_check_names([entry([1, 2, 3, 4], count=2)]) == {"responses with a wrong token_count"}


# Logs, the scenario, and the lines of the official script: first token, end, length, verdict.
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
def test_the_text_has_the_lines_of_the_official_script(entries: list[AccuracyEntry], scenario: str, lines: str) -> None:
    first, end, length, verdict = lines.split()
    assert official_text(entries, scenario=scenario) == (
        f"First token check pass: {first}\nEOS check pass: {end}\nSample length check pass: {length}\n"
        f"TEST06 verification {verdict}\n"
    )


@needs_checkout
@pytest.mark.parametrize(("entries", "scenario", "lines"), LOGS)
def test_the_text_equals_that_of_the_official_test06_script(
    tmp_path: Path, entries: list[AccuracyEntry], scenario: str, lines: str
) -> None:
    assert official_text(entries, scenario=scenario) == run_official_test06(tmp_path, scenario, entries)


@needs_checkout
@needs_published
def test_texts_of_published_logs_equal_those_of_the_official_script(tmp_path: Path) -> None:
    paths = sorted(PUBLISHED.glob("**/TEST06/accuracy/mlperf_log_accuracy.json"))
    assert paths
    for number, path in enumerate(paths):
        scenario, entries = path.parents[2].name, read_accuracy_log(path)
        (folder := tmp_path / str(number)).mkdir()
        assert official_text(entries, scenario=scenario) == run_official_test06(folder, scenario, entries), path


def run_official_test06(folder: Path, scenario: str, entries: Sequence[AccuracyEntry]) -> str:
    (folder / "mlperf_log_accuracy.json").write_text(json.dumps([as_loadgen_writes(entry) for entry in entries]))
    script = Path(CHECKOUT) / "compliance" / "TEST06" / "run_verification.py"
    options = ["-c", folder, "-o", folder / "out", "-s", scenario, "-d", dtype_of(entries).name]
    subprocess.run([sys.executable, script, *options], cwd=folder, capture_output=True, check=True)
    return (folder / "out" / "TEST06" / "verify_accuracy.txt").read_text()


def request(**more: object) -> AuditRequest[AuditOptions]:
    return request_of("TEST06", **{"stop_ids": STOPS, **more})


def test_the_planned_run_has_the_official_configuration() -> None:
    spec = find_audit("TEST06").runs(request())[0]
    assert spec.render() == (
        "*.*.mode = 2\n*.*.accuracy_log_rng_seed = 720381539243781796\n*.*.accuracy_log_sampling_target = 100\n"
        "*.*.min_query_count = 100\n*.*.min_duration = 0\n*.*.sample_concatenate_permutation = 0\n"
    )


def test_the_verdict_has_the_official_text_and_a_copy_of_the_log(tmp_path: Path) -> None:
    test = find_audit("TEST06")
    spec = test.runs(request())[0]
    entries = [entry([10, 128009, 128009], seq=seq, index=seq) for seq in range(100)]
    run = write_run(tmp_path / "run", spec, samples=[(seq, 9, 3) for seq in range(100)], entries=entries)
    result = test.verify(request(), [run])
    assert not result.passed
    assert result.text.endswith("TEST06 verification complete\n")
    assert result.record()["official_passed"] is True
    assert "end-of-sequence IDs" in result.reason
    assert result.copies == {"accuracy/mlperf_log_accuracy.json": run.dir.accuracy_log}


@pytest.mark.parametrize(("scenario", "required"), [("Offline", True), ("SingleStream", False)])
def test_test06_is_required_only_where_the_benchmark_requires_it(tmp_path: Path, scenario: str, required: bool) -> None:
    test = find_audit("TEST06")
    samples = [(seq, 9, 3) for seq in range(100)]
    entries = [entry(GOOD, seq=seq, index=seq) for seq in range(100)]
    spec = test.runs(request())[0]
    run = write_run(tmp_path / "run", spec, scenario=scenario, samples=samples, entries=entries)
    assert test.verify(request(scenario=scenario), [run]).required == required


def test_invalid_test06_options_are_refused(tmp_path: Path) -> None:
    test = find_audit("TEST06")
    with pytest.raises(InputError, match="end-of-sequence IDs"):
        test.validate(request(stop_ids=()))
    with pytest.raises(InputError, match="--samples"):
        test.validate(request(samples=5))
    with pytest.raises(ExecutionError, match="0 finished runs, required: at least 1"):
        test.verify(request(), [])


# TEST04 ---------------------------------------------------------------------------------------------------------------


def summary(*lines: str) -> str:
    return "\n".join(["=" * 48, "MLPerf Results Summary", "=" * 48, "SUT name : PySUT", *lines, ""])


def offline(score: float | str, result: str = "VALID", errors: str = "No errors encountered during test.") -> str:
    return summary(
        "Scenario : Offline",
        "Mode     : PerformanceOnly",
        f"Samples per second: {score}",
        f"Result is : {result}",
        errors,
    )


def single_stream(*estimates: float) -> str:
    return summary(
        "Scenario : SingleStream",
        "Result is : VALID",
        *(f" * Early stopping 90th percentile estimate: {value}" for value in estimates),
    )


def server(score: float, result: str = "VALID") -> str:
    return summary("Scenario : Server", f"Completed samples per second    : {score}", f"Result is : {result}")


# (reference, test, passes, scores as printed)
PAIRS = {
    "offline pass": (offline("100.5"), offline("110.0"), True, ("100.5", "110.0")),
    "offline at the limit": (offline(100), offline(111), False, ("100", "111")),
    "offline fail": (offline(100), offline(2000), False, ("100", "2000")),
    "server pass": (server(5.5), server(5.4), True, ("5.5", "5.4")),
    "single stream: the last estimate counts": (
        single_stream(30e6, 1.2e6),
        single_stream(30e6, 1.0e6),
        False,
        (str(1e9 / 1.2e6), str(1e9 / 1.0e6)),
    ),
    "single stream: wide threshold": (
        single_stream(1.19e6),
        single_stream(1.0e6),
        True,
        (str(1e9 / 1.19e6), str(1e9 / 1.0e6)),
    ),
    "single stream: narrow above 200000": (
        single_stream(1_150),
        single_stream(1_000),
        False,
        (str(1e9 / 1_150), str(1e9 / 1_000)),
    ),
    "reference invalid": (offline(100, "INVALID"), offline(100), False, None),
    "test invalid": (
        offline(100, errors="3 ERRORs encountered. See detailed log."),
        offline(1, "INVALID"),
        False,
        None,
    ),
    "other scenario": (offline(100), server(100), False, None),
    "errors are told": (
        offline(100, errors="1 ERROR encountered"),
        offline(99, errors="12 ERRORs"),
        True,
        ("100", "99"),
    ),
    "accuracy logs": (summary("No errors"), summary("No errors"), False, ("0", "0")),
}


@pytest.mark.parametrize("name", PAIRS)
def test_test04_outcomes_follow_from_both_summaries(tmp_path: Path, name: str) -> None:
    reference, test, passes, scores = PAIRS[name]
    paths = write_pair(tmp_path, reference, test)
    outcome = official_outcome(*paths)
    assert outcome.passed is passes
    assert ("TEST PASS" in outcome.text) is passes
    assert (scores or (None, None)) == (outcome.reference_score, outcome.test_score)
    if scores:
        assert f"reference score = {scores[0]}\ntest score = {scores[1]}\n" in outcome.text


def write_pair(folder: Path, reference: str, test: str) -> tuple[Path, Path]:
    paths = (RunDir(folder / "results" / "performance" / "run_1").summary, RunDir(folder / "test").summary)
    for path, text in zip(paths, (reference, test), strict=True):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return paths


@pytest.mark.parametrize("text", ["Scenario Offline", "Scenario : Offline\nSamples per second: many"])
def test_damaged_summaries_are_refused(tmp_path: Path, text: str) -> None:
    paths = write_pair(tmp_path, text, offline(1))
    with pytest.raises(InputError, match="LoadGen"):
        official_outcome(*paths)


def test_a_summary_that_is_not_text_is_refused(tmp_path: Path) -> None:
    paths = write_pair(tmp_path, "", offline(1))
    paths[0].write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text"):
        official_outcome(*paths)


def test_the_test04_verdict_states_that_it_is_not_required(tmp_path: Path) -> None:
    paths = write_pair(tmp_path, *PAIRS["offline pass"][:2])
    runs = [RunArtifacts(RunDir(path.parent), spec=RunSpec(label)) for label, path in zip("ab", paths, strict=True)]
    request = request_of("TEST04", loadgen_key="")
    result = find_audit("TEST04").verify(request, runs)
    assert result.passed
    assert not result.required
    assert result.text.startswith("Verifying performance.\nreference score = 100.5\ntest score = 110.0\nTEST PASS\n")
    assert "Not required" in result.text


def test_test04_with_too_few_samples_is_refused() -> None:
    with pytest.raises(SetupError, match="at least 4 samples"):
        find_audit("TEST04").validate(request_of("TEST04", loaded_count=3))


# Comparisons with the official scripts --------------------------------------------------------------------------------


@needs_checkout
@pytest.mark.parametrize("name", PAIRS)
def test_text_and_scores_equal_those_of_the_official_test04_script(tmp_path: Path, name: str) -> None:
    paths = write_pair(tmp_path, *PAIRS[name][:2])
    assert official_outcome(*paths).text == run_official_test04(tmp_path, paths)


@needs_checkout
@needs_published
def test_texts_of_published_summaries_equal_those_of_the_official_script(tmp_path: Path) -> None:
    summaries = sorted(PUBLISHED.glob("**/performance/run_1/mlperf_log_summary.txt"))
    assert summaries
    for number, (reference, audited) in enumerate(zip(summaries, summaries[1:] + summaries[:1], strict=True)):
        folder = tmp_path / str(number)
        paths = write_pair(folder, reference.read_text(), audited.read_text())
        assert official_outcome(*paths).text == run_official_test04(folder, paths), (reference, audited)


def run_official_test04(folder: Path, paths: tuple[Path, Path]) -> str:
    script = Path(CHECKOUT) / "compliance" / "TEST04" / "run_verification.py"
    subprocess.run(
        [sys.executable, script, "-r", folder / "results", "-c", paths[1].parent, "-o", folder / "out"],
        cwd=folder,
        capture_output=True,
        check=True,
    )
    return (folder / "out" / "TEST04" / "verify_performance.txt").read_text()
