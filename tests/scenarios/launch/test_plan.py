"""From a configuration to a run: resolved values, refusals before the start, and reasons against eligibility."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runs.benchmark import SCENARIOS
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError, SetupError
from runs.loadgen.conf_lines import encode_conf
from runs.record.manifest import AdmissionPlan
from scenarios.launch.plan import PreparedRun, prepare
from scenarios.launch.run_config import make_config
from tests.conftest import Finished, run_here

MakeDataset = Callable[..., Path]


def prepared(**values: Any) -> PreparedRun:
    """Prepare a run of the dummy engine, by default in the Offline scenario."""
    return prepare(make_config({"scenario": "Offline", "engine": "dummy", **values}), lambda text: None)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


# Defaults -----------------------------------------------------------------------------------------------------------


def test_the_bundled_dataset_has_trial_settings() -> None:
    run = prepared()
    assert run.bundled
    assert run.plan.sample_count == 64
    assert run.plan.mode == "performance"
    assert run.plan.replicas is None
    assert prepared(replicas="auto").plan.replicas is None  # one engine stays in the process of the run
    assert run.plan.dataset_sha256 == run.dataset.sha256
    assert any("configs/trial.conf" in note for note in run.notes)
    assert any("configs/embedded.conf" in note for note in prepared(target_qps=2.0).notes)
    assert not run.plan.audit
    assert run.audit_config is None


def test_a_dataset_of_the_user_has_settings_of_its_own(make_dataset: MakeDataset) -> None:
    run = prepared(dataset_path=make_dataset([1, 2, 3], [1, 2, 4, 5]))
    assert any(note.endswith("/configs/own-data.conf") for note in run.notes)
    assert run.plan.sample_count == 2
    assert run.plan.longest_prompt_tokens == 4
    assert run.plan.engine_options["lead_tokens"] == 2


def test_the_default_output_directory_names_scenario_and_mode() -> None:
    root = prepared(scenario="server", accuracy=True).run_dir.root
    assert root.parent == Path("output")
    assert root.name.endswith("-Server-accuracy")
    assert not root.exists()  # the start of the run writes the first file


def test_target_qps_replaces_the_rate_of_user_conf(write: Callable[[str, str], Path]) -> None:
    conf = write("user.conf", "*.Server.target_qps = 3\n*.Server.min_duration = 5\n")
    run = prepared(scenario="Server", user_conf=conf, target_qps=0.125)
    assert run.user_conf == "*.Server.min_duration = 5\nllama3_1-8b.Server.target_qps = 0.125\n"
    assert prepared(scenario="Server", user_conf=conf, target_qps=20).user_conf.endswith("target_qps = 20\n")
    assert prepared(scenario="Server", user_conf=conf).user_conf == conf.read_text()


def test_flags_without_effect_are_noted() -> None:
    notes = prepared(batch_size=16, num_workers=4).notes
    assert any(note.startswith("--batch-size 16 is ignored") for note in notes)
    assert any(note.startswith("--num-workers 4 is ignored") for note in notes)


def test_max_new_tokens_sets_the_sampling_limit() -> None:
    def unofficial(**values: Any) -> bool:
        return any("sampling differs" in reason for reason in prepared(**values).unofficial_reasons)

    assert prepared(max_new_tokens=64).plan.sampling.max_tokens == 64
    assert unofficial(max_new_tokens=64)
    assert not unofficial(max_new_tokens=128, sampling_arg={"max_tokens": 128})


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("kv_quantization/fp8", "closest: kv_quantization/fp8_e4m3"),
        ("kv_quant/fp8_e4m3", "closest: kv_quantization/fp8_e4m3"),
        ("nonsense", "technique: nonsense/none, "),
        ("baseline/x", "mechanism_variant: x, "),
        ({"mechanism": "kv_quantization", "mechanism_variant": "fp8_e4m3", "quality_eval_id": "x"}, "quality_eval_id"),
    ],
)
def test_an_unregistered_technique_is_noted_at_the_start(declared: object, words: str) -> None:
    (hint,) = prepared(mechanism=declared).hints
    assert words in hint
    assert "\n" not in hint


def test_a_registered_technique_is_not_noted() -> None:
    assert prepared(mechanism="kv_quantization/fp8_e4m3").hints == []


def test_admission_limits_are_in_the_plan() -> None:
    assert prepared(scenario="Interactive").plan.admission is None
    plan = prepared(scenario="Interactive", admission="deadline", admission_tokens=512, admission_queries=28).plan
    assert plan.admission == AdmissionPlan(policy="deadline", prefill_tokens=512, queries=28)


def test_a_closed_loop_is_not_eligible_and_reports_first_tokens() -> None:
    without, run = prepared(), prepared(concurrency=3)
    assert (without.plan.concurrency, without.plan.reports_first_tokens) == (None, False)
    assert (run.plan.concurrency, run.plan.reports_first_tokens) == (3, True)
    assert [reason for reason in run.unofficial_reasons if reason not in without.unofficial_reasons] == [
        "closed loop: the harness keeps at most 3 queries open (--concurrency)"
    ]


# Refused ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"vllm": True}, "--vllm and --engine dummy contradict"),
        ({"engine_arg": {"max_num_seqs": 4}}, "the dummy engine takes no --engine-arg max_num_seqs"),
        ({"dtype": "half"}, "the dummy engine takes no"),
        ({"tensor_parallel_size": 2}, "the dummy engine takes no"),
        ({"lg_model_name": "llama3_1-8b-interactive"}, "only Interactive may use the key"),
        ({"scenario": "Interactive", "lg_model_name": "llama3_1-8b"}, "only Interactive may use the key"),
        ({"scenario": "SingleStream", "target_qps": 2}, "--target-qps: no effect in SingleStream"),
        ({"dummy_fault": ["explode"]}, "--dummy-fault explode: "),
        ({"dummy_fault": ["die@x"]}, "'x' is not a whole number"),
        ({"engine": "vllm", "dummy_fault": ["die"]}, "the vllm engine takes no --dummy-fault"),
        ({"sampling_arg": {"beam": 2}}, "--sampling-arg beam: unknown"),
        ({"sampling_arg": {"top_k": 1.5}}, "--sampling-arg top_k=1.5: "),
        ({"sampling_arg": {"temperature": "hot"}}, "--sampling-arg temperature='hot'"),
        ({"sampling_arg": {"seed": True}}, "--sampling-arg seed=True"),
        ({"sampling_arg": {"min_tokens": 9, "max_tokens": 8}}, "min_tokens 9 and max_tokens 8 exclude"),
        (
            {"sampling_arg": {"max_tokens": 8}, "max_new_tokens": 9},
            "--max-new-tokens 9 and --sampling-arg max_tokens=8",
        ),
        ({"engine": "dummy", "device": "cuda"}, "the dummy engine takes no --device"),
        ({"sampling_arg": {"max_tokens": 1}, "scenario": "Server"}, "max_tokens=1: "),
        ({"admission": "fcfs"}, "--admission fcfs: "),
        ({"scenario": "Server", "admission_tokens": 64}, "--admission-tokens 64: no effect"),
        ({"scenario": "Server", "admission_queries": 8}, "--admission-queries 8: no effect"),
        ({"scenario": "Server", "admission": "priority"}, "engine dummy does not support priorities"),
        ({"scenario": "SingleStream", "admission": "fcfs"}, "SingleStream has no first-token limit"),
        ({"admission_tokens": 64}, "--admission-tokens 64: "),
        ({"scenario": "Server", "concurrency": 8}, "--concurrency 8: "),
        ({"scenario": "SingleStream", "concurrency": 1}, "only Offline has a closed loop"),
        ({"model_path": "./no/such/model"}, "--model-path ./no/such/model: "),
        ({"dataset_path": Path("none.json")}, "none.json"),
        ({"user_conf": Path("none.conf")}, "--user-conf none.conf"),
        ({"audit_conf": Path("none.config")}, "--audit-conf none.config"),
    ],
)
def test_contradicting_options_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        prepared(**values)
    assert words in refused.value.message
    assert refused.value.fix


def test_all_contradictions_of_a_run_are_reported_together(make_dataset: MakeDataset) -> None:
    values = {"vllm": True, "device": "cpu", "concurrency": 3, "admission_queries": 3, "max_new_tokens": 1}
    with pytest.raises(InputError) as refused:
        prepared(scenario="Server", sampling_arg={"top": 1}, dataset_path=Path("absent"), model_path="absent", **values)
    options = ("--vllm", "--device", "--concurrency 3", "--admission-queries 3", "--sampling-arg top", "absent")
    assert all(option in str(refused.value) for option in (*options, "--sampling-arg max_tokens=1"))


def test_a_relative_model_path_is_made_absolute(
    small_model: Path, make_dataset: MakeDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine starts in the run directory."""
    monkeypatch.chdir(small_model.parent)
    plan = prepared(model_path=small_model.name, dataset_path=make_dataset([1, 2])).plan
    assert plan.model_path == str(small_model)


