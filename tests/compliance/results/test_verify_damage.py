"""`main.py verify` on damaged, exchanged and edited files: a message, exit code 2 or 4, and never PASS."""

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compliance.accuracy.metrics import Scores
from compliance.judge.text import text
from compliance.results.log_contradictions import detail_contradictions
from compliance.results.text import RESULT, TEXT_NAME
from runs.errors import ExitCode
from runs.files.writing import sha256_of
from runs.loadgen.detail_log import read_detail
from runs.loadgen.summary_log import cross_check, read_summary
from runs.numbers.numbers import reported_numbers
from runs.record.layout import RunDir
from tests.conftest import Finished, run_here
from tests.signoff.forge.faults import scale_reported
from tests.support.files.editing import edit_detail, reseal, set_at, set_record
from tests.support.runs.dummy_runs import DummyRuns, verify_one_result
from tests.support.runs.loadgen_runs import ALL, LoadgenRuns

SUMMARY, DETAIL, ACCURACY_LOG = "mlperf_log_summary.txt", "mlperf_log_detail.txt", "mlperf_log_accuracy.json"
OURS = ("manifest.json", "requests.jsonl", "result.json", "accuracy.txt")
OFFICIAL = {"official": True, "unofficial_reasons": []}

DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3]),
    "empty": lambda path: path.write_bytes(b""),
    "utf-16": lambda path: path.write_bytes(path.read_text().encode("utf-16")),
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 40),
    "long-line": lambda path: path.write_bytes(path.read_bytes() + b"x" * (17 << 20) + b"\n"),
    "null-json": lambda path: path.write_bytes(b"null"),
    "missing": Path.unlink,
}


BOTH = {"performance": (SUMMARY, DETAIL), "accuracy": (ACCURACY_LOG,)}
DAMAGED = [
    *((mode, name, False, how) for mode in BOTH for name in BOTH[mode] for how in DAMAGES),
    *((mode, name, True, how) for mode in BOTH for name in BOTH[mode] for how in DAMAGES if how != "missing"),
    *(("performance", name, False, how) for name in OURS[:3] for how in DAMAGES if how != "long-line"),
    *(("accuracy", name, False, "missing") for name in (SUMMARY, DETAIL, "requests.jsonl")),
    *(("accuracy", "accuracy.txt", False, how) for how in DAMAGES if how != "long-line"),
]


@pytest.mark.parametrize(("mode", "name", "bare", "how"), DAMAGED)
def test_damaged_files_are_errors_that_name_the_file(
    runs: DummyRuns, tmp_path: Path, mode: str, name: str, bare: bool, how: str
) -> None:
    run = runs.copy(tmp_path / "run", "Server", mode, bare=bare)
    DAMAGES[how](run.root / name)
    verdict = verify_one_result(run.root)
    assert verdict.exit_code() in (2, 4)
    assert name in " ".join(verdict.reasons) or name in OURS or how == "missing"


# The accuracy log of a performance run is empty. The summary is equal in all accuracy runs, and result.json has no
# result before it is scored again.
OWN_FILES = [
    *[("performance", name) for name in (SUMMARY, DETAIL, "requests.jsonl", "manifest.json", "result.json")],
    *[("accuracy", name) for name in (DETAIL, ACCURACY_LOG, "requests.jsonl", "manifest.json")],
]


@pytest.mark.parametrize(
    ("scenario", "mode", "name", "bare"),
    [("SingleStream", *file, False) for file in OWN_FILES]
    # Server and Interactive have one order of issue, so their accuracy logs can be equal.
    + [("Interactive", *file, False) for file in OWN_FILES if file[1] != ACCURACY_LOG]
    + [
        (scenario, "performance", name, True)
        for scenario in ("Interactive", "SingleStream", "Offline")
        for name in (SUMMARY, DETAIL)
    ],
)
def test_files_of_another_run_contradict_the_run(
    runs: DummyRuns, tmp_path: Path, name: str, mode: str, scenario: str, bare: bool
) -> None:
    run = runs.copy(tmp_path / "run", "Server", mode, bare=bare)
    foreign = runs(scenario, mode) / name
    assert foreign.read_bytes() != (run.root / name).read_bytes()
    shutil.copy(foreign, run.root / name)
    verdict = verify_one_result(run.root)
    assert verdict.exit_code() == 4, verdict.reasons
    assert not bare or "the summary" in verdict.reasons[0]


