"""Verdicts at the limits of scores, files that the official checker reads, and the scores of an accuracy log."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compliance.accuracy import accuracy_files
from compliance.accuracy.accuracy_files import write_reports
from compliance.accuracy.accuracy_text import read_scores
from compliance.accuracy.accuracy_verdict import judge_scores, score_line
from compliance.accuracy.metrics import ROUGE, Scores
from compliance.accuracy.scores import decode_ids, score_accuracy_log, score_texts
from runs.errors import ExecutionError, InputError
from runs.loadgen.accuracy_log import AccuracyEntry
from runs.record.layout import RunDir
from tests.support.official import DATACENTER, EDGE, rouge
from tests.support.published import PUBLISHED, needs_published

# Patterns of the official checker, which it matches against each line
PATTERNS = {
    **{name: rf".*'{name}':\s+'?([\d.]+)'?.*" for name in ("rouge1", "rouge2", "rougeL", "rougeLsum")},
    "gen_len": r".*'gen_len':\s([\d.]+).*",
}
EXACT = rouge(38.7792, 15.9075, 24.4957, 35.793, 8_167_644, 13_368)
SMALL = rouge(0.0, 0.0001, 100.0, 35.8, 0, 1)


def test_reference_scores_meet_their_target() -> None:
    verdict = judge_scores(ROUGE, EXACT, DATACENTER.targets, "run")
    assert verdict.passed is True
    assert verdict.passed
    assert [check.text for check in verdict.findings] == [*PATTERNS, "gen_num"]
    assert judge_scores(ROUGE, EXACT, EDGE.targets, "run").passed is False


@pytest.mark.parametrize(
    ("score", "worst_that_passes", "best_that_fails"),
    [
        ("rouge1", 38.3915, 38.3914),  # 38.391408
        ("rouge2", 15.7485, 15.7484),  # 15.748425
        ("rougeL", 24.2508, 24.2507),  # 24.250743
        ("rougeLsum", 35.4351, 35.4350),  # 35.43507
        ("gen_len", 7_350_880, 7_350_879),  # 7350879.6
        ("gen_len", 8_984_408, 8_984_409),  # 8984408.4
        ("gen_num", 13_368, 13_367),
        ("gen_num", 13_368, 13_369),
    ],
)
def test_each_score_is_compared_with_its_unrounded_limit(
    score: str, worst_that_passes: float, best_that_fails: float
) -> None:
    assert judge_scores(ROUGE, {**EXACT, score: worst_that_passes}, DATACENTER.targets, "run").passed is True
    failed = judge_scores(ROUGE, {**EXACT, score: best_that_fails}, DATACENTER.targets, "run")
    assert failed.passed is False
    assert [check.text for check in failed.findings if not check.passed] == [score]


def test_a_failed_score_is_named_with_its_limit() -> None:
    failed = judge_scores(ROUGE, {**EXACT, "rouge1": 38.3914, "gen_len": 1, "gen_num": 5}, DATACENTER.targets, "run")
    assert [score_line(check) for check in failed.findings if not check.passed] == [
        "rouge1 38.3914, required at least 38.391408: FAIL",
        "gen_len 1, required 7350879.6 to 8984408.4: FAIL",
        "gen_num 5, required exactly 13368: FAIL",
    ]


def test_without_a_target_there_is_no_verdict() -> None:
    verdict = judge_scores(ROUGE, EXACT, None, "own data")
    assert (verdict.passed, verdict.findings) == (None, [])


@pytest.mark.parametrize("scores", [EXACT, SMALL])
@pytest.mark.parametrize("target", [DATACENTER.targets, None])
def test_the_official_patterns_find_each_score_exactly_once(scores: Scores, target: object, tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write_reports(
        run,
        judge_scores(ROUGE, scores, DATACENTER.targets if target else None, "with 'rouge1': 99.9\n'gen_len': 9 in it"),
    )
    lines = run.accuracy_text.read_text().splitlines()
    for name, pattern in PATTERNS.items():
        values = [match.group(1) for line in lines if (match := re.match(pattern, line))]
        assert [float(value) for value in values] == [scores[name]]
    assert not any(line.startswith("hash=") for line in lines)
    assert read_scores(ROUGE, run.accuracy_text.read_text()) == scores


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        (EXACT, "{'rouge1': '38.7792', 'rouge2': '15.9075', 'rougeL': '24.4957', 'rougeLsum': '35.793', "
                "'gen_len': 8167644, 'gen_num': 13368}"),
        (rouge(*map(np.float64, (38.8, 1e-4, 2.0, 3.0)), np.int64(10), np.int64(2)),
         "{'rouge1': '38.8', 'rouge2': '0.0001', 'rougeL': '2.0', 'rougeLsum': '3.0', 'gen_len': 10, 'gen_num': 2}"),
    ],
)  # fmt: skip
def test_the_scores_are_written_as_the_reference_writes_them(scores: Scores, text: str) -> None:
    assert ROUGE.text(scores) == text


def test_the_json_record_has_scores_targets_and_all_checks(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write_reports(run, judge_scores(ROUGE, {**EXACT, "rouge2": 15.7}, DATACENTER.targets, "run"))
    record = json.loads(run.accuracy_json.read_text())
    assert record["label"] == "run"
    assert record["passed"] is False
    assert record["scores"]["rouge2"] == 15.7
    assert record["target"]["gen_len"] == 8_167_644
    assert {check["name"]: check["passed"] for check in record["checks"]}["rouge2"] is False
    assert record["checks"][0] == {
        "name": "rouge1",
        "measured": 38.7792,
        "low": pytest.approx(38.391408),
        "high": None,
        "passed": True,
    }


def test_the_text_is_missing_if_the_record_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir(tmp_path)

    def full_disk(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(accuracy_files, "write_json", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_reports(run, judge_scores(ROUGE, EXACT, None, "run"))
    assert not run.accuracy_text.exists()


@needs_published
def test_published_accuracy_texts_are_read_and_meet_the_target() -> None:
    files = sorted(PUBLISHED.rglob("accuracy.txt"))
    assert files
    for file in files:
        scores = read_scores(ROUGE, file.read_text(), str(file))
        assert ROUGE.text(scores) in file.read_text()
        target = EDGE.targets if "edge" in str(file) else DATACENTER.targets
        assert judge_scores(ROUGE, scores, target, str(file)).passed


# From LoadGen's log to scores -----------------------------------------------------------------------------------------


REFERENCES = ["The river rose .", "Dr. Marsh testified on Tuesday .", "Yes !"]
END = 257  # special token, omitted from the text


def decode(ids: Sequence[Sequence[int]]) -> list[str]:
    """Return the text of IDs: an ID below 256 is a byte, any other ID is special."""
    assert all(type(token) is int for sample in ids for token in sample)
    return [bytes(token for token in sample if token < 256).decode() for sample in ids]


def entry(index: int, text: str, dtype: Any = np.int32, seq_id: int = 0, counted: bool = True) -> AccuracyEntry:
    ids = np.array([*text.encode(), END], dtype)
    return AccuracyEntry(
        seq_id=seq_id,
        qsl_idx=index,
        data=ids.tobytes(),
        token_count=len(ids) if counted else None,
        token_data=None,
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("counted", [True, False])
def test_an_accuracy_log_has_the_scores_of_its_decoded_texts(dtype: Any, counted: bool) -> None:
    texts = ["The river fell.", "A Dr. Marsh testified.", "No!"]
    log = [entry(index, texts[index], dtype, counted=counted) for index in (2, 0, 1)]
    assert score_accuracy_log(ROUGE, log, REFERENCES, decode) == score_texts(texts, REFERENCES)


def test_the_first_of_multiple_entries_of_a_sample_is_scored() -> None:
    log = [entry(1, "first"), entry(0, "The river rose."), entry(1, "second, and longer"), entry(2, "Yes!")]
    assert score_accuracy_log(ROUGE, log, REFERENCES, decode)["gen_len"] == len("first" + "The river rose." + "Yes!")


def test_a_run_on_part_of_the_dataset_is_scored_against_that_part() -> None:
    scores = score_accuracy_log(ROUGE, [entry(0, "The river rose .")], REFERENCES, decode, expected_count=1)
    assert (scores["rouge1"], scores["gen_num"]) == (100.0, 1)


def broken(data: bytes, seq_id: int, token_count: int | None = None) -> AccuracyEntry:
    return AccuracyEntry(seq_id=seq_id, qsl_idx=1, data=data, token_count=token_count, token_data=None)


@pytest.mark.parametrize(
    ("log", "count", "message"),
    [
        ([entry(1, "x")], 3, "2 of 3 samples are missing in the accuracy log: 0, 2"),
        ([entry(index, "x") for index in range(4)], 3, "outside 0 to 2: 3"),
        ([entry(index, "x") for index in (-1, 0, 1, 2)], 3, "outside 0 to 2: -1"),
        ([], 20, "20 of 20 samples are missing in the accuracy log: 0, 1, 2, 3, 4 and 15 more"),
        ([entry(0, "x"), broken(bytes(13), 7), entry(2, "x")], 3, r"sample 1 \(seq_id 7\): 13 bytes"),
        ([entry(0, "x"), broken(b"\xff" * 8, 8, 2), entry(2, "x")], 3, r"sample 1 \(seq_id 8\): -1 is not a token ID"),
    ],
)
def test_missing_unknown_and_undecodable_samples_are_named(log: list[AccuracyEntry], count: int, message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        score_accuracy_log(ROUGE, log, (REFERENCES * 7)[:count], decode)


def test_more_samples_than_dataset_rows_are_refused() -> None:
    with pytest.raises(InputError, match="the run has 4 samples, but the dataset has 3 rows"):
        score_accuracy_log(ROUGE, [entry(0, "x")], REFERENCES, decode, expected_count=4)
    with pytest.raises(ExecutionError, match=f"response: {2**40} is not a token ID"):
        decode_ids(np.array([5, 2**40], np.int64).tobytes(), 2)


IDS = [9642, 0, 128009, 0]
AS_INT32, AS_INT64 = (np.array(IDS, dtype).tobytes() for dtype in (np.int32, np.int64))


@pytest.mark.parametrize(
    ("data", "count", "ids"),
    [
        (AS_INT64, None, IDS),
        (AS_INT64, 4, IDS),
        (AS_INT32, 4, IDS),  # ID 0 is an ordinary token. Only the count distinguishes two int32 IDs from one int64 ID.
        (AS_INT32[:12], None, IDS[:3]),
        (AS_INT64, 3, IDS),  # a count that fits neither width
        (b"", 0, []),
        (b"", None, []),
    ],
)
def test_the_integer_width_of_token_ids_is_detected(data: bytes, count: int | None, ids: list[int]) -> None:
    assert decode_ids(data, count).tolist() == ids


def test_one_unambiguous_sample_decides_the_integer_width_of_a_log_without_counts() -> None:
    ambiguous = np.array([ord("Y"), 0], np.int32).tobytes()  # would be one int64 ID
    log = [
        AccuracyEntry(seq_id=0, qsl_idx=0, data=ambiguous, token_count=None, token_data=None),
        entry(1, "plain", counted=False),
    ]
    assert score_accuracy_log(ROUGE, log, REFERENCES[:2], decode)["gen_len"] == len("Y\0" + "plain")