def test_ids_outside_the_vocabulary_are_refused(small_model: Path, make_dataset: MakeDataset) -> None:
    prepared(model_path=str(small_model), dataset_path=make_dataset([1, 299]))
    with pytest.raises(InputError, match=r"row 1.*ID 300"):
        prepared(model_path=str(small_model), dataset_path=make_dataset([1, 2], [1, 300]))


def test_ids_that_cannot_be_scored_are_refused_for_accuracy_runs(make_dataset: MakeDataset) -> None:
    path = make_dataset([1, 2], [1, 128_000])
    prepared(dataset_path=path)
    with pytest.raises(InputError, match="128000"):
        prepared(dataset_path=path, accuracy=True)


def test_prompts_longer_than_the_context_are_refused(small_model: Path, make_dataset: MakeDataset) -> None:
    prepared(model_path=str(small_model), dataset_path=make_dataset([1] * 72))
    with pytest.raises(InputError, match=r"73 tokens, .* at most 72 tokens"):
        prepared(model_path=str(small_model), dataset_path=make_dataset([1] * 73))
    with pytest.raises(InputError, match="at most 22 tokens"):
        prepared(
            engine="vllm",
            model_path=str(small_model),
            dataset_path=make_dataset([1] * 72),
            engine_arg={"max_model_len": 150},
        )


