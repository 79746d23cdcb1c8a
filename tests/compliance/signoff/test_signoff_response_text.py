"""Rule C-1 on response IDs and their text, with responses that are changed equally in all files of all runs."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import orjson
import pytest

from compliance.accuracy.scores import decode_ids, score_texts
from compliance.results.scoring import ScoreSources
from compliance.signoff.claim import Claim
from compliance.signoff.coherence import printable_share
from compliance.signoff.evidence import load
from compliance.signoff.judge import sign_off
from qsl.dataset import load_dataset
from qsl.tokenizers import ByteTokenizer
from runs.loadgen.accuracy_log import read_accuracy_log
from runs.record.layout import RunDir
from tests.support.files.editing import change_responses, reseal
from tests.support.runs.signoff_fixtures import FrozenRuns, slugs

RUNS = ("off-1", "off-2", "off-acc")
BLANK, MODEL_SIZE = ord(" "), ByteTokenizer.vocab_size
Ids = np.ndarray


class Forge(Protocol):
    def __call__(self, edit: Callable[[Ids], Ids], names: Sequence[str] = RUNS) -> list[Path]: ...


@pytest.fixture
def forge_responses(runs: FrozenRuns, tmp_path: Path) -> Forge:
    """Return a function that copies runs with edited responses: logs, records, scores and hashes agree."""

    def forge(edit: Callable[[Ids], Ids], names: Sequence[str] = RUNS) -> list[Path]:
        copies = [RunDir(runs.copy(tmp_path / name, name)) for name in names]
        new = {}
        for entry in orjson.loads(copies[-1].accuracy_log.read_bytes()):
            old = bytes.fromhex(entry["data"])
            new[hashlib.sha256(old).hexdigest()] = edit(np.frombuffer(old, "<i4").copy()).astype("<i4").tobytes()
        for run in copies:
            change_responses(run, lambda digest, _: new[digest])
        _score_again(copies[-1])
        for run in copies:
            reseal(run)
        return [run.root for run in copies]

    return forge


def _score_again(run: RunDir) -> None:
    """Recompute the scores of the edited responses, if they can be decoded."""
    responses = {
        entry.qsl_idx: decode_ids(entry.data, entry.token_count) for entry in read_accuracy_log(run.accuracy_log)
    }
    if max(int(ids.max()) for ids in responses.values()) >= MODEL_SIZE:
        return
    dataset = load_dataset(Path(json.loads(run.manifest.read_bytes())["plan"]["dataset_path"]))
    texts = ByteTokenizer().batch_decode([responses[index] for index in sorted(responses)])
    scores = score_texts(texts, [dataset.targets[index] for index in sorted(responses)], workers=1)
    stated = {name: str(value) if name.startswith("rouge") else value for name, value in scores.items()}
    run.accuracy_text.write_text(f"Results\n\n{stated}\n")


def last_id(value: int) -> Callable[[Ids], Ids]:
    def edit(ids: Ids) -> Ids:
        ids[-1] = value
        return ids

    return edit


@pytest.mark.parametrize(
    ("edit", "failed"),
    [
        (lambda ids: ids, set()),
        # ROUGE compares words alone, and these are the words of the article.
        (lambda ids: np.where(ids == BLANK, 1, ids), {"not_text"}),
        (last_id(MODEL_SIZE - 1), set()),
    ],
    ids=["not changed", "characters that cannot be printed", "the model's last ID"],
)
def test_responses_that_are_not_text_fail(forge_responses: Forge, edit: Callable[[Ids], Ids], failed: set[str]) -> None:
    assert slugs(sign_off("baseline", forge_responses(edit))) & {"ids_outside_vocabulary", "not_text"} == failed


@pytest.mark.parametrize("strange", [MODEL_SIZE, 2**31 - 1])
def test_one_id_outside_the_vocabulary_fails(forge_responses: Forge, strange: int) -> None:
    first = []

    def edit(ids: Ids) -> Ids:
        if not first:
            first.append(ids[-1])
            ids[-1] = strange
        return ids

    verdict = sign_off("baseline", forge_responses(edit))
    assert slugs(verdict) == {"ids_outside_vocabulary"}
    (reason,) = [finding for finding in verdict.all_findings if finding.slug == "ids_outside_vocabulary"]
    assert reason.numbers == {"ids": 1, "answers": 1, "vocabulary_size": MODEL_SIZE}
    assert (reason.rule.partition("/")[0], str(strange) in reason.text) == ("C-1", True)


def test_a_candidate_with_ids_outside_the_vocabulary_fails(runs: FrozenRuns, forge_responses: Forge) -> None:
    ref, claim = runs.paths("ss-1", "ss-3", "ss-acc"), Claim(levers=["tpot_ms"])
    names = ("ss-fast-1", "ss-fast-2", "ss-fast-acc")
    assert sign_off("patch", ref, runs.paths(*names), claim).outcome == "PASS"
    verdict = sign_off("patch", ref, forge_responses(last_id(MODEL_SIZE), names), claim)
    failed = {reason.slug: reason.text for reason in verdict.all_findings if reason.severity == "error"}
    assert "outside the model's vocabulary of 258" in failed["accuracy_gate_fail"]


@pytest.mark.parametrize(("size", "failed"), [(200, {"ids_outside_vocabulary"}), (128_256, {"not_scored_again"})])
def test_the_vocabulary_size_is_read_from_the_model_configuration(
    runs: FrozenRuns, tmp_path: Path, size: int, failed: set[str]
) -> None:
    """The size is read from config.json, because a tokenizer may have fewer IDs than its model."""
    config = {"vocab_size": size, "max_position_embeddings": 4096, "architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    verdict = sign_off("baseline", runs.paths(*RUNS), sources=ScoreSources(model_path=str(tmp_path)))
    assert slugs(verdict) == failed
    assert ("text_not_seen" in slugs(verdict, "NOTE")) == (size == 128_256)


def test_a_missing_model_makes_the_vocabulary_unknown(runs: FrozenRuns, tmp_path: Path) -> None:
    run = runs.copy(tmp_path / "run", "off-acc", ["set_manifest", "plan.model_path", "/no/such/model"])
    (evidence,), _ = load([run])
    assert (evidence.vocabulary_size, evidence.tokenizer) == (None, None)
    assert "vocabulary_not_seen" in slugs(sign_off("baseline", [*runs.paths("off-1", "off-2"), run]), "NOTE")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["A quote — “so”, 10 €.\n\tNext line.\u00a0"], 1.0),
        (["cut within a character \ufffd"], 1.0),
        (["ab\ufffdcd"], 0.8),
        (["abcd\x00"], 0.8),
        (["", ""], 1.0),
    ],
)
def test_the_share_of_printable_characters_is_counted(texts: list[str], expected: float) -> None:
    assert printable_share(texts)[0] == pytest.approx(expected)
