"""`main.py verify` on honest legs: verdicts, files, exit codes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compliance.accuracy.accuracy_verdict import parse_accuracy_text
from compliance.accuracy.metrics import ROUGE, Scores
from compliance.evidence.accuracy import ScoreSources
from compliance.evidence.official_rules import tokens_as_in_accuracy
from compliance.verify import result_verdict as verdict_module
from compliance.verify.find_results import find_results
from compliance.verify.result_verdict import RECORD_NAME, TEXT_NAME, as_text, verify_result, write_verdict
from runs.errors import ExitCode, InputError, SetupError
from runs.files import sha256_of
from runs.record.leg import ACCURACY, PERFORMANCE
from runs.rounds import ROUNDS
from tests.conftest import Finished
from tests.support.editing import reseal
from tests.support.official import targets_at
from tests.support.recorded import recorded
from tests.support.verify_legs import DummyLegs


@pytest.fixture(scope="session")
def legs() -> DummyLegs:
    return DummyLegs()


@pytest.fixture
def own_target(legs: DummyLegs, monkeypatch: pytest.MonkeyPatch) -> Scores:
    """Lets the dummy's own scores be the reference, so that an accuracy leg of it can pass."""
    scores = parse_accuracy_text(ROUGE, (legs("Server", "accuracy") / "accuracy.txt").read_text())
    monkeypatch.setattr("compliance.evidence.accuracy.target_of", lambda leg: (targets_at(scores), "the dummy itself"))
    return scores


@pytest.mark.parametrize("scenario", ["Offline", "Server", "SingleStream", "Interactive"])
def test_an_honest_short_leg_passes_and_says_why_it_is_not_official(
    legs: DummyLegs, run_main: Callable[..., Finished], tmp_path: Path, scenario: str
) -> None:
    run = legs.copy(tmp_path / "leg", scenario)
    finished = run_main("verify", run.root)
    assert finished.code == 0, finished.stdout + finished.stderr
    lines = (run.root / TEXT_NAME).read_text().splitlines()
    assert lines[0] == "Verifying performance."
    reference, test = (float(line.split(" = ")[1]) for line in lines[1:3])
    assert [line.split(" = ")[0] for line in lines[1:3]] == ["reference score", "test score"]
    assert reference == pytest.approx(test, rel=0.2)
    assert lines[3] == "TEST PASS"
    assert lines[4].startswith("not official: ")
    assert any("not official: min_duration" in line for line in lines)
    assert f"{scenario}, llama3_1-8b" in "\n".join(lines)
    record = json.loads((run.root / RECORD_NAME).read_bytes())
    assert record["verdict"] == "PASS"
    assert record["not_official"]
    assert "contradiction" not in {one["kind"] for one in record["parts"][0]["findings"]}
    assert record["parts"][0]["details"]["derived"]["latency_ns"]["p99"] > 0
    assert "mlperf_log_detail.txt" in record["log_sha256"][str(run.root)]


def test_the_official_rules_fail_a_short_leg(
    legs: DummyLegs, run_main: Callable[..., Finished], tmp_path: Path
) -> None:
    run = legs.copy(tmp_path / "leg", "Server")
    finished = run_main("verify", run.root, "--official")
    assert finished.code == 1
    text = (run.root / TEXT_NAME).read_text()
    assert "TEST PASS" not in text
    assert text.splitlines()[3].startswith("TEST FAIL: performance: min_duration: 1,500 ms")


@pytest.mark.parametrize("scenario", ["Offline", "Server", "SingleStream"])
def test_bare_logs_are_held_to_the_official_rules(legs: DummyLegs, tmp_path: Path, scenario: str) -> None:
    run = legs.copy(tmp_path / "leg", scenario, bare=True)
    verdict = verify_result(find_results([run.root])[0])
    assert verdict.contradictions == []
    assert verdict.exit_code() == 1
    failed = " ".join(verdict.failures)
    assert "min_duration: " in failed
    assert "duration: " in failed
    assert "data set: 64 samples" in failed
    assert "no manifest.json" in as_text(verdict)