def exchange_responses(run: RunDir) -> None:
    """Exchange the responses of two samples."""
    entries = json.loads(run.accuracy_log.read_bytes())
    entries[0]["qsl_idx"], entries[1]["qsl_idx"] = entries[1]["qsl_idx"], entries[0]["qsl_idx"]
    run.accuracy_log.write_text(json.dumps(entries))


def add_response(run: RunDir) -> None:
    """Add a response to the end of the log."""
    entries = json.loads(run.accuracy_log.read_bytes())
    run.accuracy_log.write_text(json.dumps([*entries, entries[0] | {"seq_id": len(entries)}]))


def a_response_changed(run: RunDir) -> None:
    """Change a response and its hash in the attestation. The request log still has the old hash."""
    text = run.accuracy_log.read_text()
    place = text.index('"data" : "') + len('"data" : "')
    run.accuracy_log.write_text(text[:place] + ("1" if text[place] != "1" else "2") + text[place + 1 :])
    reseal(run)


def scores_raised(run: RunDir) -> None:
    run.accuracy_text.write_text(run.accuracy_text.read_text().replace("'rouge1': '", "'rouge1': '1"))
    reseal(run)


def add_error(run: RunDir, counted: int = 1) -> None:
    """Add one error record of LoadGen, and raise the number in the last record of the log."""
    metadata = {"is_error": True, "is_warning": False, "file": "logging.cc", "line_no": 1, "pid": 1, "tid": 1}
    text = {"key": "error_runtime", "value": "n_tokens argument missing", "time_ms": 1.5, "metadata": metadata}
    first, *rest = run.detail.read_text().splitlines(keepends=True)
    run.detail.write_text("".join([first, f":::MLLOG {json.dumps(text)}\n", *rest]))
    edit_detail(run, "num_errors", counted)
    text = run.summary.read_text()
    run.summary.write_text(text.replace("No errors encountered during test.", "1 ERROR encountered. See detailed log."))


def broken_latencies(run: RunDir) -> None:
    """Write what LoadGen writes for responses without a number of tokens: errors, and a TPOT that overflowed."""
    mean = str(read_detail(run.detail).get("result_time_to_output_token_mean"))
    add_error(run)
    for path in (run.detail, run.summary):
        assert mean in path.read_text()
        path.write_text(path.read_text().replace(mean, "9223372036854775807"))


