"""Whole legs as a user starts them: the dummy engine through the real LoadGen, and everything they leave behind."""

import hashlib
import json
import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

from qsl.dataset import Dataset, load_dataset
from runs.accuracy_log import read_accuracy_log
from runs.benchmarks import CURRENT_ROUND, DEFAULT_KEY, LOADGEN_SCENARIO, ROUND_SEEDS, SCENARIOS
from runs.detail_log import read_detail
from runs.files import sha256_of
from runs.layout import LOADGEN_LOGS, RunDir
from runs.manifest import Manifest, read_manifest
from runs.requests_log import read_requests
from runs.result import read_result
from sut.dummy_engine import DummyEngine
from sut.engine import SamplingPolicy
from tests.conftest import Finished, StartedMain
from tests.scenarios.legs import USER_CONF, arguments, patched, progress

RunMain = Callable[..., Finished]
StartMain = Callable[..., StartedMain]

OURS = {"manifest.json", "requests.jsonl", "user.conf", "engine.log", "progress.json", "result.json"}
ACCURACY_FILES = {"accuracy.txt", "accuracy.json"}

SLOW = pytest.mark.slow
# Enough legs for a quick look.
FAST = [("Offline", "performance"), ("Offline", "accuracy"), ("Server", "performance"), ("Server", "accuracy"),
        ("SingleStream", "performance")]  # fmt: skip
ACCURACY = [pytest.param(scenario, marks=[SLOW] * ((scenario, "accuracy") not in FAST)) for scenario in SCENARIOS]

# How the official checker finds the scores in accuracy.txt: one of these in a line, by re.match.
OFFICIAL_PATTERNS = {
    **{name: rf".*'{name}':\s+'?([\d.]+)'?.*" for name in ("rouge1", "rouge2", "rougeL", "rougeLsum")},
    "gen_len": r".*'gen_len':\s([\d.]+).*",
}


@dataclass
class Leg:
    """A finished leg."""

    scenario: str
    mode: str
    finished: Finished
    run: RunDir
    working_directory: Path

    @cached_property
    def manifest(self) -> Manifest:
        return read_manifest(self.run.manifest)

    @cached_property
    def dataset(self) -> Dataset:
        return load_dataset(self.manifest.resolved.dataset_path)

    @cached_property
    def answers(self) -> list[list[int]]:
        """What the dummy engine says to each sample."""
        engine = DummyEngine(SamplingPolicy(), lead_tokens=self.manifest.resolved.engine_options["lead_tokens"])
        return [engine.answer(prompt) for prompt in self.dataset.prompts]


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Leg]:
    """Legs by scenario and mode, each run when it is first asked for."""
    root = tmp_path_factory.mktemp("legs")

    @cache
    def leg(scenario: str, mode: str) -> Leg:
        folder = root / f"{scenario}-{mode}"
        folder.mkdir()
        out = root / f"{scenario}-{mode}-run"
        flags = ["--accuracy"] if mode == "accuracy" else []
        started = StartedMain(tuple(arguments(scenario, out, *flags)), folder, {})
        return Leg(scenario, mode, started.wait(), RunDir(out), folder)

    return leg


@pytest.fixture(
    params=[
        pytest.param((scenario, mode), id=f"{scenario}-{mode}", marks=[SLOW] * ((scenario, mode) not in FAST))
        for scenario in SCENARIOS
        for mode in ("performance", "accuracy")
    ]
)
def leg(request: pytest.FixtureRequest, legs: Callable[[str, str], Leg]) -> Leg:
    return legs(*request.param)


def test_ends_well(leg: Leg) -> None:
    assert leg.finished.stderr == ""
    assert leg.finished.code == 0, leg.finished.stdout
    outcome = "performance: VALID" if leg.mode == "performance" else "accuracy: no target applies"
    assert f"{leg.scenario} {outcome}" in leg.finished.stdout
    assert "official: no" in leg.finished.stdout
    assert str(leg.run.root) in leg.finished.stdout


def test_files(leg: Leg) -> None:
    expected = OURS | set(LOADGEN_LOGS) | (ACCURACY_FILES if leg.mode == "accuracy" else set())
    assert {path.name for path in leg.run.root.iterdir()} == expected
    assert list(leg.working_directory.iterdir()) == []  # nothing outside the run directory
    assert leg.run.user_conf.read_text() == USER_CONF
    assert leg.run.trace.stat().st_size == 0  # LoadGen makes the file; the trace is off