def test_a_manifest_that_claims_to_be_official_is_held_to_it(legs: DummyLegs, tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Server")
    manifest = json.loads(run.manifest.read_bytes())
    run.manifest.write_text(json.dumps({**manifest, "official": True, "unofficial_reasons": []}))
    reseal(run)
    assert verify_result(find_results([run.root])[0]).exit_code() == 1


def test_an_unofficial_manifest_gives_its_reasons(legs: DummyLegs, tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Server")
    manifest = json.loads(run.manifest.read_bytes())
    run.manifest.write_text(json.dumps({**manifest, "unofficial_reasons": []}))
    reseal(run)
    (verdict,) = (verify_result(result) for result in find_results([run.root]))
    assert verdict.outcome == "ERROR"
    assert "unofficial_reasons" in verdict.reasons[0]


def test_an_audit_leg_is_no_result(run_main: Callable[..., Finished], tmp_path: Path) -> None:
    out = tmp_path / "leg"
    shutil.copytree(recorded() / "caching/audit/output_caching/repeat-3", out)
    finished = run_main("verify", out)
    assert finished.code == 1
    assert (out / TEXT_NAME).read_text().splitlines()[3].startswith("TEST FAIL: performance: no audit: ")


def test_both_legs_are_one_result(legs: DummyLegs, own_target: Scores, tmp_path: Path) -> None:
    home = tmp_path / "result"
    legs.copy(home / "performance" / "run_1", "Server")
    legs.copy(home / "accuracy", "Server", "accuracy")
    (result,) = find_results([home])
    verdict = verify_result(result)
    assert verdict.outcome == "PASS", verdict.reasons
    text = as_text(verdict)
    assert "scored again from mlperf_log_accuracy.json" in text
    for name in ("rouge1", "rouge2", "rougeL", "rougeLsum", "gen_len", "gen_num"):
        assert f"  {name} {own_target[name]:.10g}, required" in text
    assert write_verdict(verdict, result.home) == home / TEXT_NAME
    # The same, named leg by leg.
    (result,) = find_results([home / "performance" / "run_1", home / "accuracy"])
    assert len(result.legs) == 2
    assert find_results([home], only=ACCURACY)[0].leg(PERFORMANCE) is None


def test_without_a_target_accuracy_does_not_pass(
    legs: DummyLegs, run_main: Callable[..., Finished], tmp_path: Path
) -> None:
    run = legs.copy(tmp_path / "leg", "Offline", "accuracy")
    finished = run_main("verify", run.root, "--accuracy-only")
    assert finished.code == 1
    lines = (run.root / TEXT_NAME).read_text().splitlines()
    assert lines[1:3] == ["reference score = none", "test score = none"]
    assert lines[3].startswith("TEST FAIL: accuracy: target: no reference scores")


def test_legs_of_two_models_are_not_one_result(legs: DummyLegs, own_target: Scores, tmp_path: Path) -> None:
    home = tmp_path / "result"
    legs.copy(home / "performance", "Server")
    run = legs.copy(home / "accuracy", "Server", "accuracy")
    manifest = json.loads(run.manifest.read_bytes())
    hashes, folder = (
        {"model.safetensors": "0" * 64},
        manifest["asked"].get("model_path") or manifest["plan"]["model_path"],
    )
    manifest["observed"]["model"] |= {"sha256": hashes, "folder": folder}
    run.manifest.write_text(json.dumps(manifest))
    reseal(run)
    verdict = verify_result(find_results([home])[0])
    assert verdict.exit_code() == 1
    assert "one model" in " ".join(verdict.failures)


@pytest.mark.parametrize(
    ("options", "passes", "found"),
    [
        (
            {"kv_cache_dtype": "fp8"},
            False,
            "one KV cache type: fp8 in the performance leg, not set in the accuracy leg",
        ),
        ({"kv_cache_dtype": "auto", "speculative_config": None}, True, ""),  # what is in force anyway
        ({"speculative_config": {"method": "ngram"}}, False, "one speculative decoding: ngram in the performance leg"),
    ],
)
def test_a_faster_engine_in_the_performance_leg_alone_is_found(
    legs: DummyLegs,
    own_target: Scores,
    tmp_path: Path,
    options: dict[str, object],
    passes: bool,
    found: str,
) -> None:
    home = tmp_path / "result"
    run = legs.copy(home / "performance", "Server")
    legs.copy(home / "accuracy", "Server", "accuracy")
    manifest = json.loads(run.manifest.read_bytes())
    for told in (manifest["plan"]["engine_options"], manifest["engine"]["configuration"]):
        told |= options
    run.manifest.write_text(json.dumps(manifest))
    reseal(run)
    verdict = verify_result(find_results([home])[0])
    assert (verdict.outcome == "PASS") is passes, verdict.reasons
    assert found in " ".join(verdict.failures)


def test_scores_follow_the_answers_not_the_text(legs: DummyLegs, own_target: Scores, tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Server", "accuracy")
    text = run.accuracy_text.read_text()
    run.accuracy_text.write_text(text.replace(str(own_target["rouge1"]), str(own_target["rouge1"] + 1)))
    reseal(run)
    verdict = verify_result(find_results([run.root])[0])
    assert verdict.exit_code() == 4
    assert "does not belong to these answers" in verdict.reasons[0]


def test_another_data_set_is_refused(legs: DummyLegs, make_dataset: Callable[..., Path], tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Server", "accuracy")
    other = make_dataset(*[[65, 66, 67]] * 64)
    verdict = verify_result(find_results([run.root])[0], sources=ScoreSources(other, "bytes"))
    assert verdict.exit_code() == 2
    assert "SHA-256" in verdict.reasons[0]


def test_a_bare_accuracy_leg_is_scored_with_given_sources(legs: DummyLegs, own_target: Scores, tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Server", "accuracy", bare=True)
    dataset = json.loads((legs("Server", "accuracy") / "manifest.json").read_bytes())["plan"]["dataset_path"]
    run.accuracy_text.unlink()
    with_sources = verify_result(find_results([run.root])[0], sources=ScoreSources(Path(dataset), "bytes"))
    assert with_sources.exit_code() == 1  # too small to be official
    assert with_sources.parts[0].details["scores"]["rouge1"] == own_target["rouge1"]
    without = verify_result(find_results([run.root])[0])
    assert without.exit_code() == 2
    assert without.error is not None
    assert "--dataset-path" in without.error.fix


def test_a_truncated_log_leaves_the_text_alone(legs: DummyLegs, own_target: Scores, tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Server", "accuracy")
    content = run.accuracy_log.read_bytes()
    digest = sha256_of(run.accuracy_log)
    run.accuracy_log.write_bytes(content[:4096] + b"\n\n...\n\n" + content[-4096:])
    run.accuracy_text.write_text(run.accuracy_text.read_text() + f"\nhash={digest}\n")
    verdict = verify_result(find_results([run.root])[0])
    assert verdict.outcome == "PASS", verdict.reasons
    assert "truncated for submission" in as_text(verdict)
    run.accuracy_text.write_text(run.accuracy_text.read_text().replace(digest, "0" * 64))
    assert verify_result(find_results([run.root])[0]).exit_code() == 4


def test_the_worst_result_decides(legs: DummyLegs, run_main: Callable[..., Finished], tmp_path: Path) -> None:
    good = legs.copy(tmp_path / "good", "Server")
    bad = legs.copy(tmp_path / "bad", "SingleStream")
    bad.detail.write_bytes(b"")
    out = tmp_path / "verdicts"
    finished = run_main("verify", good.root, bad.root, "--output", out, "--json", tmp_path / "all.json")
    record = json.loads((tmp_path / "all.json").read_bytes())
    assert finished.code == record["exit_code"] == max(one["exit_code"] for one in record["results"])
    assert [one["verdict"] for one in record["results"]] == ["PASS", "ERROR"]
    assert "TEST PASS" in (out / "001-good" / TEXT_NAME).read_text()
    assert "TEST PASS" not in (out / "002-bad" / TEXT_NAME).read_text()
    assert "Traceback" not in finished.stderr


def test_a_second_performance_run_does_not_overwrite_the_first(legs: DummyLegs, tmp_path: Path) -> None:
    home = tmp_path / "result"
    for number in (1, 2):
        legs.copy(home / "performance" / f"run_{number}", "Server")
    assert [result.home for result in find_results([home])] == [home, home / "performance" / "run_2"]


def test_the_record_comes_before_the_text(legs: DummyLegs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = verify_result(find_results([legs("Server")])[0])

    def fail(*arguments: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(verdict_module, "write_atomic", fail)
    with pytest.raises(SetupError, match="no space"):
        write_verdict(verdict, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [RECORD_NAME]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "does not exist"),
        (("empty",), "holds no LoadGen logs"),
        (("leg", "--accuracy-only", "--performance-only"), "leave nothing"),
        (("leg", "--accuracy-only"), "no accuracy leg"),
        (("leg", "--scenario", "Offline"), "LoadGen ran Server"),
        (("leg", "--dataset-path", "nowhere.json"), "nowhere.json"),
    ],
)
def test_mistakes_of_the_user(
    legs: DummyLegs, run_main: Callable[..., Finished], tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    shutil.copytree(legs("Server"), tmp_path / "leg")
    (tmp_path / "empty").mkdir()
    finished = run_main("verify", tmp_path / arguments[0], *arguments[1:])
    assert finished.code == 2
    assert said in finished.stderr
    assert "Traceback" not in finished.stderr
    assert not (tmp_path / "leg" / TEXT_NAME).exists()


def test_a_verdict_that_cannot_be_written_is_refused(
    legs: DummyLegs, run_main: Callable[..., Finished], tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    finished = run_main("verify", legs("Server"), "--output", blocked / "below")
    assert finished.code == 3
    assert "--output DIR" in finished.stderr


def test_interactive_is_known_by_its_limits(legs: DummyLegs, tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Interactive", bare=True)
    assert find_results([run.root])[0].legs[0].scenario == "Interactive"
    run = legs.copy(tmp_path / "server", "Server", bare=True)
    assert find_results([run.root])[0].legs[0].scenario == "Server"
    judged = verify_result(find_results([run.root], "Interactive")[0])
    assert any("TTFT limit in force: 2000 ms, required: at most 500 ms" in text for text in judged.failures)
    with pytest.raises(InputError, match="LoadGen ran Server"):
        find_results([run.root], "Offline")


@pytest.mark.parametrize(
    ("place", "judged"),
    [
        ("results/Box/retinanet/Offline", False),
        ("results/Box/llama2-70b-99/Offline", False),
        ("results/Box/llama3.1-8b/Offline", True),
        ("retinanet/results/Offline", True),
    ],
)
def test_a_published_result_of_another_benchmark_is_not_judged(
    legs: DummyLegs, tmp_path: Path, place: str, judged: bool
) -> None:
    """By this benchmark's limits it would be wrong whatever it is."""
    run = legs.copy(tmp_path / place / "performance" / "run_1", "Offline", bare=True)
    (result,) = find_results([run.root.parents[1]])
    verdict = verify_result(result)
    assert (bool(verdict.parts), verdict.exit_code() == ExitCode.REFUSED) == (judged, not judged)


def test_logs_of_a_benchmark_without_rules_have_no_verdict_and_are_held_against_each_other(
    legs: DummyLegs, run_main: Callable[..., Finished], tmp_path: Path
) -> None:
    run = legs.copy(tmp_path / "results" / "system" / "whisper" / "Offline", "Offline")
    run.manifest.unlink()
    finished = run_main("verify", run.root)
    assert finished.code == ExitCode.REFUSED
    assert "NO VERDICT: " in finished.stdout
    assert "TEST FAIL" not in finished.stdout
    assert "\n  fix: main.py check REPOSITORY" in finished.stderr
    text = run.summary.read_text()
    assert "Samples per second: " in text
    run.summary.write_text(text.replace("Samples per second: ", "Samples per second: 9"))
    finished = run_main("verify", run.root)
    assert finished.code == ExitCode.FAILED
    assert "FAIL log-summary: " in finished.stdout


@pytest.mark.parametrize(("named", "kept"), [("v6.1", True), ("v5.1", False)])
def test_the_seeds_are_those_of_the_round_that_is_named(legs: DummyLegs, named: str, kept: bool) -> None:
    (result,) = find_results([legs("Offline")])
    (part,) = verify_result(result, official=True, in_round=ROUNDS[named]).parts
    (seeds,) = [check for check in part.findings if check.rule == "perf-seeds"]
    assert seeds.passed == kept
    assert seeds.required == f"one of {named}"


def test_scores_without_the_log_that_they_are_of_are_no_verdict(
    legs: DummyLegs, run_main: Callable[..., Finished], tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(legs("Server", "accuracy"), bare)
    for name in ("manifest.json", "seal.json", "mlperf_log_accuracy.json"):
        (bare / name).unlink(missing_ok=True)
    (bare / "accuracy.txt").write_text("{'rouge1': 38.8}")
    finished = run_main("verify", bare, "--output", tmp_path / "verdict")
    assert finished.code == ExitCode.REFUSED
    assert "NO VERDICT: " in finished.stdout
    assert "mlperf_log_accuracy.json is missing" in finished.stdout


def test_tokens_of_a_sample_are_those_of_the_accuracy_leg() -> None:
    def judged(stated: str) -> list[bool]:
        return [one.passed for one in tokens_as_in_accuracy(100.0, Path("detail"), stated, "accuracy.txt")]

    assert judged("{'tokens_per_sample': 102.5}") == [True]
    assert judged("{'tokens_per_sample': 104.0}") == [False]
    assert judged("{'rouge1': 38.8}") == []