@pytest.mark.parametrize("conf", ["*.Offline.mode = 1", "*.*.use_token_latencies = 0"])
def test_user_conf_settings_that_change_the_mode_are_refused(conf: str, write: Callable[[str, str], Path]) -> None:
    with pytest.raises(InputError, match=r"user\.conf:1: ") as refused:
        prepared(user_conf=write("user.conf", conf))
    assert conf.split()[0].split(".")[2].removeprefix("*") in refused.value.message


# The rate, for which LoadGen's default is not accepted ----------------------------------------------------------------

NEEDED = {
    "Offline": "target_qps",
    "Server": "target_qps",
    "Interactive": "target_qps",
    "SingleStream": "target_latency",
}
DURATION = "*.*.min_duration = 600000\n"


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(
    "text", ["", "# nothing\n", DURATION, "llama2-70b.*.target_qps = 40\n*.MultiStream.mode = 2\n"]
)
def test_a_run_without_a_rate_is_refused(scenario: str, text: str, write: Callable[[str, str], Path]) -> None:
    with pytest.raises(InputError, match=rf"user\.conf: no line sets {NEEDED[scenario]} for llama3_1-8b") as refused:
        prepared(scenario=scenario, user_conf=write("user.conf", text))
    # The line of the message is the missing one.
    line = refused.value.fix.split("`")[1]
    assert prepared(scenario=scenario, user_conf=write("user.conf", f"{text}{line}\n")).plan.scenario == scenario


