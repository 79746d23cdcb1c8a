"""The second benchmark with the real vLLM on a tiny Llama: long outputs, and its metric."""

import ast
from pathlib import Path

import pytest

from qsl.dataset import load_dataset
from runs.errors import ExitCode
from runs.loadgen.accuracy_log import read_accuracy_log
from runs.record.manifest import read_manifest
from tests.support.files.nltk_data import nltk_sentences
from tests.support.runs import orca
from tests.vllm.test_accuracy import reference_scores
from tests.vllm.vllm_runs import FinishedVllmRun, execute_run, run_command

pytestmark = pytest.mark.vllm

SAMPLES = 16
CONF = "*.Server.min_duration = 500\n*.Server.target_qps = 20\n*.Server.min_query_count = 1\n"


@pytest.fixture(scope="module")
def run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> FinishedVllmRun:
    folder = tmp_path_factory.mktemp("llama2-70b")
    dataset = orca.prepare(folder, tiny_model, SAMPLES)
    arguments = [
        "--scenario", "Server", "--accuracy", "--lg-model-name", "llama2-70b", "--dataset-path", str(dataset),
    ]  # fmt: skip
    return execute_run(run_command(tiny_model, folder / "run", CONF, arguments), folder / "run")


def test_responses_may_have_1024_tokens(run: FinishedVllmRun) -> None:
    assert run.exit_code == ExitCode.OK, str(run)
    assert run.manifest["plan"]["loadgen_key"] == "llama2-70b"
    entries = read_accuracy_log(run.dir.accuracy_log)
    lengths = [len(entry.data) // 4 for entry in entries]
    assert len(lengths) == SAMPLES
    assert 128 < max(lengths) <= 1024
    assert lengths == [entry.token_count for entry in entries]
    assert [entry.token_data for entry in entries] == [entry.data[:4] for entry in entries]  # the first token, at once


def test_scores_equal_those_of_the_reference_evaluation(run: FinishedVllmRun, tmp_path: Path) -> None:
    """The test executes the steps of [mlcommons/inference language/llama2-70b/evaluate-accuracy.py] in sequence."""
    plan = read_manifest(run.dir.manifest).plan
    with nltk_sentences(tmp_path) as split:
        expected = reference_scores(run, load_dataset(plan.dataset_path).targets, split, Path(plan.model_path))
    tokens = sum(len(entry.data) // 4 for entry in read_accuracy_log(run.dir.accuracy_log))
    expected |= {"gen_tok_len": tokens, "tokens_per_sample": round(tokens / SAMPLES, 1)}
    written = ast.literal_eval(run.dir.accuracy_text.read_text().split("\n\n")[1])
    assert written == pytest.approx(expected, abs=1e-4)
