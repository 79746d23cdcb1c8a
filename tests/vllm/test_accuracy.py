"""Accuracy runs with the real vLLM: LoadGen received the honest responses, and the scores are correct."""

import ast
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from rouge_score import rouge_scorer

from qsl.dataset import Dataset
from runs.loadgen.accuracy_log import read_accuracy_log
from tests.support.engines.greedy import GreedyResponse
from tests.vllm.vllm_runs import ACCURACY, RUNS, FinishedVllmRun, VllmRuns, VllmRunSpec, for_each_run

pytestmark = pytest.mark.vllm


def ids_of(data: bytes) -> list[int]:
    ids: list[int] = np.frombuffer(data, "<i4").tolist()
    return ids


Sentences = Callable[[str], list[str]]


@for_each_run(ACCURACY)
def test_an_accuracy_run_has_greedy_responses_and_reference_scores(
    runs: VllmRuns, responses: list[GreedyResponse], dataset: Dataset, sentences: Sentences, tiny_model: Path, name: str
) -> None:
    check_accuracy_run(runs[name], RUNS[name], responses, dataset, sentences, tiny_model)


def check_accuracy_run(
    run: FinishedVllmRun,
    spec: VllmRunSpec,
    responses: list[GreedyResponse],
    dataset: Dataset,
    sentences: Sentences,
    model: Path,
) -> None:
    """Check that LoadGen received greedy responses, and that the scores are those of the reference."""
    entries, requests = read_accuracy_log(run.dir.accuracy_log), run.requests
    assert sorted(entry.qsl_idx for entry in entries) == list(range(spec.samples))
    assert run.result["verdict"] == "DONE"
    assert run.result["counts"]["samples"] == spec.samples
    for entry in entries:
        ids = ids_of(entry.data)
        assert entry.token_count == len(ids) == requests.output_tokens[entry.seq_id]
        assert entry.qsl_idx == requests.sample_index[entry.seq_id]
        assert sha256(entry.data).hexdigest() == requests.output_sha256[entry.seq_id]
        assert responses[entry.qsl_idx].matches(ids), f"sample {entry.qsl_idx}"
        if spec.scenario == "Offline":
            assert entry.token_data is None
        else:
            assert ids_of(entry.token_data or b"") == ids[:1]
    scores = orjson.loads(run.dir.accuracy_json.read_bytes())["scores"]
    assert scores == reference_scores(run, dataset.targets, sentences, model)
    text = run.dir.accuracy_text.read_text()  # as the official checker searches it
    for score in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
        (stated,) = re.findall(rf".*'{score}':\s+'?([\d.]+)'?.*", text)
        assert float(stated) == scores[score]
    (length,) = re.findall(r".*'gen_len':\s([\d.]+).*", text)
    assert int(length) == scores["gen_len"]
    (line,) = [line for line in text.splitlines() if line.startswith("{")]
    assert ast.literal_eval(line)["gen_num"] == spec.samples  # plain numbers, because NumPy's own cannot be parsed


def reference_scores(run: FinishedVllmRun, targets: list[str], sentences: Sentences, model: Path) -> dict[str, Any]:
    """Return the scores of the reference evaluation of LoadGen's log, without code of the harness."""
    from transformers import AutoTokenizer

    log = {entry["qsl_idx"]: entry["data"] for entry in orjson.loads(run.dir.accuracy_log.read_bytes())}
    ids = [np.frombuffer(bytes.fromhex(data), "<i4").tolist() for data in log.values()]
    texts = AutoTokenizer.from_pretrained(str(model)).batch_decode(ids, skip_special_tokens=True)
    predictions = ["\n".join(sentences(text.strip())) for text in texts]
    references = ["\n".join(sentences(targets[index].strip())) for index in log]
    names = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorer = rouge_scorer.RougeScorer(names, use_stemmer=True)
    pairs = zip(references, predictions, strict=True)
    scored = [scorer.score(reference, prediction) for reference, prediction in pairs]
    means = {name: round(float(np.mean([scores[name].fmeasure for scores in scored])) * 100, 4) for name in names}
    return {**means, "gen_len": sum(map(len, predictions)), "gen_num": len(predictions)}