def test_a_line_for_another_benchmark_key_is_named(write: Callable[[str, str], Path]) -> None:
    conf = write("user.conf", "llama3_1-8b.Server.target_qps = 40\n")
    with pytest.raises(
        InputError, match=r"for llama3_1-8b-interactive in Server .line 1 is for llama3_1-8b.;"
    ) as refused:
        prepared(scenario="Interactive", user_conf=conf)
    assert "`llama3_1-8b-interactive.Server.target_qps = 40`" in refused.value.fix


def test_an_invalid_line_is_not_also_reported_as_missing(write: Callable[[str, str], Path]) -> None:
    with pytest.raises(InputError) as refused:
        prepared(scenario="Server", user_conf=write("user.conf", "llama3.1-8b.Server.target_qps = 40\n"))
    assert "no line sets" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "text", "audit"),
    [
        ({"scenario": "Server", "target_qps": 2}, "", ""),
        ({"scenario": "Interactive", "target_qps": 2}, "", ""),
        ({"scenario": "Offline", "target_qps": 2}, "", ""),
        # The rate fills the duration, and an accuracy run has none.
        ({"scenario": "Offline", "accuracy": True}, "", ""),
        ({"scenario": "SingleStream", "accuracy": True}, "", ""),
        ({"scenario": "Offline"}, "*.*.min_duration = 0\n", ""),
        ({"scenario": "SingleStream"}, "", "*.*.min_duration = 0\n"),
        ({"scenario": "Server"}, "", "*.*.target_qps = 3\n"),
        ({"scenario": "Offline"}, "", "*.*.performance_issue_unique = 1\n*.*.performance_sample_count_override = 64\n"),
    ],
)
def test_a_rate_may_be_missing_if_it_has_no_effect(
    values: dict[str, Any], text: str, audit: str, write: Callable[[str, str], Path]
) -> None:
    if audit:
        values = {**values, "audit_conf": write("audit.config", audit)}
    assert prepared(**values, user_conf=write("user.conf", text)).plan.scenario == values["scenario"]


@pytest.mark.parametrize(
    ("scenario", "duration", "refused"),
    [("Server", 5, True), ("Offline", 0, True), ("Offline", 5, False), ("SingleStream", 5, False)],
)
@pytest.mark.parametrize("audit", [False, True])
def test_a_run_without_queries_is_refused(
    scenario: str, duration: int, refused: bool, audit: bool, write: Callable[[str, str], Path]
) -> None:
    text = f"*.*.target_qps = 1\n*.*.target_latency = 9\n*.*.min_duration = {duration}\n"
    count = "*.*.min_query_count = 0\n"
    confs = {"user_conf": write("user.conf", text if audit else f"{text}{count}")}
    if audit:
        confs["audit_conf"] = write("audit.config", count)
    if not refused:
        assert prepared(scenario=scenario, **confs).plan.scenario == scenario
        return
    with pytest.raises(InputError, match=r"(user.conf:4|audit.config:1): min_query_count = 0: LoadGen would crash"):
        prepared(scenario=scenario, **confs)


def test_a_server_accuracy_run_requires_a_rate(write: Callable[[str, str], Path]) -> None:
    with pytest.raises(InputError, match="no line sets target_qps"):
        prepared(scenario="Server", accuracy=True, user_conf=write("user.conf", DURATION))


def test_lines_without_effect_are_noted_and_the_file_is_kept_unchanged(tmp_path: Path) -> None:
    content = b"# r\xe9glage\r\nbert.*.mode = 2\r\n*.Server.target_qps = 2\r\n"
    (tmp_path / "user.conf").write_bytes(content)
    run = prepared(scenario="Server", user_conf=tmp_path / "user.conf")
    assert [hint for hint in run.hints if "line 2 (for another benchmark, bert)" in hint]
    assert encode_conf(run.user_conf) == content
    run = prepared(scenario="Server", target_qps=3, user_conf=tmp_path / "user.conf")
    assert encode_conf(run.user_conf).startswith(content[: content.index(b"*")])


