"""The verdict of a run directory and its reasons."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.errors import ExecutionError, HarnessError, InputError
from runs.files.writing import write_json
from runs.loadgen.detail_log import read_detail
from runs.numbers.derive_result import derive_result
from runs.numbers.invalid import SettingAdvice, invalid_reasons
from runs.numbers.load import Load
from runs.numbers.numbers import LatencyNumbers, reported_numbers
from runs.numbers.rederive import derive_numbers
from runs.numbers.result import read_result, write_result
from runs.record.finished_run import FinishedRun
from runs.record.layout import RunDir
from tests.support.files.damage import damaged
from tests.support.files.editing import edit_detail, edit_requests
from tests.support.runs.loadgen_runs import LoadgenRuns

Copy = Callable[[str], RunDir]


def cut(name: str, kept: int) -> Callable[[RunDir], object]:
    """Return a change that keeps the first bytes of a file."""

    def do(run: RunDir) -> None:
        path = getattr(run, name)
        path.write_bytes(path.read_bytes()[:kept])

    return do


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("server", lambda run: run.detail.unlink(), "mlperf_log_detail.txt is missing: LoadGen did not finish"),
        ("server", lambda run: run.summary.unlink(), "mlperf_log_summary.txt is missing: LoadGen did not finish"),
        ("server", cut("summary", 0), "is empty"),
        *(("server", cut("detail", kept), "LoadGen did not finish") for kept in (0, 100, 5_000, 20_000)),
        ("server", lambda run: edit_detail(run, "num_errors", None), "LoadGen did not finish"),
        ("offline-accuracy", lambda run: run.accuracy_log.unlink(), r"mlperf_log_accuracy\.json is missing"),
    ],
)
def test_a_missing_or_truncated_log_is_an_unfinished_run(
    copied_run: Copy, name: str, change: Callable[[RunDir], object], message: str
) -> None:
    run = copied_run(name)
    change(run)
    with pytest.raises(ExecutionError, match=message):
        derive_result(FinishedRun(run))


def test_a_damaged_log_is_refused(copied_run: Copy) -> None:
    run = copied_run("server")
    run.detail.write_bytes(b"hello\n" + run.detail.read_bytes())
    with pytest.raises(InputError, match="line 1"):
        derive_result(FinishedRun(run))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("effective_test_mode", "x", "the mode was x"),
        ("effective_scenario", "x", "the scenario was x"),
    ],
)
def test_an_unsupported_mode_or_scenario_is_refused(copied_run: Copy, key: str, value: object, message: str) -> None:
    run = copied_run("server-too-few")
    edit_detail(run, key, value)
    with pytest.raises(InputError, match=re.escape(message)):
        derive_result(FinishedRun(run))


def test_logged_errors_make_a_valid_run_invalid(copied_run: Copy) -> None:
    run = copied_run("server-one-token")
    for key in ("result_validity", "early_stopping_met", "result_perf_constraints_met"):
        edit_detail(run, key, "VALID" if key == "result_validity" else True)
    result = derive_result(FinishedRun(run))
    assert (result.loadgen_verdict, result.verdict) == ("VALID", "INVALID")
    assert result.reasons[0].endswith("Number of tokens need to be greater than 1")


def test_a_performance_run_without_results_is_invalid(copied_run: Copy) -> None:
    run = copied_run("offline-accuracy")
    edit_detail(run, "effective_test_mode", "PerformanceOnly")
    result = derive_result(FinishedRun(run))
    assert result.verdict == "INVALID"
    assert "has no result" in result.reasons[0]


def test_an_unknown_reason_of_loadgen_is_reported(copied_run: Copy) -> None:
    run = copied_run("server")
    edit_detail(run, "result_validity", "INVALID")
    result = derive_result(FinishedRun(run))
    assert result.reasons == ["LoadGen reports INVALID: no reason given"]
    assert [item.name for item in result.disagreements if "summary" not in item.name] == ["result_validity"]


def test_a_different_scenario_is_a_disagreement(loadgen_runs: LoadgenRuns) -> None:
    result = derive_result(FinishedRun(loadgen_runs["offline"]), scenario="Server")
    assert [item.name for item in result.disagreements] == ["scenario"]
    assert derive_result(FinishedRun(loadgen_runs["offline"]), scenario="Offline").disagreements == []


def test_a_missing_request_log_is_noted(copied_run: Copy) -> None:
    run = copied_run("server")
    run.requests.unlink()
    result = derive_result(FinishedRun(run))
    assert (result.verdict, result.derived, result.output_tokens_mean, result.counts.samples) == (
        "VALID",
        None,
        None,
        None,
    )
    assert result.notes == ["requests.jsonl is missing: numbers could not be recomputed"]


def test_an_empty_request_log_is_a_disagreement(copied_run: Copy) -> None:
    run = copied_run("offline-no-trace")
    run.requests.write_bytes(b"")
    assert any("the request log of the run" in str(item) for item in derive_result(FinishedRun(run)).disagreements)


@pytest.mark.parametrize(("replaced", "responses"), [([], 99), ([2], 100)], ids=["missing", "twice"])
def test_an_accuracy_run_with_a_missing_response_is_invalid(
    copied_run: Copy, replaced: list[int], responses: int
) -> None:
    run = copied_run("offline-accuracy")
    lines = run.accuracy_log.read_text().splitlines()
    run.accuracy_log.write_text("\n".join([lines[0], *(lines[place] for place in replaced), *lines[2:]]))
    result = derive_result(FinishedRun(run))
    assert result.verdict == "INVALID"
    assert f"contains {responses} responses to 99 samples, required: one response to each of 100" in result.reasons[0]
    assert [(item.reported, item.derived) for item in result.disagreements] == [(99, 100)] * (responses == 99)


def test_the_mean_of_output_tokens_is_recomputed(copied_run: Copy) -> None:
    run = copied_run("offline")
    before = derive_result(FinishedRun(run))
    edit_requests(run, 0, output_tokens=1_000)
    after = derive_result(FinishedRun(run))
    assert after.output_tokens_mean > before.output_tokens_mean > 1


def test_a_written_result_of_any_version_is_read(copied_run: Copy) -> None:
    run = copied_run("server")
    edit_detail(run, "result_mean_latency_ns", 1)
    result = derive_result(FinishedRun(run), scenario="Interactive")
    assert result.scenario == "Interactive"
    assert result.disagreements
    write_result(run, result)
    assert read_result(run.result) == result
    record = result.model_dump(mode="json")
    write_json(run.result, record | {"given up": 1})
    assert read_result(run.result) == result
    write_json(run.result, record | {"output_tokens_mean": "64.15"})
    with pytest.raises(InputError, match="output_tokens_mean: Input should be a valid number"):
        read_result(run.result)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "it is not JSON"),
        (b"{}", "scenario: Field required"),
        (b"[]", "is not a JSON object"),
        (None, "No such file"),
    ],
)
def test_a_result_of_another_structure_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "result.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_result(path)


@pytest.mark.parametrize("name", ["offline", "server-no-trace", "single-stream", "offline-accuracy"])
@pytest.mark.parametrize("file", ["summary", "detail", "accuracy_log", "trace", "requests"])
@settings(max_examples=12)
@given(data=st.data())
def test_randomly_damaged_runs_raise_only_harness_errors(
    loadgen_runs: LoadgenRuns, tmp_path_factory: pytest.TempPathFactory, name: str, file: str, data: st.DataObject
) -> None:
    original = loadgen_runs[name]
    run = RunDir(tmp_path_factory.mktemp("damaged"))
    for path in original.root.iterdir():
        (run.root / path.name).symlink_to(path)
    target = getattr(run, file)
    content = target.read_bytes()
    target.unlink()
    if data.draw(st.booleans()):
        target.write_bytes(data.draw(damaged(content)))
    else:  # numbers pass the parsers and reach the arithmetic
        numbers = list(re.finditer(rb"(?<=[ :,])\d+(?=[,}\n])", content))
        if numbers:
            place = data.draw(st.sampled_from(numbers))
            content = content[: place.start()] + data.draw(ODD_NUMBERS) + content[place.end() :]
        target.write_bytes(content)
    try:
        result = derive_result(FinishedRun(run))
    except HarnessError as error:
        result = None
        message = error.message
    assert result is not None or message


ODD: tuple[Any, ...] = (0, 1, -1, 2**64 - 1, 1e308, 0.5, "x", True, [], {}, None)


@pytest.mark.parametrize("one_in", [len(ODD) // 2, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["offline-no-trace", "server-too-few", "server-accuracy"])
def test_unusual_values_raise_only_harness_errors(copied_run: Copy, name: str, one_in: int) -> None:
    """The test uses all odd values of each key, or a selection that differs between keys."""
    run = copied_run(name)
    original = run.detail.read_bytes()
    outcomes = set()
    for number, key in enumerate(read_detail(run.detail).values):
        if key.startswith(("loadgen_", "logger_")):
            continue
        for value in ODD[number % one_in :: one_in]:
            edit_detail(run, key, value)
            try:
                derive_result(FinishedRun(run))
                outcomes.add("result")
            except HarnessError as error:
                outcomes.add(type(error).__name__)
            run.detail.write_bytes(original)
    assert {"result", "InputError"} <= outcomes <= {"result", "InputError", "ExecutionError"}


ODD_NUMBERS = st.sampled_from([b"0", b"1", b"-1", b"18446744073709551615", b"9223372036854775807", b"1e308", b"0.5"])


TOO_SHORT = {"result_min_duration_met": False, "effective_min_duration_ms": 400}
TOO_FEW = {"result_min_queries_met": False}


@pytest.mark.parametrize(
    ("name", "changes", "mean_ns", "advice"),
    [
        (
            "single-stream", TOO_SHORT, 5_000_000,
            "set SingleStream target_latency = 4 in user.conf (or less; the measured mean is 5 ms)",
        ),
        (
            "single-stream", TOO_SHORT, 400_000,
            "set SingleStream min_query_count = 1100 in user.conf (or more; the measured mean is 0.4 ms)",
        ),
        (
            "offline", TOO_SHORT | {"result_samples_per_second": 4.005}, 5_000_000,
            "set Offline target_qps = 4.41 in user.conf (or more: 1.1 × the measured 4.00 samples/s",
        ),
        ("single-stream", TOO_FEW, 5_000_000, "set SingleStream target_latency = 1 in user.conf (or less)"),
        ("offline", TOO_FEW, 5_000_000, "samples are needed: the run ended early"),
        ("server", TOO_FEW, 5_000_000, "queries, min_query_count is"),
    ],
)  # fmt: skip
def test_advice_for_an_invalid_run_can_be_followed(
    copied_run: Copy, name: str, changes: dict[str, Any], mean_ns: int, advice: str
) -> None:
    run = copied_run(name)
    for key, value in changes.items():
        edit_detail(run, key, value)
    detail = read_detail(run.detail)
    reported = reported_numbers(detail)
    latency_ns = reported.latency_ns.model_copy(update={"mean": mean_ns})
    (reason,) = invalid_reasons(detail, reported.model_copy(update={"latency_ns": latency_ns}), None)
    assert advice in reason


def spread(least_ms: float, median_ms: float, most_ms: float) -> LatencyNumbers:
    values = {name: int(most_ms * 1e6) for name in LatencyNumbers.model_fields}
    return LatencyNumbers(**values | {"min": int(least_ms * 1e6), "p50": int(median_ms * 1e6)})


@pytest.mark.parametrize("flag", ["result_perf_constraints_met", "early_stopping_met"])
@pytest.mark.parametrize(
    ("ttft_ms", "tpot_ms", "mean_open", "never"),
    [
        ((3_000, 3_100, 3_200), (10, 20, 30), 30, ("TTFT was 3.000 s in the fastest query", "the limit of 2.000 s")),
        ((200, 300, 900), (150, 160, 170), 300, ("TPOT was 150.00 ms in the fastest query",)),
        ((200, 300, 900), (90, 260, 300), 2.5, ("TPOT was 260.00 ms in the median, with 2.5 queries open on average",)),
        ((200, 300, 900), (90, 240, 300), 2.5, ()),
        ((3_000, 3_100, 3_200), (150, 160, 170), None, ("limit of 2.000 s", "limit of 100.00 ms")),
        ((200, 9_000, 90_000), (60, 70, 80), 3.0, ()),
        ((200, 300, 900), (60, 150, 200), 300, ()),
        ((200, 300, 900), (60, 150, 200), None, ()),
    ],
)
def test_no_lower_rate_is_advised_if_no_rate_meets_the_limit(
    copied_run: Copy, flag: str, ttft_ms: Any, tpot_ms: Any, mean_open: float | None, never: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    run = copied_run("server")
    limits = {"requested_server_ttft_latency": 2 * 10**9, "requested_server_tpot_latency": 10**8}
    for key, value in {flag: False, "result_validity": "INVALID", **limits}.items():
        edit_detail(run, key, value)
    finished = FinishedRun(run)
    derived = derive_numbers(finished.detail, finished.requests, None) if mean_open is not None else None
    if derived is not None:
        late: Any = SimpleNamespace(met=False, verdicts={"tpot": SimpleNamespace(met=False)}, queries_needed=1)
        derived = replace(derived, early_stopping=late)
        load = Load(5.0, 5.0, mean_open, 0, 0.0, kept_up=True)
        monkeypatch.setattr("runs.numbers.invalid.load_of", lambda *times: load)
    elif flag == "early_stopping_met":
        return
    numbers = reported_numbers(finished.detail).model_copy(
        update={"ttft_ns": spread(*ttft_ms), "tpot_ns": spread(*tpot_ms)}
    )
    reasons = " ".join(invalid_reasons(finished.detail, numbers, derived, {"scenario": "Server"}))
    assert ("--target-qps" in reasons) == (not never), reasons
    assert all(words in reasons for words in never), reasons


@pytest.mark.parametrize("by_audit", [False, True])
def test_advice_does_not_change_the_queries_of_an_audit(copied_run: Copy, by_audit: bool) -> None:
    finished = FinishedRun(copied_run("server"))
    edit_detail(finished.dir, "early_stopping_met", False)
    finished = FinishedRun(finished.dir)
    derived = derive_numbers(finished.detail, finished.requests, None)
    late: Any = SimpleNamespace(met=False, verdicts={}, queries_needed=10**6)
    derived = replace(derived, early_stopping=late)
    reasons = invalid_reasons(finished.detail, reported_numbers(finished.detail), derived, {}, by_audit=by_audit)
    assert any("at least 1,000,000 queries are needed" in reason for reason in reasons)
    assert ("min_query_count" in " ".join(reasons)) == (not by_audit)


@pytest.mark.parametrize(
    ("options", "key", "text"),
    [
        (None, "target_qps", "Server target_qps = 2 in user.conf"),
        ({"scenario": "Server"}, "target_qps", "--target-qps 2"),
        ({"user_conf": "my.conf"}, "min_query_count", "`*.Server.min_query_count = 2` in my.conf"),
        ({"scenario": "Interactive"}, "in campaign", "`target_qps: 2` below `Interactive:` in the campaign's file"),
        ({}, "min_duration", "`*.Server.min_duration = 2` in a copy of the run's user.conf, given with --user-conf"),
    ],
)
def test_advice_names_the_option_that_the_user_set(options: dict[str, str] | None, key: str, text: str) -> None:
    in_campaign = key == "in campaign"
    advice = SettingAdvice("Server", options, in_campaign=in_campaign)
    assert advice.option("target_qps" if in_campaign else key, "2") == text
