"""`main.py verify` on honest runs: verdicts, files, exit codes."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from compliance.accuracy.metrics import Scores
from compliance.judge.text import text
from compliance.results import policy as verdict_module
from compliance.results import text as text_module
from compliance.results.find_results import find_results
from compliance.results.official_rules import tokens_as_in_accuracy
from compliance.results.scoring import ScoreSources
from compliance.results.text import RECORD_NAME, RESULT, TEXT_NAME, write_verdict
from runs.errors import ExitCode, InputError, SetupError
from runs.record.finished_run import ACCURACY, PERFORMANCE
from runs.rounds import ROUNDS
from tests.conftest import Finished
from tests.support.files.editing import set_record
from tests.support.runs.counted_reads import count_reads
from tests.support.runs.dummy_runs import DummyRuns, verify_one_result
from tests.support.runs.recorded import recorded

RunMain = Callable[..., Finished]


@pytest.mark.parametrize("scenario", ["Offline", "Server", "SingleStream", "Interactive"])
def test_a_short_consistent_run_passes_with_reasons_for_its_ineligibility(
    runs: DummyRuns, run_main: RunMain, tmp_path: Path, scenario: str
) -> None:
    run = runs.copy(tmp_path / "run", scenario)
    finished = run_main("verify", run.root)
    assert finished.code == 0, finished.stdout + finished.stderr
    lines = (run.root / TEXT_NAME).read_text().splitlines()
    assert lines[0] == "Verifying performance."
    reference, test = (float(line.split(" = ")[1]) for line in lines[1:3])
    assert [line.split(" = ")[0] for line in lines[1:3]] == ["reference score", "test score"]
    assert reference == pytest.approx(test, rel=0.2)
    assert lines[3] == "TEST PASS"
    assert lines[4].startswith("not eligible for submission: ")
    assert any("not eligible for submission: min_duration" in line for line in lines)
    assert f"{scenario}, llama3_1-8b" in "\n".join(lines)
    record = json.loads((run.root / RECORD_NAME).read_bytes())
    assert record["verdict"] == "PASS"
    assert record["not_official"]
    assert "contradiction" not in {finding["kind"] for finding in record["parts"][0]["findings"]}
    assert record["findings"][: len(record["parts"][0]["findings"])] == record["parts"][0]["findings"]
    assert record["parts"][0]["details"]["derived"]["latency_ns"]["p99"] > 0
    assert "mlperf_log_detail.txt" in record["log_sha256"][str(run.root)]


def test_verify_reads_each_file_once(runs: DummyRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = count_reads(monkeypatch)
    verify_one_result(runs("Server"), runs("Server", "accuracy"))
    assert {name for name, _ in reads} >= {"read_detail", "read_summary", "read_request_table", "read_accuracy_log"}
    assert {key for key, count in reads.items() if count > 1} == set()


# Path, options, exit code, and the beginning of the line of the verdict
FAILED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "by the official rules": ("Server", ("--official",), "performance: min_duration: 1,500 ms"),
    "an audit's leg": (
        "caching/audit/output_caching/repeat-13-n20-round1",
        (),
        "performance: audit settings: effective_",
    ),
}


def test_a_dataset_without_reference_scores_has_no_accuracy_verdict(run_main: RunMain, tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "run", "Offline", "accuracy")
    finished = run_main("verify", run.root)
    assert finished.code == ExitCode.OK, finished.stdout
    assert (run.root / TEXT_NAME).read_text().splitlines()[3].startswith("no target applies: ")
    record = json.loads((run.root / RECORD_NAME).read_bytes())
    assert any(reason.startswith("target scores: ") for reason in record["not_official"])
    official = run_main("verify", run.root, "--official")
    assert official.code == ExitCode.NEGATIVE
    assert "FAIL accuracy-no-target" in official.stdout


@pytest.mark.parametrize("case", FAILED)
def test_a_failed_run_has_its_reason_in_the_text(runs: DummyRuns, run_main: RunMain, tmp_path: Path, case: str) -> None:
    named, options, reason = FAILED[case]
    shutil.copytree(recorded() / named if "/" in named else runs(*named.split()), tmp_path / "run")
    assert run_main("verify", tmp_path / "run", *options).code == ExitCode.NEGATIVE
    lines = (tmp_path / "run" / TEXT_NAME).read_text().splitlines()
    assert lines[3].startswith(f"TEST FAIL: {reason}")
    assert (lines[1:3] == ["reference score = none", "test score = none"]) is ("accuracy" in named)


@pytest.mark.parametrize("scenario", ["Offline", "Server", "SingleStream"])
def test_loadgen_logs_alone_are_judged_by_the_official_rules(runs: DummyRuns, tmp_path: Path, scenario: str) -> None:
    verdict = verify_one_result(runs.copy(tmp_path / "run", scenario, bare=True).root)
    assert verdict.contradictions == []
    assert verdict.exit_code() == 1
    failed = " ".join(verdict.failures)
    assert all(text in failed for text in ("min_duration: ", " duration: ", "dataset size: 64 samples"))
    assert "manifest.json is missing" in text(verdict, RESULT)


def test_performance_and_accuracy_run_are_one_result(
    runs: DummyRuns, dummy_scores_as_target: Scores, tmp_path: Path
) -> None:
    home = tmp_path / "result"
    runs.copy(home / "performance" / "run_1", "Server")
    runs.copy(home / "accuracy", "Server", "accuracy")
    verdict = verify_one_result(home)
    assert verdict.outcome == "PASS", verdict.reasons
    shown = text(verdict, RESULT)
    assert "scores recomputed from mlperf_log_accuracy.json" in shown
    for name in ("rouge1", "rouge2", "rougeL", "rougeLsum", "gen_len", "gen_num"):
        assert f"  {name} {dummy_scores_as_target[name]:.10g}, required" in shown
    (result,) = find_results([home])
    assert write_verdict(verdict, result.home) == home / TEXT_NAME
    # The same result, named run by run
    (result,) = find_results([home / "performance" / "run_1", home / "accuracy"])
    assert len(result.runs) == 2
    assert find_results([home], only=ACCURACY)[0].run(PERFORMANCE) is None
    # A second performance run is a result of its own. Its verdict overwrites no other.
    runs.copy(home / "performance" / "run_2", "Server")
    assert [result.home for result in find_results([home])] == [home, home / "performance" / "run_2"]


IN_FORCE = ("plan.engine_options", "engine.configuration")
# Values in the record of the performance run, and the message; "" = no message
OTHER_SYSTEMS: dict[str, tuple[dict[str, object], str]] = {
    "another model": (
        {"observed.model.sha256": {"model.safetensors": "0" * 64}, "observed.model.folder": "bytes"}, "model: "
    ),
    "another KV cache": (
        {f"{place}.kv_cache_dtype": "fp8" for place in IN_FORCE},
        "KV cache type: fp8 in the performance run, not set in the accuracy run",
    ),
    "what is in force anyway": (
        {f"{place}.{key}": value for place in IN_FORCE
         for key, value in (("kv_cache_dtype", "auto"), ("speculative_config", None))}, "",
    ),
    "another build of LoadGen": (
        {
            "observed.loadgen.extension_sha256": "0" * 64,
            "observed.loadgen.build": {"kind": "source", "compiler": "g++ 12.2.0", "pybind11": "2.11.1"},
        },
        f"LoadGen module: {'0' * 64}, source in the performance run, ",
    ),
    "drafted tokens": (
        {f"{place}.speculative_config": {"method": "ngram"} for place in IN_FORCE},
        "speculative decoding: ngram in the performance run",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHER_SYSTEMS)
def test_runs_of_different_systems_fail_as_one_result(
    runs: DummyRuns, dummy_scores_as_target: Scores, tmp_path: Path, case: str
) -> None:
    values, message = OTHER_SYSTEMS[case]
    run = runs.copy(tmp_path / "performance", "Server")
    runs.copy(tmp_path / "accuracy", "Server", "accuracy")
    set_record(run, values)
    verdict = verify_one_result(tmp_path)
    assert (verdict.exit_code() == 0) is (message == ""), verdict.reasons
    assert message in " ".join(verdict.failures)


def test_an_accuracy_run_is_rescored_with_the_given_dataset_and_tokenizer(
    runs: DummyRuns, dummy_scores_as_target: Scores, make_dataset: Callable[..., Path], tmp_path: Path
) -> None:
    accuracy_run = runs.copy(tmp_path / "whole", "Server", "accuracy")
    verdict = verify_one_result(accuracy_run.root, sources=ScoreSources(make_dataset(*[[65, 66, 67]] * 64), "bytes"))
    assert (verdict.exit_code(), "SHA-256" in verdict.reasons[0]) == (2, True)
    run = runs.copy(tmp_path / "run", "Server", "accuracy", bare=True)
    dataset = json.loads(accuracy_run.manifest.read_bytes())["plan"]["dataset_path"]
    run.accuracy_text.unlink()
    with_sources = verify_one_result(run.root, sources=ScoreSources(Path(dataset), "bytes"))
    assert with_sources.exit_code() == 1  # too small to be official
    assert with_sources.parts[0].details.values["scores"]["rouge1"] == dummy_scores_as_target["rouge1"]
    assert "manifest.json is missing" in text(with_sources, RESULT)
    without = verify_one_result(run.root)
    assert without.exit_code() == 2
    assert without.error is not None
    assert "--dataset-path" in without.error.fix


def test_the_exit_code_is_that_of_the_worst_result(runs: DummyRuns, run_main: RunMain, tmp_path: Path) -> None:
    good = runs.copy(tmp_path / "good", "Server")
    bad = runs.copy(tmp_path / "bad", "SingleStream")
    bad.detail.write_bytes(b"")
    out = tmp_path / "verdicts"
    finished = run_main("verify", good.root, bad.root, "--output", out, "--json", tmp_path / "all.json")
    record = json.loads((tmp_path / "all.json").read_bytes())
    assert finished.code == record["exit_code"] == max(result["exit_code"] for result in record["results"])
    assert [result["verdict"] for result in record["results"]] == ["PASS", "ERROR"]
    assert "TEST PASS" in (out / "001-good" / TEXT_NAME).read_text()
    assert "TEST PASS" not in (out / "002-bad" / TEXT_NAME).read_text()
    assert "Traceback" not in finished.stderr


def test_the_record_is_written_before_the_text(
    runs: DummyRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = verify_one_result(runs("Server"))

    def fail(*arguments: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(text_module, "write_atomic", fail)
    with pytest.raises(SetupError, match="no space"):
        write_verdict(verdict, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [RECORD_NAME]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("{}/nowhere",), 2, "does not exist"),
        (("{}/empty",), 2, "empty is empty\n  fix: name a run directory"),
        (("{}/run", "--accuracy-only", "--performance-only"), 2, "exclude each other"),
        (("{}/run", "--accuracy-only"), 2, "no accuracy run"),
        (("{}/run", "--scenario", "Offline"), 2, "is Server"),
        (("{}/run", "--dataset-path", "nowhere.json"), 2, "nowhere.json"),
        (("{}/run", "--output", "{}/run/manifest.json/below"), 3, "--output DIR"),
    ],
)
def test_mistakes_on_the_command_line_are_refused(
    runs: DummyRuns, run_main: RunMain, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    shutil.copytree(runs("Server"), tmp_path / "run")
    (tmp_path / "empty").mkdir()
    finished = run_main("verify", *(argument.format(tmp_path) for argument in arguments))
    assert (finished.code, message in finished.stderr) == (code, True), finished.stderr
    assert "Traceback" not in finished.stderr
    assert not (tmp_path / "run" / TEXT_NAME).exists()


def test_interactive_runs_are_recognized_by_their_limits(runs: DummyRuns, tmp_path: Path) -> None:
    run = runs.copy(tmp_path / "run", "Interactive", bare=True)
    assert find_results([run.root])[0].runs[0].scenario == "Interactive"
    run = runs.copy(tmp_path / "server", "Server", bare=True)
    assert find_results([run.root])[0].runs[0].scenario == "Server"
    failed = verdict_module.verify_result(find_results([run.root], "Interactive")[0]).failures
    assert any("2,000 ms, required: at most 500 ms" in text for text in failed)
    with pytest.raises(InputError, match="is Server"):
        find_results([run.root], "Offline")


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("results/Box/retinanet/Offline", ExitCode.REFUSED),
        ("results/Box/llama2-70b-99/Offline", ExitCode.REFUSED),
        ("results/Box/llama3.1-8b/Offline", ExitCode.NEGATIVE),
        ("retinanet/results/Offline", ExitCode.NEGATIVE),
    ],
)
def test_a_result_of_another_benchmark_has_no_verdict(runs: DummyRuns, tmp_path: Path, place: str, code: int) -> None:
    """The limits of this benchmark do not apply to the result."""
    run = runs.copy(tmp_path / place / "performance" / "run_1", "Offline", bare=True)
    verdict = verify_one_result(run.root.parents[1])
    assert (bool(verdict.parts), verdict.exit_code()) == (code != ExitCode.REFUSED, code)


def test_logs_of_a_benchmark_without_rules_are_compared_without_verdict(
    runs: DummyRuns, run_main: RunMain, tmp_path: Path
) -> None:
    run = runs.copy(tmp_path / "results" / "system" / "whisper" / "Offline", "Offline")
    run.manifest.unlink()
    finished = run_main("verify", run.root)
    assert finished.code == ExitCode.REFUSED
    assert "NO VERDICT: " in finished.stdout
    assert "TEST FAIL" not in finished.stdout
    assert "\n  fix: check it with python main.py check REPOSITORY" in finished.stderr
    text = run.summary.read_text()
    assert "Samples per second: " in text
    run.summary.write_text(text.replace("Samples per second: ", "Samples per second: 9"))
    finished = run_main("verify", run.root)
    assert finished.code == ExitCode.FAILED
    assert "FAIL log-summary: " in finished.stdout


@pytest.mark.parametrize(("named", "kept"), [("v6.1", True), ("v5.1", False)])
def test_seeds_are_compared_with_those_of_the_named_round(runs: DummyRuns, named: str, kept: bool) -> None:
    (part,) = verify_one_result(runs("Offline"), official=True, in_round=ROUNDS[named]).parts
    (seeds,) = [check for check in part.findings if check.rule == "perf-seeds"]
    assert seeds.passed == kept
    assert named in seeds.required


def test_the_round_is_derived_from_the_seeds(runs: DummyRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    older, newer = ROUNDS["v5.1"], ROUNDS["v6.1"]
    monkeypatch.setitem(ROUNDS, "v5.1", replace(older, seeds=newer.seeds))
    monkeypatch.setitem(ROUNDS, "v6.1", replace(newer, seeds=older.seeds))
    verdict = verify_one_result(runs("Offline"), official=True)
    (part,) = verdict.parts
    assert part.details.round == "v5.1"
    assert [finding.passed for finding in part.findings if finding.rule == "perf-seeds"] == [True]
    assert "the official rules of round v5.1" in text(verdict, RESULT)


def test_scores_without_accuracy_log_have_no_verdict(runs: DummyRuns, run_main: RunMain, tmp_path: Path) -> None:
    bare = runs.copy(tmp_path / "bare", "Server", "accuracy", bare=True)
    bare.accuracy_log.unlink()
    bare.accuracy_text.write_text("{'rouge1': 38.8}")
    finished = run_main("verify", bare.root, "--output", tmp_path / "verdict")
    assert finished.code == ExitCode.REFUSED
    assert "NO VERDICT: " in finished.stdout
    assert "mlperf_log_accuracy.json is missing" in finished.stdout


@pytest.mark.parametrize(
    ("stated", "passed"),
    [("{'tokens_per_sample': 102.5}", [True]), ("{'tokens_per_sample': 104.0}", [False]), ("{'rouge1': 38.8}", [])],
)
def test_tokens_per_sample_of_both_runs_are_compared(stated: str, passed: list[bool]) -> None:
    assert [
        finding.passed for finding in tokens_as_in_accuracy(100.0, Path("detail"), stated, "accuracy.txt")
    ] == passed