# Values that crash LoadGen
# -------------------------------------------------------------------------------------


SAME, UNIQUE, COUNTED = "performance_issue_same_index", "performance_issue_unique", "accuracy_sample_count_override"
UNIQUE_OF = f"{UNIQUE} = 1\n*.*.performance_sample_count_override"


@pytest.mark.parametrize(
    ("line", "more", "problem", "fix"),
    [
        *[(f"{SAME} = 63", {"scenario": scenario}, "", "") for scenario in SCENARIOS],
        *[
            (f"{SAME} = 64", {"scenario": scenario}, f"{SAME} 64 is outside the 64 loaded", "")
            for scenario in SCENARIOS
        ],
        (f"{SAME} = 64\n*.*.performance_issue_same = 0", {}, "", ""),
        (f"{SAME} = 8\n*.*.performance_sample_count_override = 8", {}, "is outside the 8 loaded", "0 to 7"),
        (f"{SAME} = 0\n*.*.{UNIQUE} = 1", {}, "exclude each other", "remove one"),
        (f"{UNIQUE} = 0", {}, "", ""),
        (f"{UNIQUE_OF} = 64", {}, "", ""),
        (f"{UNIQUE_OF} = 65", {}, UNIQUE, "performance_sample_count_override = 64"),
        (f"{UNIQUE} = 1", {}, UNIQUE, "performance_sample_count_override = 64"),
        (f"{UNIQUE} = 1", {"scenario": "Server"}, "", ""),
        *[(f"{COUNTED} = {harmless}", {"accuracy": True}, "", "") for harmless in (0, 64, 65)],
        (f"{COUNTED} = 63", {"accuracy": True}, f"{COUNTED} 63 is below the 64 samples", "--total-sample-count 63"),
        (f"{COUNTED} = 63", {"accuracy": True, "total_sample_count": 63}, "", ""),
        (f"{COUNTED} = 63", {}, "", ""),  # no effect in a performance run
    ],
)
@pytest.mark.parametrize("option", ["audit_conf", "user_conf"])
def test_sample_settings_that_loadgen_cannot_issue_are_refused(
    option: str, line: str, more: dict[str, Any], problem: str, fix: str, write: Callable[[str, str], Path]
) -> None:
    same = "*.*.performance_issue_same = 1\n" if SAME in line else ""
    rate = "*.*.target_qps = 1\n*.*.target_latency = 100\n"
    values = {**more, option: write("a", f"{same if 'same = 0' not in line else ''}{rate}*.*.{line}\n")}
    if not problem:
        assert prepared(**values).plan.audit == (option == "audit_conf")
        return
    with pytest.raises(SetupError, match=problem) as refused:
        prepared(**values)
    assert fix in refused.value.fix


def test_audit_config_and_user_conf_are_checked_together(write: Callable[[str, str], Path]) -> None:
    user = write("user.conf", "*.*.performance_sample_count_override = 64\n*.Offline.target_qps = 1\n")
    prepared(user_conf=user, audit_conf=write("audit.config", "*.*.performance_issue_unique = 1\n"))