def test_manifest(leg: Leg) -> None:
    manifest = leg.manifest
    assert manifest.status == "finished"
    assert manifest.exit_code == 0
    assert manifest.error is None
    assert manifest.start_time_ns < manifest.end_time_ns  # type: ignore[operator]  # both are there
    assert manifest.pid != manifest.parent_pid
    assert not manifest.official
    assert any("dummy engine" in reason for reason in manifest.unofficial_reasons)

    plan = manifest.resolved
    assert (plan.scenario, plan.mode) == (leg.scenario, leg.mode)
    assert plan.loadgen_scenario == LOADGEN_SCENARIO[plan.scenario]
    assert plan.loadgen_key == DEFAULT_KEY[plan.scenario]
    assert plan.sample_count == len(leg.dataset) == 64
    assert manifest.asked["scenario"] == leg.scenario
    assert manifest.asked.get("accuracy", False) == (leg.mode == "accuracy")

    assert manifest.dataset["sha256"] == sha256_of(Path(plan.dataset_path))
    assert manifest.loadgen["extension_sha256"] == sha256_of(Path(manifest.loadgen["extension"]))
    assert manifest.software["mlcommons-loadgen"] == manifest.loadgen["version"]
    assert manifest.harness["version"]
    assert manifest.host["memory_bytes"] > 0
    assert manifest.engine["name"] == "dummy"
    assert manifest.engine["asked"] == manifest.engine["in_force"]
    assert manifest.engine["warm_up"]["prompts"] == plan.warmup_prompts
    assert manifest.observed["samples_issued"] == manifest.observed["samples_completed"] > 0
    assert manifest.observed["cached_prompt_tokens"] == 0


def test_settings_in_force_are_recorded(leg: Leg) -> None:
    settings, detail = leg.manifest.loadgen_settings, read_detail(leg.run.detail)
    official = ROUND_SEEDS[CURRENT_ROUND]
    for name in ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed"):
        assert settings[name] == getattr(official, name) == detail.get(f"effective_{name}")
    assert settings["mode"] == detail.get("effective_test_mode")
    assert settings["scenario"] == detail.get("effective_scenario")
    assert settings["min_duration_ms"] == detail.get("effective_min_duration_ms")
    assert settings["use_token_latencies"] is True
    limits_ms = {"Server": (2000, 100), "Interactive": (500, 30)}.get(leg.scenario)
    if limits_ms:
        assert (settings["ttft_latency"], settings["tpot_latency"]) == tuple(limit * 1e6 for limit in limits_ms)


def test_result(leg: Leg) -> None:
    result = read_result(leg.run.result)
    assert result.disagreements == []
    assert result.scenario == leg.scenario
    assert result.counts.errors == 0
    assert result.counts.samples == result.counts.samples_expected
    heartbeat = progress(leg.run.root)
    assert heartbeat["phase"] == "done"
    assert heartbeat["issued"] == heartbeat["completed"] == result.counts.samples
    unknown_before = (leg.scenario, leg.mode) == ("SingleStream", "performance")
    assert heartbeat["expected"] == (None if unknown_before else result.counts.samples)
    if leg.mode == "accuracy":
        assert result.verdict == "DONE"
        assert result.counts.accuracy_entries == 64
        return
    assert result.verdict == result.loadgen_verdict == "VALID"
    assert result.reasons == []
    assert result.derived is not None
    assert result.reported is not None
    numbers = [f"{result.reported.tokens_per_second:,.2f} tokens/s"]
    assert all(number in leg.finished.stdout for number in numbers)


def test_requests(leg: Leg) -> None:
    table = read_requests(leg.run.requests)
    assert len(table) == leg.manifest.observed["samples_completed"]
    assert table.seq.tolist() == list(range(len(table)))
    assert set(table.sample_index.tolist()) == set(range(64))
    assert set(table.finish_reason) <= {"stop", "length"}
    assert (table.issue_ns <= table.first_token_ns).all()
    assert (table.first_token_ns <= table.complete_ns).all()
    hashes = [hashlib.sha256(array("i", ids)).hexdigest() for ids in leg.answers]
    for index, digest, tokens, prompt_tokens in zip(
        table.sample_index.tolist(), table.output_sha256, table.output_tokens, table.prompt_tokens, strict=True
    ):
        assert digest == hashes[index]
        assert tokens == len(leg.answers[index])
        assert prompt_tokens == len(leg.dataset.prompts[index])