# Mode, whether only the logs of LoadGen exist, the change, the exit code, and words of the first reason.
CHANGES: dict[str, tuple[str, bool, Callable[[RunDir], object], int, str]] = {
    "under other seeds": ("accuracy", True, exchange_responses, 4, "the effective seeds require"),
    "under other samples than in our record": (
        "accuracy", False, lambda run: [exchange_responses(run), reseal(run)], 4, "the effective seeds require",
    ),
    "an answer too many": ("accuracy", True, add_response, 4, "the run issued 64 samples"),
    "answers that nobody asked for": (
        "performance", True,
        lambda run: shutil.copy(run.root.with_name("accuracy") / ACCURACY_LOG, run.accuracy_log), 4, "64 responses",
    ),
    "an answer changed": ("accuracy", False, a_response_changed, 4, "the SHA-256 of the response differs"),
    "scores raised": ("accuracy", False, scores_raised, 4, "does not match the logged responses"),
    "a leg that failed": (
        "performance", False, lambda run: set_at(run.manifest, "status", "interrupted"), 4, "interrupted",
    ),
    "called official": (
        "performance", False, lambda run: set_record(run, OFFICIAL), 1, "min_duration",
    ),
    "of an older LoadGen": (
        "performance", True, lambda run: edit_detail(run, "loadgen_version", "4.1 @ 0000000000"), 3, "LoadGen 4.1 @",
    ),
    "with an error record": (
        "performance", True, broken_latencies, 1, "error records of LoadGen: 1, the first is error_runtime: ",
    ),
    "with an error record that is not counted": (
        "performance", True, lambda run: add_error(run, counted=0), 4, "num_errors is 0, but the log has 1 error",
    ),
    "unofficial without a reason": (
        "performance", False, lambda run: set_record(run, {"unofficial_reasons": []}), 2, "unofficial_reasons",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_changed_content_is_reported_with_its_reason(runs: DummyRuns, tmp_path: Path, case: str) -> None:
    mode, bare, change, code, reason = CHANGES[case]
    runs.copy(tmp_path / "accuracy", "Server", "accuracy")
    run = runs.copy(tmp_path / "run", "Server", mode, bare=bare)
    change(run)
    verdict = verify_one_result(run.root)
    assert (verdict.exit_code(), reason in verdict.reasons[0]) == (code, True), verdict.reasons


def test_a_changed_rate_over_the_test_contradicts_its_times(runs: DummyRuns, tmp_path: Path) -> None:
    run = runs.copy(tmp_path / "run", "Server", bare=True)
    scale_reported(run, "result_token_throughput_with_loadgen_overhead", 1.2)
    verdict = verify_one_result(run.root)
    assert verdict.exit_code() == 4
    assert "tokens/s with LoadGen's overhead is" in verdict.reasons[0]


def test_a_missing_response_is_reported_with_its_file(runs: DummyRuns, tmp_path: Path) -> None:
    run = runs.copy(tmp_path / "run", "Offline", "accuracy")
    lines = run.accuracy_log.read_bytes().splitlines(keepends=True)
    run.accuracy_log.write_bytes(b"".join(lines[:3] + lines[4:]))
    verdict = verify_one_result(run.root)
    assert verdict.exit_code() == 4
    assert {path for finding in verdict.findings for path in finding.files} == {run.accuracy_log}
    assert f"{ACCURACY_LOG} was changed" in text(verdict, RESULT)


def test_an_accuracy_log_truncated_for_submission_passes(
    runs: DummyRuns, dummy_scores_as_target: Scores, tmp_path: Path
) -> None:
    run = runs.copy(tmp_path / "run", "Server", "accuracy")
    content, digest = run.accuracy_log.read_bytes(), sha256_of(run.accuracy_log)
    run.accuracy_log.write_bytes(content[:4096] + b"\n\n...\n\n" + content[-4096:])
    scores = run.accuracy_text.read_text() + f"\nhash={digest}\n"
    run.accuracy_text.write_text(scores)
    verdict = verify_one_result(run.root)
    assert verdict.outcome == "PASS", verdict.reasons
    assert "truncated for submission" in text(verdict, RESULT)
    for changed in (scores.replace(digest, "0" * 64), scores.replace("'rouge1': ", "'rouge1': 1")):
        run.accuracy_text.write_text(changed)
        verdict = verify_one_result(run.root)
        assert verdict.exit_code() == 4
        assert "attested" in {contradiction.rule for part in verdict.parts for contradiction in part.contradictions}


@pytest.mark.parametrize("end", [None, b" " * 4096])
def test_a_truncated_log_with_a_new_signature_is_a_contradiction(
    runs: DummyRuns, tmp_path: Path, end: bytes | None
) -> None:
    """The scores in accuracy.txt are raised, and nothing is left to compute them from."""
    run = runs.copy(tmp_path / "run", "Offline", "accuracy")
    content = run.accuracy_log.read_bytes()
    run.accuracy_log.write_bytes(content[:4096] + b"\n\n...\n\n" + (end or content[-4096:]))
    run.accuracy_text.write_text(run.accuracy_text.read_text().replace("'rouge1': ", "'rouge1': 4"))
    run.accuracy_json.unlink()
    reseal(run)
    verdict = verify_one_result(run.root)
    assert verdict.exit_code() == 4
    assert {contradiction.rule for part in verdict.parts for contradiction in part.contradictions} == {"attested"}


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_device_as_dataset_is_bad_input(
    runs: DummyRuns, tmp_path: Path, make: Callable[[Path], object]
) -> None:
    run = runs.copy(tmp_path / "run", "Offline", "accuracy")
    make(tmp_path / "dataset.json")
    verified = run_here("verify", run.root, "--dataset-path", tmp_path / "dataset.json")
    assert (verified.code, "--dataset-path" in verified.stderr) == (ExitCode.BAD_INPUT, True)


def one_digit_edits(content: str, generator: random.Random, place: str) -> list[str]:
    """Yield the text with one changed digit in each line that matches `place`, which has one group."""
    edited = []
    for match in re.finditer(place, content, re.MULTILINE):
        digits = [spot for spot in range(*match.span(1)) if content[spot].isdigit()]
        if digits:
            spot = generator.choice(digits)
            digit = str((int(content[spot]) + generator.randint(1, 9)) % 10)
            edited.append(content[:spot] + digit + content[spot + 1 :])
    return edited


# In a summary: all but the lines that only Server has in Offline. In a rate: the leading digits, because the other log
# has fewer. In a detail log: complete nanoseconds, counts and seeds.
DIGITS: dict[str, tuple[str, ...]] = {
    SUMMARY: (r"^((?!.*(?:per second|[TQ]PS|ttft_latency|tpot_latency)).*)$", r"(?:per second|overhead)\s*: (\d\d)"),
    DETAIL: (
        r'"key": "(?:result_(?:first|min|max|mean|\d|time|query)|num_errors|(?:requested|effective)_\w+_seed|'
        r'effective_min)[^"]*", "value": (\d+),',
    ),
}


@pytest.mark.parametrize("name", DIGITS)
@pytest.mark.parametrize("scenario", ["Offline", "Server", "SingleStream"])
def test_each_changed_digit_is_found(runs: DummyRuns, tmp_path: Path, scenario: str, name: str) -> None:
    run = runs.copy(tmp_path / "run", scenario, bare=True)
    path = run.root / name
    text = path.read_text()
    edits = [edited for place in DIGITS[name] for edited in one_digit_edits(text, random.Random(1), place)]
    assert len(edits) > 15
    for edited in edits:
        path.write_text(edited)
        assert verify_one_result(run.root).exit_code() in (2, 4), edited


def test_an_earlier_pass_is_removed_if_the_run_is_damaged(
    runs: DummyRuns, run_main: Callable[..., Finished], tmp_path: Path
) -> None:
    run = runs.copy(tmp_path / "run", "Server")
    assert run_main("verify", run.root).code == 0
    assert "TEST PASS" in (run.root / TEXT_NAME).read_text()
    run.detail.write_bytes(run.detail.read_bytes()[:5000])
    finished = run_main("verify", run.root)
    assert finished.code in (2, 4)
    assert finished.stderr.startswith("error: ")
    assert "Traceback" not in finished.stderr
    assert (run.root / TEXT_NAME).read_text().splitlines()[3].startswith("TEST FAIL: ")


def test_logs_of_real_loadgen_runs_have_no_contradictions() -> None:
    runs = LoadgenRuns()
    for name in ALL:
        run: RunDir = runs[name]
        detail = read_detail(run.detail)
        numbers = reported_numbers(detail) if detail.has_results else None
        assert [*detail_contradictions(detail, numbers), *cross_check(read_summary(run.summary), detail)] == [], name