@pytest.mark.parametrize(
    ("text", "accuracy", "words"),
    [
        ("*.*.mode = 2\n", True, "audit.config:1: mode = 2: this run has mode 1 (accuracy)"),
        ("*.*.mode = 1\n", False, "audit.config:1: mode = 1: this run has mode 2 (performance)"),
        ("*.*.mode = 99\n", False, "audit.config:1: mode = 99"),
        ("# nothing\n", False, "no line applies to Offline"),
        ("*.Server.performance_issue_same = 1\n", False, "no line applies to Offline"),
        ("# audit\nllama3_1-8b.*.min_query_count = 5\n", False, "audit.config:2: llama3_1-8b.*.min_query_count = 5"),
        ("*.*.use_token_latencies = 0\n", False, "this benchmark requires 1"),
        ("*.*.note = hello\n", False, "no key 'note'"),
        ("*.*.min_query_count = hello\n", False, "min_query_count = hello"),
    ],
)
def test_an_audit_config_without_effect_is_refused(
    text: str, accuracy: bool, words: str, write: Callable[[str, str], Path]
) -> None:
    with pytest.raises(InputError) as refused:
        prepared(accuracy=accuracy, audit_conf=write("audit.config", text))
    assert words in refused.value.message
    assert refused.value.message.count("audit.config:") <= 1


# Output directory -----------------------------------------------------------------------------------------------------


def start(out: Path) -> Finished:
    return run_here("--scenario", "Offline", "--engine", "dummy", "--output-log-dir", out)


@pytest.mark.parametrize("name", ["manifest.json", "mlperf_log_detail.txt", "mlperf_log_summary.txt"])
def test_a_directory_with_a_run_is_refused_and_unchanged(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("another run's")
    refused = start(tmp_path)
    assert (refused.code, name in refused.stderr) == (3, True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "another run's")]


@pytest.mark.parametrize("below", ["", "/run", "/a/b"])
def test_an_output_directory_below_a_file_is_refused(below: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("content")
    refused = start(Path(f"{file}{below}"))
    assert (refused.code, f"error: {file}{below} cannot be created" in refused.stderr) == (3, True)
    assert file.read_text() == "content"


def test_too_little_disk_space_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[Path] = []
    free = 70 << 20

    def disk_usage(path: Path) -> SimpleNamespace:
        paths.append(path)
        return SimpleNamespace(free=free)

    monkeypatch.setattr("scenarios.launch.plan.shutil.disk_usage", disk_usage)
    out = tmp_path / "not" / "yet" / "there"
    prepared(output_log_dir=out)
    free = 10 << 20
    with pytest.raises(SetupError, match="10 MiB free") as refused:
        prepared(output_log_dir=out)
    assert paths == [tmp_path.resolve()] * 2
    assert "--output-log-dir" in refused.value.fix


# Runs that are not eligible for submission
# -----------------------------------------------------------------------------------------------


def test_reasons_against_eligibility_come_from_each_part(
    small_model: Path, make_dataset: MakeDataset, write: Callable[[str, str], Path]
) -> None:
    run = prepared(
        model_path=str(small_model),
        dataset_path=make_dataset([1, 2], [3, 4]),
        sampling_arg={"temperature": 0.5},
        user_conf=write("user.conf", "*.*.min_duration = 599999\n*.*.target_qps = 1\n"),
        audit_conf=write("audit.config", "*.*.min_query_count = 1\n"),
    )
    for words in ("dummy engine", "sampling differs", "2 samples instead of the 13,368", "not Llama-3.1-8B",
                  "min_duration 599,999", "audit"):  # fmt: skip
        assert any(words in reason for reason in run.unofficial_reasons), words


def test_an_unused_audit_config_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not any("audit.config" in note for note in prepared().notes)
    (tmp_path / "audit.config").write_text("*.*.min_query_count = 1\n")
    run = prepared()
    assert any("./audit.config is ignored" in note for note in run.notes)
    assert run.audit_config is None
    assert prepared(audit_conf=tmp_path / "audit.config").plan.audit


def test_each_benchmark_has_a_plan() -> None:
    for key, benchmark in BENCHMARKS.items():
        for scenario in benchmark.scenarios:
            run = prepared(scenario=scenario, lg_model_name=key)
            assert run.benchmark is benchmark
            assert not any("has no" in reason for reason in run.unofficial_reasons)
    assert any("has no Server" in reason for reason in
               prepared(scenario="Server", lg_model_name="llama3_1-8b-edge").unofficial_reasons)  # fmt: skip
