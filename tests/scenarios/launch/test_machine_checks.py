"""Commands that start an engine: before the start, each one finds the model faults that `doctor` finds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runs.errors import ExitCode, HarnessError, InputError, SetupError
from scenarios.launch import machine_checks
from scenarios.launch.machine_checks import UNWANTED, DoctorRequest, examine_machine
from scenarios.launch.plan import PreparedRun, prepare
from scenarios.launch.run_config import make_config
from sut.vllm import cpu
from sut.vllm.machine import Machine
from sut.vllm.vllm_kind import VllmKind
from tests.conftest import run_here
from tests.support.engines.model_folder import (
    BROKEN,
    INDEX,
    PARTS,
    POINTER,
    config,
    remove_files,
    set_file,
    weights,
)

MakeDataset = Callable[..., Path]


@pytest.fixture(autouse=True)
def plan_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("scenarios.launch.machine_checks", "sut.vllm.machine"):
        monkeypatch.setattr(f"{module}.vllm_is_cpu_build", lambda: True)
        monkeypatch.setattr(f"{module}.accelerators", list)


@pytest.fixture
def plan(small_model: Path, make_dataset: MakeDataset) -> Callable[..., PreparedRun]:
    """Return a function that prepares a run of the small model, and raises its faults."""
    data = make_dataset([1, 2], [1, 3])

    def prepared(**values: Any) -> PreparedRun:
        settings = {"scenario": "Offline", "model_path": str(small_model), "dataset_path": data, **values}
        vllm = None if "engine" in values else VllmKind(lambda: Machine("cpu", 0, [0]))
        return prepare(make_config(settings), lambda _: None, vllm)

    return prepared


def found_by_doctor(model: Path) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for finding in examine_machine(DoctorRequest(model_path=str(model))):
        if finding.severity == "error":
            texts.setdefault(finding.rule, []).append(finding.text)
    return texts


@pytest.mark.parametrize("name", BROKEN)
def test_a_run_refuses_each_fault_that_doctor_reports(
    name: str, small_model: Path, plan: Callable[..., PreparedRun]
) -> None:
    change, words = BROKEN[name]
    change(small_model)
    with pytest.raises(InputError) as refused:
        plan()
    assert refused.value.cause == "machine/model"
    assert words in refused.value.message
    texts = found_by_doctor(small_model)["machine/model"]
    assert refused.value.message == "; ".join(text.rpartition(f"; {fix_of(text, refused.value)}")[0] for text in texts)


def fix_of(text: str, error: HarnessError) -> str:
    return next(fix for fix in error.fix.split("; ") if text.endswith(fix))


def test_all_faults_of_a_model_are_named_at_once(small_model: Path, plan: Callable[..., PreparedRun]) -> None:
    set_file("tokenizer.json", POINTER)(small_model)
    remove_files(PARTS[1])(small_model)
    set_file("generation_config.json", {"eos_token_id": 4000})(small_model)
    with pytest.raises(InputError) as refused:
        plan()
    for words in (
        "tokenizer.json is not a tokenizer: it is a git-lfs pointer",
        f"missing files: {PARTS[1]}",
        "eos_token_id 4000",
    ):
        assert words in refused.value.message
    assert "git lfs pull" in refused.value.fix


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: None,
        remove_files(INDEX),  # vLLM loads all parts
        remove_files("generation_config.json"),
        remove_files("tokenizer_config.json"),
        set_file("training_args.bin", POINTER),
        set_file("tokenizer_config.json", {"model_max_length": int(1e30)}),  # as transformers writes it
    ],
)
def test_valid_model_folders_are_accepted(
    change: Callable[[Path], None],
    small_model: Path,
    plan: Callable[..., PreparedRun],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine_checks, "load_tokenizer", lambda name: None)  # it may import transformers
    change(small_model)
    plan()
    assert "machine/model" not in found_by_doctor(small_model)


def test_an_unused_padding_token_may_be_outside_the_vocabulary(
    small_model: Path, plan: Callable[..., PreparedRun]
) -> None:
    content = json.loads((small_model / "tokenizer.json").read_text())
    content["added_tokens"].append({**content["added_tokens"][0], "id": 258, "content": "<pad>"})
    set_file("tokenizer.json", content)(small_model)
    set_file("config.json", config(vocab_size=258))(small_model)
    set_file(PARTS[0], weights("model.embed_tokens.weight", rows=258))(small_model)
    plan()


@pytest.mark.parametrize(
    ("values", "lacking"),
    [
        ({"engine_arg": {"load_format": "dummy"}}, (*PARTS, INDEX)),
        ({"engine_arg": {"skip_tokenizer_init": True}}, ("tokenizer.json", "tokenizer_config.json")),
        ({"engine": "dummy"}, (*PARTS, INDEX, "tokenizer.json")),
    ],
)
def test_files_that_are_not_read_may_be_missing(
    values: dict[str, Any], lacking: tuple[str, ...], small_model: Path, plan: Callable[..., PreparedRun]
) -> None:
    remove_files(*lacking)(small_model)
    plan(**values)
    with pytest.raises(InputError, match=r"missing files|no tokenizer|no weights"):
        plan()


def test_an_accuracy_run_requires_a_tokenizer_with_each_engine(
    small_model: Path, plan: Callable[..., PreparedRun]
) -> None:
    set_file("tokenizer.json", POINTER)(small_model)
    plan(engine="dummy")
    with pytest.raises(InputError, match="git-lfs pointer"):
        plan(engine="dummy", accuracy=True)


AVX2, AVX512, AMX = frozenset({"avx2"}), frozenset({"avx2", "avx512f"}), frozenset({"avx512f", "amx_tile"})


def test_unsupported_data_types_in_options_are_refused(
    plan: Callable[..., PreparedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**arguments: str) -> str:
        with pytest.raises(SetupError, match=r"vLLM's CPU build") as error:
            plan(engine_arg=arguments)
        assert (error.value.cause, error.value.exit_code) == ("machine/vLLM", ExitCode.REFUSED)
        return error.value.message

    monkeypatch.setattr(cpu, "instructions", lambda: AVX2)
    plan()
    assert "fp8_e4m3: " in refused(kv_cache_dtype="fp8_e4m3")
    monkeypatch.setattr(cpu, "instructions", lambda: AVX512)
    plan(engine_arg={"kv_cache_dtype": "fp8_e4m3"})
    assert "quantization=fp8: " in refused(quantization="fp8")


def test_an_unsupported_fp8_cache_in_the_model_configuration_is_refused(
    small_model: Path, plan: Callable[..., PreparedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    quantization = {**by_group("channel"), "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    set_file("config.json", config(quantization_config=quantization))(small_model)
    monkeypatch.setattr(cpu, "instructions", lambda: AVX2)
    with pytest.raises(SetupError, match=r"FP8 cache of config\.json") as refused:
        plan()
    assert refused.value.cause == "machine/model"
    plan(engine_arg={"kv_cache_dtype": "bfloat16"})


def by_group(strategy: str, kind: str = "float", bits: int = 8) -> dict[str, Any]:
    scheme = {"num_bits": bits, "type": kind, "strategy": strategy}
    group = {"weights": scheme, "input_activations": {"num_bits": 8, "type": kind}}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


@pytest.mark.parametrize(
    ("quantization", "refused_on", "dtype"),
    [
        ({"quant_method": "fp8"}, AMX, None),
        (by_group("tensor"), AMX, None),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, AVX512, "bfloat16"),
        (by_group("block"), AVX512, "float32"),
        ({"quant_method": "awq", "bits": 4}, AVX2, "bfloat16"),
        ({"quant_method": "gptq", "bits": 8}, AMX, None),
        (by_group("channel"), None, "float32"),
        (by_group("tensor", "int"), None, "float32"),
    ],
)
def test_unsupported_data_types_of_weights_are_refused(
    quantization: dict[str, Any],
    refused_on: frozenset[str] | None,
    dtype: str | None,
    small_model: Path,
    plan: Callable[..., PreparedRun],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_file("config.json", config(quantization_config=quantization))(small_model)
    if dtype is not None:
        monkeypatch.setattr(cpu, "instructions", lambda: AMX if refused_on else AVX2)
        assert plan().plan.engine_options["dtype"] == dtype
    if refused_on is None:
        return
    monkeypatch.setattr(cpu, "instructions", lambda: refused_on)
    with pytest.raises(SetupError, match=r"weights in .*: vLLM's CPU build ") as refused:
        plan()
    assert refused.value.cause == "machine/model"
    assert refused.value.message in found_by_doctor(small_model)["machine/model"][0]


@pytest.mark.parametrize("command", ["run", "audit", "tune", "campaign"])
def test_each_command_that_starts_an_engine_refuses_a_damaged_model(
    command: str, small_model: Path, make_dataset: MakeDataset, tmp_path: Path
) -> None:
    set_file("tokenizer.json", POINTER)(small_model)
    data = make_dataset([1, 2], [1, 3])
    out = tmp_path / "out"
    places = ("--model-path", small_model, "--dataset-path", data, "--output-log-dir", out)
    if command == "campaign":
        campaign = {"benchmark": "llama3.1-8b", "scenarios": ["Offline"]}
        (tmp_path / "campaign.yaml").write_text(json.dumps(campaign))
        done = run_here(command, "--config", tmp_path / "campaign.yaml", *places, "--dry-run", "--json")
    else:
        test = ("--test", "TEST06") if command == "audit" else ()
        done = run_here(command, "--scenario", "Server", "--vllm", *test, *places, "--dry-run", "--json")
    assert done.code == ExitCode.BAD_INPUT, done.stderr
    assert json.loads(done.stdout)["error"]["cause"] == "machine/model"
    assert "rule: machine/model" in done.stderr
    assert not out.exists()


def test_a_link_to_a_missing_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to("model")
    with pytest.raises(InputError, match="the target of the link is not a folder"):
        machine_checks.check_model(str(tmp_path / "model"), ())


@pytest.mark.parametrize(
    ("missing", "present", "rule"),
    [("mlperf_loadgen", "", "LoadGen"), ("vllm", "", "vLLM"), ("", "torchvision", "package")],
)
def test_missing_packages_are_refused(
    missing: str, present: str, rule: str, plan: Callable[..., PreparedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {missing, *UNWANTED} - {present}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in gone else name)
    with pytest.raises(SetupError) as refused:
        plan()
    assert refused.value.cause == f"machine/{rule}"
