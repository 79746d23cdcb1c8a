"""Results files of quality evaluations: both formats, damaged and unsuitable files, and the verdict of the gate."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from compliance.judge.record import finding_record, record
from compliance.techniques.declaration import MAX_RESULTS_BYTES
from compliance.techniques.quality_gate import GateVerdict, gate_status, gate_text, is_closed, judge_rows
from compliance.techniques.quality_results import declared_change, read_results
from compliance.techniques.row import TechniqueRow
from compliance.techniques.technique_registry import load_registries
from runs.errors import InputError
from tests.support.runs.technique_rows import eagle3, fp8

REGISTRIES = load_registries()
PLAIN = {"metric": "ruler_avg_score", "value": 0.927, "n": 6500, "baseline": 0.931}
RULER_TASKS = [f"niah_single_{number}" for number in (1, 2, 3)]


def lm_eval(task: str, scores: dict[str, Any], samples: int = 500, **more: Any) -> dict[str, Any]:
    """Return the relevant parts of a file of lm-evaluation-harness."""
    return {
        "results": {task: {"alias": task, **scores}},
        "group_subtasks": {task: []},
        "n-samples": {task: {"original": samples, "effective": samples}},
        "higher_is_better": {task: {}},
        "config": {"model": "vllm", "limit": None},
        **more,
    }


def ruler(**changed: Any) -> dict[str, Any]:
    """Return three tasks with two context lengths. The group has the mean of one length."""
    scores = {"4096,none": 0.9, "4096_stderr,none": "N/A", "8192,none": 0.8, "16384,none": -1}
    return {
        "results": {"ruler": {"alias": "ruler", "4096,none": 0.9}, **dict.fromkeys(RULER_TASKS, scores)},
        "group_subtasks": {"ruler": RULER_TASKS},
        "n-samples": {name: {"original": 1000, "effective": 1000} for name in RULER_TASKS},
        **changed,
    }


def write_content(folder: Path, content: Any) -> Path:
    path = folder / "results.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("evaluation", "content", "metric", "value", "n"),
    [
        ("ruler_v1", PLAIN, "ruler_avg_score", 0.927, 6500),
        ("ruler_v1", ruler(), "ruler_avg_score", 0.85, 3000),
        ("ruler_v1", lm_eval("ruler", {"4096,none": 0.93}), "ruler_avg_score", 0.93, 500),
        ("longbench_v2", lm_eval("longbench2", {"acc,none": 0.31, "acc_stderr,none": 0.02}), "longbench_avg_f1", 0.31,
         500),
        ("humaneval", lm_eval("humaneval", {"pass@1,create_test": 0.61}, 164), "humaneval_pass_at_1", 0.61, 164),
        ("math_500", lm_eval("minerva_math500", {"exact_match,none": 0.4, "math_verify,none": 0.5}),
         "math_500_accuracy", 0.5, 500),
        ("math_500", lm_eval("hendrycks_math500", {"exact_match,strict": 0.4, "exact_match,flexible": 0.5}),
         "math_500_accuracy", 0.4, 500),  # the lowest value of two filters
    ],
)  # fmt: skip
def test_both_formats_of_results_files_are_read(
    tmp_path: Path, evaluation: str, content: Any, metric: str, value: float, n: int
) -> None:
    path = write_content(tmp_path, content)
    results = read_results(path, REGISTRIES.quality_evals[evaluation], 0.9)
    assert (results.metric, results.value, results.n) == (metric, pytest.approx(value), n)
    assert results.baseline == content.get("baseline", 0.9)
    assert results.sha256 == sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not JSON"),
        ("", "empty"),
        ("[1]", "is not a JSON object"),
        ('{"metric": "ruler_avg_score", "value": NaN, "n": 1, "baseline": 0.9}', "NaN"),
        ({**PLAIN, "value": True}, "value: Input should be a valid number"),
        ({**PLAIN, "value": "0.9"}, "value: Input should be a valid number"),
        ({**PLAIN, "value": -0.1}, "greater than or equal to 0"),
        ({**PLAIN, "value": 92.7}, "different scales"),
        ({**PLAIN, "value": 1e9}, "less than or equal to 100"),
        ({**PLAIN, "n": 0}, "n: "),
        ({**PLAIN, "n": True}, "n: "),
        ({**PLAIN, "baseline": 0}, "the baseline is 0"),
        ({**PLAIN, "baseline": None}, "the baseline is missing"),
        ({**PLAIN, "metric": "math_500_accuracy"}, "required for ruler_v1: ruler_avg_score or ruler_per_length"),
        ({}, "metric: Field required"),
        ({"results": []}, "tasks: none, required for ruler_v1: ruler"),
        (lm_eval("minerva_math500", {"exact_match,none": 0.5}), "tasks: minerva_math500, required"),
        (lm_eval("ruler", {"4096,none": "N/A"}), "no numbers"),
        (lm_eval("ruler", {"4096,none": True}), "no numbers"),
        (lm_eval("ruler", {"4096,none": -1}), "no numbers"),
        (lm_eval("ruler", {"4096,none": 0.9}, **{"n-samples": {"ruler": {"original": 500, "effective": 10}}}),
         "samples of ruler: 10 of 500"),
        (ruler(**{"n-samples": {}}), "samples of ruler: 0 of 0"),
        (ruler(group_subtasks={"ruler": ["ruler"]}, **{"n-samples": None}), "samples of ruler: 0 of 0"),
    ],
)  # fmt: skip
def test_a_file_without_evaluation_is_refused(tmp_path: Path, content: Any, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        read_results(write_content(tmp_path, content), REGISTRIES.quality_evals["ruler_v1"], None)
    assert problem in refused.value.message
    assert refused.value.fix


def test_a_file_above_the_size_limit_is_refused(tmp_path: Path) -> None:
    path = write_content(tmp_path, "{}")
    with path.open("r+b") as stream:
        stream.truncate(MAX_RESULTS_BYTES + 1)
    with pytest.raises(InputError, match="required: at most 8,388,608"):
        read_results(path, REGISTRIES.quality_evals["ruler_v1"], None)


@pytest.mark.parametrize(
    ("summary", "change"),
    [
        ("-0.4%", (-0.4, 0.05)),
        ("RULER v1, 13 tasks: −0.43 % against BF16", (-0.43, 0.005)),
        ("humaneval -9%, ruler_avg_score +1%", (1, 0.5)),
        ("0%", (0, 0.5)),
        ("0.4%", None),  # a loss or a gain
        ("no measurable loss", None),
        ("-0.004", None),
        ("", None),
    ],
)
def test_the_declared_change_is_read_from_its_summary(summary: str, change: tuple[float, float] | None) -> None:
    assert declared_change(summary, "ruler_avg_score") == (change and pytest.approx(change))


def judge_at_gate(row: dict[str, Any], **options: Any) -> GateVerdict:
    return judge_rows([TechniqueRow(row, "rows.json:1", Path("rows.json"))], REGISTRIES, **options)


def supported_row(path: Path | None, summary: str | None = "-0.43%", **fields: Any) -> dict[str, Any]:
    return fp8(
        quality_eval_id="ruler_v1", quality_eval_status="completed", support_status="supported",
        quality_results=path and str(path), quality_delta_summary=summary, **fields,
    )  # fmt: skip


def test_the_documented_example_passes(tmp_path: Path) -> None:
    outcome = judge_at_gate(supported_row(write_content(tmp_path, PLAIN)), strict=True)
    assert (gate_status(outcome), is_closed(outcome)) == ("pass", False)
    assert "quality evaluation: declared, results file attached: ruler_avg_score 0.927, baseline" in gate_text(outcome)
    (shown,) = record(outcome)["evaluations"]
    assert shown["evaluation"] == "declared, results file attached"
    assert shown["results"]["sha256"] == sha256((tmp_path / "results.json").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda path: supported_row(None), "results file of ruler_v1: missing"),
        (lambda path: supported_row(path.with_name("gone")), "results file of ruler_v1: cannot read"),
        (lambda path: supported_row(path, None), "required: a declared change in quality_delta_summary"),
        (lambda path: supported_row(path, "-0.1%"), "results file: -0.43%, required: at least -0.1%"),
        (lambda path: supported_row(path, quality_results_sha256="0" * 64), "SHA-256 of the results file"),
        (lambda path: {**supported_row(path), "quality_eval_id": "math_500"}, "required for math_500: "),
        (lambda path: {**supported_row(path), "quality_eval_id": None}, "quality_eval_id of supported kv_quantization"),
        (lambda path: {**supported_row(path), "support_status": " SUPPORTED ", "quality_eval_status": "Completed"},
         "quality_eval_status of supported"),
    ],
)  # fmt: skip
def test_a_claim_that_contradicts_its_results_file_closes_the_gate(
    tmp_path: Path, change: Callable[[Path], dict[str, Any]], sentence: str
) -> None:
    outcome = judge_at_gate(change(write_content(tmp_path, PLAIN)))
    assert is_closed(outcome)
    errors = outcome.parts[0].of("error")
    assert any(sentence in error.sentence for error in errors), errors
    for error in errors:
        content = finding_record(error)
        assert content["found"]
        assert content["expected"]
        assert content["file"]


def test_a_preview_technique_requires_no_results_file(tmp_path: Path) -> None:
    preview = supported_row(None) | {"support_status": None}
    assert not is_closed(judge_at_gate(preview))
    assert is_closed(judge_at_gate(preview, strict=True))  # completed, but declared only
    assert not is_closed(
        judge_at_gate(eagle3(draft_model_id="d", speculative_acceptance_rate=0.5, support_status="supported"))
    )
    worse = supported_row(write_content(tmp_path, PLAIN), "-0.1%") | {"support_status": "reviewed_preview"}
    assert is_closed(judge_at_gate(worse))  # contradicted


@pytest.mark.parametrize(
    ("options", "notes"),
    [("pretrained=m,kv_cache_dtype=fp8", 0), ({"pretrained": "m", "kv_cache_dtype": "fp8"}, 0), ("pretrained=m", 1)],
)
def test_an_evaluation_without_the_technique_is_noted_for_review(tmp_path: Path, options: Any, notes: int) -> None:
    path = write_content(
        tmp_path, lm_eval("ruler", {"4096,none": 0.927}, config={"model": "vllm", "model_args": options})
    )
    outcome = judge_at_gate(supported_row(path, quality_baseline=0.931), strict=True)
    assert not is_closed(outcome)
    assert "evaluated with vllm pretrained=m" in gate_text(outcome)
    assert len([part for part in outcome.parts[0].of("note") if "results file" in part.text]) == notes


def test_a_large_declared_loss_is_noted_for_review(tmp_path: Path) -> None:
    outcome = judge_at_gate(supported_row(write_content(tmp_path, {**PLAIN, "value": 0.5}), "-46.3%"), strict=True)
    assert not is_closed(outcome)
    (review,) = (part for part in outcome.parts[0].of("note") if "results file" in part.text)
    assert (review.found, review.numbers["n"]) == ("-46.29%", 6500)
