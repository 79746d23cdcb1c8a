"""The verdict's boundaries, and files that the official checker reads as we do."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from compliance.accuracy import accuracy_verdict
from compliance.accuracy.accuracy_verdict import judge, parse_accuracy_text, score_line, write_reports
from compliance.accuracy.metrics import ROUGE, Scores
from runs.errors import InputError
from runs.record.layout import RunDir
from tests.support.official import DATACENTER, EDGE, rouge
from tests.support.published import PUBLISHED, needs_published

# The official checker's patterns, which it matches against every line.
PATTERNS = {
    **{name: rf".*'{name}':\s+'?([\d.]+)'?.*" for name in ("rouge1", "rouge2", "rougeL", "rougeLsum")},
    "gen_len": r".*'gen_len':\s([\d.]+).*",
}
EXACT = rouge(38.7792, 15.9075, 24.4957, 35.793, 8_167_644, 13_368)
SMALL = rouge(0.0, 0.0001, 100.0, 35.8, 0, 1)


def test_the_reference_passes_its_own_target() -> None:
    verdict = judge(ROUGE, EXACT, DATACENTER.targets, "run")
    assert verdict.passed is True
    assert verdict.of("error") == []
    assert [check.text for check in verdict.findings] == [*PATTERNS, "gen_num"]
    assert judge(ROUGE, EXACT, EDGE.targets, "run").passed is False


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
def test_each_score_decides_at_its_unrounded_bound(
    score: str, worst_that_passes: float, best_that_fails: float
) -> None:
    assert judge(ROUGE, {**EXACT, score: worst_that_passes}, DATACENTER.targets, "run").passed is True
    failed = judge(ROUGE, {**EXACT, score: best_that_fails}, DATACENTER.targets, "run")
    assert failed.passed is False
    assert [check.text for check in failed.findings if not check.passed] == [score]


def test_a_failure_names_the_score_and_what_it_misses() -> None:
    failed = judge(ROUGE, {**EXACT, "rouge1": 38.3914, "gen_len": 1, "gen_num": 5}, DATACENTER.targets, "run")
    assert [score_line(check) for check in failed.of("error")] == [
        "rouge1 38.3914, required at least 38.391408: FAIL",
        "gen_len 1, required 7350879.6 to 8984408.4: FAIL",
        "gen_num 5, required exactly 13368: FAIL",
    ]


def test_without_a_target_there_is_no_verdict() -> None:
    verdict = judge(ROUGE, EXACT, None, "own data")
    assert (verdict.passed, verdict.findings) == (None, [])


@pytest.mark.parametrize("scores", [EXACT, SMALL])
@pytest.mark.parametrize("target", [DATACENTER.targets, None])
def test_the_checker_reads_every_score_once(scores: Scores, target: object, tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write_reports(
        run, judge(ROUGE, scores, DATACENTER.targets if target else None, "with 'rouge1': 99.9\n'gen_len': 9 in it")
    )
    lines = run.accuracy_text.read_text().splitlines()
    for name, pattern in PATTERNS.items():
        found = [match.group(1) for line in lines if (match := re.match(pattern, line))]
        assert [float(value) for value in found] == [scores[name]]
    assert not any(line.startswith("hash=") for line in lines)
    assert parse_accuracy_text(ROUGE, run.accuracy_text.read_text()) == scores


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        (EXACT, "{'rouge1': '38.7792', 'rouge2': '15.9075', 'rougeL': '24.4957', 'rougeLsum': '35.793', "
                "'gen_len': 8167644, 'gen_num': 13368}"),
        (rouge(*map(np.float64, (38.8, 1e-4, 2.0, 3.0)), np.int64(10), np.int64(2)),
         "{'rouge1': '38.8', 'rouge2': '0.0001', 'rougeL': '2.0', 'rougeLsum': '3.0', 'gen_len': 10, 'gen_num': 2}"),
    ],
)  # fmt: skip
def test_the_result_is_a_python_literal_in_the_reference_form(scores: Scores, text: str) -> None:
    assert ROUGE.text(scores) == text


def test_the_record_holds_scores_target_and_every_check(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write_reports(run, judge(ROUGE, {**EXACT, "rouge2": 15.7}, DATACENTER.targets, "run"))
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


def test_the_text_is_written_after_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir(tmp_path)

    def full_disk(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(accuracy_verdict, "write_json", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_reports(run, judge(ROUGE, EXACT, None, "run"))
    assert not run.accuracy_text.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Results\n", r"accuracy\.txt has no rouge1"),
        (ROUGE.text(EXACT).replace("8167644", "np.int64(8167644)"), "has no gen_len"),
        (ROUGE.text(EXACT) + "\n" + ROUGE.text({**EXACT, "rouge1": 39.0}), "several different values of rouge1"),
    ],
)
def test_texts_without_one_clear_result_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_accuracy_text(ROUGE, text)


@needs_published
def test_published_results_parse_and_pass() -> None:
    files = sorted(PUBLISHED.rglob("accuracy.txt"))
    assert files
    for file in files:
        scores = parse_accuracy_text(ROUGE, file.read_text(), str(file))
        assert ROUGE.text(scores) in file.read_text()
        target = EDGE.targets if "edge" in str(file) else DATACENTER.targets
        assert judge(ROUGE, scores, target, str(file)).of("error") == []
