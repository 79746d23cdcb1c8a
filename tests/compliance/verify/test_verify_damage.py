"""`main.py verify` on damaged, swapped and edited files: a clear message, exit code 2 or 4, never PASS."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compliance.evidence.log_arithmetic import detail_contradictions
from compliance.verify.find_results import find_results
from compliance.verify.result_verdict import TEXT_NAME, Verification, as_text, verify_result
from runs.loadgen.detail_log import read_detail
from runs.loadgen.summary_log import cross_check, read_summary
from runs.numbers.numbers import reported_numbers
from runs.record.layout import RunDir
from tests.conftest import Finished
from tests.support.editing import reseal
from tests.support.loadgen_runs import ALL, Runs
from tests.support.verify_legs import DummyLegs

SUMMARY, DETAIL, ACCURACY_LOG = "mlperf_log_summary.txt", "mlperf_log_detail.txt", "mlperf_log_accuracy.json"


@pytest.fixture(scope="session")
def legs() -> DummyLegs:
    return DummyLegs()


def judged(directory: Path) -> Verification:
    """The verdict, whose text and record are writable whatever happened."""
    (result,) = find_results([directory])
    verdict = verify_result(result)
    json.dumps(verdict.record())
    assert ("TEST PASS" in as_text(verdict)) == (verdict.exit_code() == 0)
    return verdict


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) * 2 // 3],
    "empty": lambda content: b"",
    "utf-16": lambda content: content.decode().encode("utf-16"),
    "binary": lambda content: bytes(range(256)) * 40,
    "long-line": lambda content: content + b"x" * (17 << 20) + b"\n",
    "null-json": lambda content: b"null",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("bare", [False, True], ids=["ours", "bare"])
@pytest.mark.parametrize("name", [SUMMARY, DETAIL, ACCURACY_LOG])
def test_damaged_logs_of_loadgen(legs: DummyLegs, tmp_path: Path, name: str, bare: bool, damage: str) -> None:
    mode = "accuracy" if name == ACCURACY_LOG else "performance"
    run = legs.copy(tmp_path / "leg", "Server", mode, bare=bare)
    path = run.root / name
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    verdict = judged(run.root)
    assert verdict.exit_code() in (2, 4)
    assert name in " ".join(verdict.reasons)


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "long-line"])
@pytest.mark.parametrize("name", ["manifest.json", "requests.jsonl", "result.json", "accuracy.txt"])
def test_damaged_files_of_ours(legs: DummyLegs, tmp_path: Path, name: str, damage: str) -> None:
    run = legs.copy(tmp_path / "leg", "Server", "accuracy" if name == "accuracy.txt" else "performance")
    path = run.root / name
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert judged(run.root).exit_code() in (2, 4)


@pytest.mark.parametrize("name", [SUMMARY, DETAIL, ACCURACY_LOG, "requests.jsonl"])
@pytest.mark.parametrize("mode", ["performance", "accuracy"])
def test_missing_files(legs: DummyLegs, tmp_path: Path, name: str, mode: str) -> None:
    run = legs.copy(tmp_path / "leg", "Server", mode)
    (run.root / name).unlink()
    assert judged(run.root).exit_code() in (2, 4)


# An accuracy log holds nothing in a performance run; a summary says the same in every accuracy run, whose result.json
# holds no result before it is scored again.
OWN_FILES = [
    *[("performance", name) for name in (SUMMARY, DETAIL, "requests.jsonl", "manifest.json", "result.json")],
    *[("accuracy", name) for name in (DETAIL, ACCURACY_LOG, "requests.jsonl", "manifest.json")],
]


@pytest.mark.parametrize(("mode", "name"), OWN_FILES)
@pytest.mark.parametrize("other", ["Interactive", "SingleStream"])
def test_files_of_another_run(legs: DummyLegs, tmp_path: Path, name: str, mode: str, other: str) -> None:
    run = legs.copy(tmp_path / "leg", "Server", mode)
    foreign = legs(other, mode) / name
    assert foreign.read_bytes() != (run.root / name).read_bytes()
    shutil.copy(foreign, run.root / name)
    verdict = judged(run.root)
    assert verdict.exit_code() == 4, verdict.reasons


@pytest.mark.parametrize("name", [SUMMARY, DETAIL])
@pytest.mark.parametrize("scenario", ["Interactive", "SingleStream", "Offline"])
def test_bare_logs_of_two_runs(legs: DummyLegs, tmp_path: Path, name: str, scenario: str) -> None:
    run = legs.copy(tmp_path / "leg", "Server", bare=True)
    shutil.copy(legs(scenario) / name, run.root / name)
    verdict = judged(run.root)
    assert verdict.exit_code() == 4
    assert "the summary" in verdict.reasons[0]


def test_an_accuracy_log_under_other_seeds_is_not_this_legs(legs: DummyLegs, tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Server", "accuracy", bare=True)
    entries = json.loads(run.accuracy_log.read_bytes())
    entries[0]["qsl_idx"], entries[1]["qsl_idx"] = entries[1]["qsl_idx"], entries[0]["qsl_idx"]
    run.accuracy_log.write_text(json.dumps(entries))
    verdict = judged(run.root)
    assert verdict.exit_code() == 4
    assert "by the seeds in force" in verdict.reasons[0]


def test_what_cannot_be_scored_names_the_file_that_was_changed(legs: DummyLegs, tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Offline", "accuracy")
    lines = run.accuracy_log.read_bytes().splitlines(keepends=True)
    run.accuracy_log.write_bytes(b"".join(lines[:3] + lines[4:]))
    verdict = judged(run.root)
    assert verdict.exit_code() == 4
    assert {path for found in verdict.findings for path in found.files} == {run.accuracy_log}
    assert f"{ACCURACY_LOG} was changed" in as_text(verdict)


def test_answers_in_a_performance_run_that_logged_none(legs: DummyLegs, tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Server", bare=True)
    shutil.copy(legs("Server", "accuracy") / ACCURACY_LOG, run.accuracy_log)
    verdict = judged(run.root)
    assert verdict.exit_code() == 4
    assert "64 answers" in verdict.reasons[0]


def test_an_answer_that_was_exchanged(legs: DummyLegs, tmp_path: Path) -> None:
    """With another hash in the seal, our record of every answer still tells."""
    run = legs.copy(tmp_path / "leg", "Server", "accuracy")
    text = run.accuracy_log.read_text()
    place = text.index('"data" : "') + len('"data" : "')
    run.accuracy_log.write_text(text[:place] + ("1" if text[place] != "1" else "2") + text[place + 1 :])
    reseal(run)
    verdict = judged(run.root)
    assert verdict.exit_code() == 4
    assert "the answer is not the one" in verdict.reasons[0]


def one_digit_edits(content: str, generator: random.Random, place: str) -> list[str]:
    """Each text with one digit in one of its lines exchanged, where `place` (one group) matches."""
    edited = []
    for found in re.finditer(place, content, re.MULTILINE):
        digits = [spot for spot in range(*found.span(1)) if content[spot].isdigit()]
        if digits:
            spot = generator.choice(digits)
            digit = str((int(content[spot]) + generator.randint(1, 9)) % 10)
            edited.append(content[:spot] + digit + content[spot + 1 :])
    return edited


@pytest.mark.parametrize("scenario", ["Offline", "Server", "SingleStream"])
def test_one_digit_of_a_summary(legs: DummyLegs, tmp_path: Path, scenario: str) -> None:
    run = legs.copy(tmp_path / "leg", scenario, bare=True)
    text = run.summary.read_text()
    # Of a rate the leading digits (the last ones are beyond what the detail log has); the limits in force are those
    # of Server, Offline logs them in the summary alone.
    edits = one_digit_edits(text, random.Random(1), r"^((?!.*(?:per second|[TQ]PS|ttft_latency|tpot_latency)).*)$")
    edits += one_digit_edits(text, random.Random(1), r"(?:per second|loadgen overhead)\s*: (\d\d)")
    assert len(edits) > 25
    for text in edits:
        run.summary.write_text(text)
        assert judged(run.root).exit_code() in (2, 4), text


@pytest.mark.parametrize("scenario", ["Offline", "Server", "SingleStream"])
def test_one_digit_of_a_result_in_the_detail_log(legs: DummyLegs, tmp_path: Path, scenario: str) -> None:
    """The whole nanoseconds, counts and seeds; the last digits of rates are beyond what the summary has."""
    run = legs.copy(tmp_path / "leg", scenario, bare=True)
    keys = r"(?:result_(?:first|min|max|mean|\d|time|query)|num_errors|(?:requested|effective)_\w+_seed|effective_min)"
    edits = one_digit_edits(run.detail.read_text(), random.Random(2), rf'"key": "{keys}[^"]*", "value": (\d+),')
    assert len(edits) > 15
    for text in edits:
        run.detail.write_text(text)
        assert judged(run.root).exit_code() in (2, 4)


@pytest.mark.parametrize("name", [SUMMARY, DETAIL, "requests.jsonl"])
def test_one_digit_anywhere_in_a_run_of_ours(legs: DummyLegs, tmp_path: Path, name: str) -> None:
    run = legs.copy(tmp_path / "leg", "SingleStream")
    path = run.root / name
    generator = random.Random(3)
    for text in generator.sample(one_digit_edits(path.read_text(), generator, r"^(.*)$"), 12):
        path.write_text(text)
        assert judged(run.root).exit_code() in (2, 4)


def test_a_leg_that_failed_is_no_result(legs: DummyLegs, tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Server")
    manifest = json.loads(run.manifest.read_bytes())
    run.manifest.write_text(json.dumps({**manifest, "status": "interrupted"}))
    verdict = judged(run.root)
    assert verdict.exit_code() == 4
    assert "interrupted" in verdict.reasons[0]


def test_an_older_pass_does_not_survive_damage(
    legs: DummyLegs, run_main: Callable[..., Finished], tmp_path: Path
) -> None:
    run = legs.copy(tmp_path / "leg", "Server")
    assert run_main("verify", run.root).code == 0
    assert "TEST PASS" in (run.root / TEXT_NAME).read_text()
    run.detail.write_bytes(run.detail.read_bytes()[:5000])
    finished = run_main("verify", run.root)
    assert finished.code in (2, 4)
    assert finished.stderr.startswith("error: ")
    assert "Traceback" not in finished.stderr
    assert (run.root / TEXT_NAME).read_text().splitlines()[3].startswith("TEST FAIL: ")


@pytest.mark.slow
def test_honest_logs_contradict_nothing() -> None:
    runs = Runs()
    for name in ALL:
        run: RunDir = runs[name]
        detail = read_detail(run.detail)
        numbers = reported_numbers(detail) if detail.has_results else None
        assert [*detail_contradictions(detail, numbers), *cross_check(read_summary(run.summary), detail)] == [], name