@pytest.mark.parametrize("scenario", ACCURACY)
def test_accuracy_log_holds_the_engines_answers(scenario: str, legs: Callable[[str, str], Leg]) -> None:
    leg = legs(scenario, "accuracy")
    entries = read_accuracy_log(leg.run.accuracy_log)
    assert sorted(entry.qsl_idx for entry in entries) == list(range(64))
    for entry in entries:
        answer = leg.answers[entry.qsl_idx]
        assert list(memoryview(entry.data).cast("i")) == answer
        assert entry.token_count == len(answer)
        first = None if scenario == "Offline" else array("i", answer[:1]).tobytes()
        assert entry.token_data == first


@pytest.mark.parametrize("scenario", ACCURACY)
def test_scores_are_found_as_the_official_checker_finds_them(scenario: str, legs: Callable[[str, str], Leg]) -> None:
    leg = legs(scenario, "accuracy")
    lines = leg.run.accuracy_text.read_text().splitlines()
    scores = json.loads(leg.run.accuracy_json.read_bytes())["scores"]
    for name, pattern in OFFICIAL_PATTERNS.items():
        (found,) = [match.group(1) for line in lines if (match := re.match(pattern, line))]
        assert float(found) == pytest.approx(scores[name])
        assert float(found) > 0
    assert scores["gen_num"] == 64


@SLOW
def test_all_scenarios_give_the_same_scores(legs: Callable[[str, str], Leg]) -> None:
    texts = {legs(scenario, "accuracy").run.accuracy_text.read_text() for scenario in SCENARIOS}
    assert len(texts) == 1


# Single legs --------------------------------------------------------------------------------------------------------


@SLOW
def test_loadgens_files_stay_as_loadgen_left_them(run_main: RunMain, tmp_path: Path) -> None:
    out, hashes = tmp_path / "run", tmp_path / "hashes.json"
    # The recorder is closed right after LoadGen's Start call returned.
    environment = patched(
        tmp_path,
        in_leg=f"""
        import json, hashlib, pathlib
        from sut.recorder import Recorder
        close = Recorder.close
        def hash_and_close(self):
            files = pathlib.Path({str(out)!r}).glob("mlperf_log_*")
            hashes = {{file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}}
            pathlib.Path({str(hashes)!r}).write_text(json.dumps(hashes))
            close(self)
        Recorder.close = hash_and_close
        """,
    )
    finished = run_main(*arguments("Server", out, "--accuracy"), environment=environment)
    assert finished.code == 0, finished.stderr
    assert json.loads(hashes.read_text()) == {name: sha256_of(out / name) for name in LOADGEN_LOGS}


