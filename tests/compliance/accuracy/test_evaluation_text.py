"""Texts of evaluations: a consistent text has no findings, and each changed number is found."""

import pytest

from compliance.accuracy.evaluation_text import numbers_in, scored_samples, stated_failures, text_contradictions

CLASSES = "accuracy=76.138%, good=38069, total=50000\n"
SPEECH = "Word Error Rate: 2.1479486471825426%, accuracy=97.85205135281745%\n"
KIDNEYS = "Accuracy: mean = 0.90850, threshold = 0.90679 (Passed)\n  - Kidney: 0.94850\n  - Tumor: 0.86850\n"
BOXES = " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.531\nmAP=53.110%\n"
ROUGE = (
    "{'rouge1': '44.7474', 'rouge2': '22.3568', 'rougeL': '29.1367', 'rougeLsum': '42.2566', 'gen_len': 26546903, "
    "'gen_num': 24576, 'gen_tok_len': 6717754, 'tokens_per_sample': 273.3}\n"
)
CODE = " 59.78% pass@1\n{'gsm8k': 73.52, 'mbxp': 59.78}\n"
SQUAD = '{"exact_match": 82.819, "f1": 90.267}\n'
MATHS = """Total samples evaluated: 4395
Overall raw accuracy: 82.84% (3641/4395)
Dataset                    Correct    Total  Repeats      Score   Accuracy
aime25                         197      240        8      24.62     82.08%
gpqa_diamond                   752      990        5     150.40     75.96%
livecodebench_v6              2692     3165        3     897.33     85.06%
FINAL SCORE: 83.58% (1072.36/1283.00)
'exact_match': 83.582
"""
VIDEO = """  appearance_style              : 0.2110
  background_consistency        : 0.9168
'vbench_score': 56.39
  Overall Average               : 0.5639 (56.39%)
Threshold: 50.1%
Pass: Yes
"""
COMPARED = "num_perf_log_entries = 64\nnum_perf_log_qsl_idx_match = 60\nnum_missing_qsl_idxs = 4\n"
RANKED = "num_perf_log_entries = 64\nnum_matched = 64\nnum_unmatched = 0\n"
HONEST = (CLASSES, SPEECH, KIDNEYS, BOXES, ROUGE, CODE, SQUAD, MATHS, VIDEO, COMPARED, RANKED)


@pytest.mark.parametrize("text", HONEST, ids=lambda text: text[:20])
def test_consistent_evaluation_texts_have_no_findings(text: str) -> None:
    assert numbers_in(text)
    assert [*stated_failures(text), *text_contradictions(text)] == []


@pytest.mark.parametrize(
    ("text", "old", "new", "key"),
    [
        (CLASSES, "76.138", "76.538", "accuracy"),
        (CLASSES, "38069", "50001", "good"),
        (CLASSES, "76.138", "-76.138", "accuracy"),
        (SPEECH, "97.852", "98.852", "accuracy"),
        (KIDNEYS, "mean = 0.90850", "mean = 0.91850", "mean"),
        (KIDNEYS, "threshold = 0.90679", "threshold = 0.95", "threshold"),
        (BOXES, "mAP=53.110", "mAP=55.110", "mAP"),
        (ROUGE, "'rouge2': '22", "'rouge2': '52", "rouge2"),
        (ROUGE, "sample': 273.3", "sample': 293.3", "tokens_per_sample"),
        (ROUGE, "'gen_num': 24576", "'gen_num': 24000", "tokens_per_sample"),
        (CODE, "'mbxp': 59.78", "'mbxp': 69.78", "mbxp"),
        (SQUAD, "82.819", "92.819", "exact_match"),
        (MATHS, "'exact_match': 83.582", "'exact_match': 85.582", "exact_match"),
        (MATHS, "FINAL SCORE: 83.58%", "FINAL SCORE: 85.58%", "final score"),
        (MATHS, "(1072.36/", "(1082.36/", "points"),
        (MATHS, "evaluated: 4395", "evaluated: 4396", "samples evaluated"),
        (MATHS, "82.84% (3641", "82.84% (3651", "correct"),
        (MATHS, "752      990", "762      990", "gpqa_diamond"),
        (VIDEO, "'vbench_score': 56.39", "'vbench_score': 66.39", "vbench_score"),
        (VIDEO, "0.9168", "0.8168", "overall average"),
        (VIDEO, "Threshold: 50.1%", "Threshold: 60.1%", "threshold in percent"),
        (COMPARED, "match = 60", "match = 64", "num_perf_log_entries"),
        (RANKED, "matched = 64", "matched = 63", "num_perf_log_entries"),
    ],
)
def test_a_changed_number_contradicts_the_text(text: str, old: str, new: str, key: str) -> None:
    assert old in text
    assert key in {fault.key for fault in text_contradictions(text.replace(old, new))}


@pytest.mark.parametrize(
    "line",
    [
        "Accuracy: mean = 0.85, threshold = 0.90 (Failed)", "Pass: No", "TEST FAIL", "ValueError: no predictions",
        "Traceback (most recent call last):", "the score is below the target", "accuracy check pass: False",
        "Result is INVALID", "'rouge1': nan",
    ],
)  # fmt: skip
def test_a_stated_failure_is_reported_with_its_line(line: str) -> None:
    (fault,) = stated_failures(f"Results\n  {line}\nend\n")
    assert line in fault.found
    assert fault.key == line


def test_the_number_of_scored_samples_is_read_under_each_of_its_names() -> None:
    clicks = "AUC=80.2%, accuracy=96.6%, good=9, total=10, queries=330067"
    texts = (CLASSES, ROUGE, MATHS, "'num-samples': 4388", clicks)
    assert [[*scored_samples(text)] for text in texts] == [
        [("total", 50000)], [("gen_num", 24576)], [("samples evaluated", 4395)], [("num-samples", 4388)],
        [("queries", 330067)],
    ]  # fmt: skip