def test_too_short_a_leg_is_invalid(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished = run_main(*arguments("Offline", out, "--dummy-ttft-ms", 1, "--enable-log-trace"))
    assert finished.code == 1
    assert finished.stderr == ""
    assert "Offline performance: INVALID" in finished.stdout
    assert "required 0.2 s" in finished.stdout
    result = read_result(RunDir(out).result)
    assert result.verdict == result.loadgen_verdict == "INVALID"
    assert result.disagreements == []
    assert result.derived_from == "trace"
    assert RunDir(out).trace.stat().st_size > 0
    manifest = read_manifest(RunDir(out).manifest)
    assert (manifest.status, manifest.exit_code, manifest.error) == ("finished", 1, None)


@pytest.mark.parametrize(("scenario", "ttft_ms"), [("Interactive", 600), pytest.param("Server", 3000, marks=SLOW)])
def test_overload_is_invalid_for_its_first_tokens(
    scenario: str, ttft_ms: int, run_main: RunMain, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    finished = run_main(*arguments(scenario, out, "--dummy-ttft-ms", ttft_ms))
    assert finished.code == 1
    result = read_result(RunDir(out).result)
    assert result.verdict == result.loadgen_verdict == "INVALID"
    assert any("TTFT" in reason for reason in result.reasons)
    assert not any("TPOT" in reason for reason in result.reasons)
    assert "TTFT" in finished.stdout.partition("why:")[2]
    assert result.disagreements == []


AUDIT_OF_ONE_SAMPLE = """# one sample again and again
*.*.mode = 2
*.*.performance_issue_same = 1
*.*.performance_issue_same_index = 3
*.*.sample_concatenate_permutation = 0
*.*.min_query_count = 64
"""


def test_audit_takes_effect_and_is_not_official(run_main: RunMain, tmp_path: Path) -> None:
    out, audit = tmp_path / "run", tmp_path / "some-name.config"
    audit.write_text(AUDIT_OF_ONE_SAMPLE)
    finished = run_main(*arguments("Offline", out, "--audit-conf", audit))
    assert finished.code == 0, finished.stderr
    run = RunDir(out)
    assert run.audit_config.read_text() == AUDIT_OF_ONE_SAMPLE
    # The index counts in LoadGen's shuffled set, not in the data set.
    assert set(read_requests(run.requests).sample_index.tolist()) == {read_detail(run.detail).get("loaded_qsl_set")[3]}
    manifest = read_manifest(run.manifest)
    assert any("audit" in reason for reason in manifest.unofficial_reasons)
    assert manifest.resolved.audit
    assert read_result(run.result).disagreements == []


def test_stale_audit_config_changes_nothing(run_main: RunMain, tmp_path: Path) -> None:
    stale = tmp_path / "working-directory" / "audit.config"
    stale.write_text(AUDIT_OF_ONE_SAMPLE)
    out = tmp_path / "run"
    finished = run_main(*arguments("Offline", out, "--accuracy"))
    assert finished.code == 0, finished.stderr
    assert "./audit.config is not used" in finished.stdout
    detail = read_detail(RunDir(out).detail)
    assert detail.get("effective_test_mode") == "AccuracyOnly"
    assert detail.get("effective_performance_issue_same") is False
    assert len(read_accuracy_log(RunDir(out).accuracy_log)) == 64
    assert not RunDir(out).audit_config.exists()


@SLOW
def test_reference_flags_with_underscores(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "a_run"
    conf = tmp_path / "my_user.conf"
    conf.write_text(USER_CONF)
    finished = run_main(
        "--scenario=offline", "--engine", "dummy", "--user_conf", conf, f"--output_log_dir={out}", "--accuracy",
        "--total_sample_count", 10, "--batch_size", 16, "--num_workers", 2, "--enable_log_trace",
        "--lg_model_name", "llama3_1-8b-edge",
    )  # fmt: skip
    assert finished.code == 0, finished.stderr
    manifest = read_manifest(RunDir(out).manifest)
    assert manifest.resolved.sample_count == 10
    assert manifest.resolved.loadgen_key == "llama3_1-8b-edge"
    assert manifest.resolved.trace
    assert any("--batch-size 16" in note for note in manifest.notes)


@SLOW
def test_two_legs_at_once(start_main: StartMain, tmp_path: Path) -> None:
    outs = [tmp_path / "one", tmp_path / "two"]
    started = [start_main(*arguments("SingleStream", out)) for out in outs]
    for one, out in zip(started, outs, strict=True):
        finished = one.wait()
        assert finished.code == 0, finished.stdout + finished.stderr
        assert read_result(RunDir(out).result).disagreements == []
    manifests = [read_manifest(RunDir(out).manifest) for out in outs]
    spans: list[Any] = [(manifest.start_time_ns, manifest.end_time_ns) for manifest in manifests]
    assert max(start for start, _ in spans) < min(end for _, end in spans)  # they really ran side by side


def test_a_name_with_odd_characters(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run [red] [" / "1] 'é'"
    out.parent.mkdir()
    finished = run_main(*arguments("Offline", out))
    assert finished.code == 0, finished.stderr
    lines = finished.stdout.splitlines()
    assert lines[0].endswith(f"run directory {out}")
    assert f"written to {out}: " in lines[-1]


@SLOW
def test_a_relative_output_directory(run_main: RunMain, tmp_path: Path) -> None:
    conf = tmp_path / "user.conf"
    conf.write_text(USER_CONF)
    finished = run_main(
        "--scenario", "Offline", "--engine", "dummy", "--user-conf", "../user.conf", "--output-log-dir", "some/run",
        "--dummy-ttft-ms", 250,
    )  # fmt: skip
    assert finished.code == 0, finished.stderr
    assert RunDir(tmp_path / "working-directory" / "some" / "run").result.exists()


@SLOW
def test_numbers_that_disagree_are_a_failure(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    environment = patched(
        tmp_path,
        in_leg="""
        from sut.recorder import Recorder
        append = Recorder.append
        def append_another_sample(self, outcome):
            append(self, (outcome[0], (outcome[1] + 1) % 64, *outcome[2:]))
        Recorder.append = append_another_sample
        """,
    )
    finished = run_main(*arguments("Offline", out), environment=environment)
    assert finished.code == 4
    assert "disagree: sample index at seq 0" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert "VALID" not in finished.stdout
    result = json.loads(RunDir(out).result.read_bytes())
    assert result["verdict"] == "ERROR"
    assert result["disagreements"]  # the details are kept
    manifest = read_manifest(RunDir(out).manifest)
    assert (manifest.status, manifest.exit_code) == ("failed", 4)
