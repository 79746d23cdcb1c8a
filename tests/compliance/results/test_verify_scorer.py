"""The scorer of verification: it scores nothing twice, and loads nothing from a network."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compliance.accuracy.scores import score_texts
from compliance.results.scorer import Scorer, local_model
from compliance.results.scoring import ScoreSources
from qsl.tokenizers import load_tokenizer
from runs.errors import InputError
from runs.loadgen.accuracy_log import AccuracyEntry
from runs.record.layout import RunDir
from tests.support.engines.small_tokenizer import make_tokenizer
from tests.support.runs.dummy_runs import DummyRuns, verify_one_result

RESPONSES = ["The river rose on Tuesday.", "Dr. Marsh testified.", "Nobody answered!"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return each requested address. Requests fail."""
    addresses: list[object] = []

    def refuse(*address: object, **_: object) -> None:
        addresses.append(address)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return addresses


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache of the hub."""
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    return folder


def add_cached_model(hub_cache: Path, name: str, commit: str, *, main: bool) -> Path:
    """Add a model with a tokenizer to the cache of the hub."""
    home = hub_cache / f"models--{name.replace('/', '--')}"
    if main:
        (home / "refs").mkdir(parents=True)
        (home / "refs" / "main").write_text(commit)
    return make_tokenizer(home / "snapshots" / commit)


def log(ids: list[list[int]]) -> list[AccuracyEntry]:
    return [
        AccuracyEntry(
            seq_id=index, qsl_idx=index, data=np.array(row, np.int32).tobytes(), token_count=len(row), token_data=None
        )
        for index, row in enumerate(ids)
    ]


def test_equal_responses_are_scored_once(
    scorings: list[tuple[str, ...]], make_dataset: Callable[..., Path], tmp_path: Path
) -> None:
    dataset, other_dataset = make_dataset([1], [2], [3]), make_dataset([1], [2], [4], name="other.json")
    entries = log([load_tokenizer("bytes").encode(text) for text in RESPONSES])
    model = str(make_tokenizer(tmp_path / "model"))
    with Scorer() as scorer:
        references = scorer.references(dataset)
        assert scorer.references(dataset) is references
        assert references.prompt_tokens.tolist() == [1, 1, 1]
        first = scorer.scoring("rouge", entries, references, "bytes", expected_count=3)(None)
        assert first.scores == score_texts(RESPONSES, references.texts)
        assert [check.rule for check in first.findings if not check.passed] == []
        assert (
            scorer.scoring("rouge", list(entries), scorer.references(dataset), "bytes", expected_count=3)(None) is first
        )
        assert len(scorings) == 1
        swapped = [*log([load_tokenizer("bytes").encode(RESPONSES[1])]), *entries[1:]]
        assert scorer.scoring("rouge", swapped, references, "bytes", expected_count=3)(None).scores != first.scores
        scorer.scoring("rouge", entries, scorer.references(other_dataset), "bytes", expected_count=3)(None)
        scorer.scoring("rouge", entries, references, model, expected_count=3)(None)
        assert len(scorings) == 4
    with Scorer() as second_scorer:  # no file of the first one remains
        second_scorer.scoring("rouge", entries, second_scorer.references(dataset), "bytes", expected_count=3)(None)
    assert [len(responses) for responses in scorings] == [3] * 5


def test_a_changed_dataset_is_read_again(make_dataset: Callable[..., Path]) -> None:
    with Scorer() as scorer:
        before = scorer.references(make_dataset([1], [2]))
        after = scorer.references(make_dataset([1], [2], [3]))
        assert (len(before.texts), len(after.texts)) == (2, 3)
        with pytest.raises(InputError, match=r"gone\.json"):
            scorer.references(Path("gone.json"))


def test_a_changed_tokenizer_is_loaded_again(
    scorings: list[tuple[str, ...]], make_dataset: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_tokenizer(tmp_path / "model")
    tokenizer = load_tokenizer(str(folder))
    entries = log([tokenizer.encode(f"{text[:-1]} .") for text in RESPONSES])
    with Scorer() as scorer:
        references = scorer.references(make_dataset([1], [2], [3]))
        plain = scorer.scoring("rouge", entries, references, str(folder), expected_count=3)(None)
        make_tokenizer(folder, clean_up=True)
        cleaned = scorer.scoring("rouge", entries, references, str(folder), expected_count=3)(None)
    assert plain.scores["gen_len"] == cleaned.scores["gen_len"] + len(RESPONSES)


def test_models_are_searched_without_network(
    hub_cache: Path, no_network: list[object], make_dataset: Callable[..., Path], tmp_path: Path
) -> None:
    used, newer = "f" * 40, COMMIT
    assert local_model("bytes") == "bytes"
    assert local_model(str(tmp_path)) == str(tmp_path)
    folder = add_cached_model(hub_cache, "org/model", newer, main=True)
    assert Path(local_model("org/model")) == folder
    with pytest.raises(InputError, match=f"at revision {used} is not a folder"):
        local_model("org/model", used)
    add_cached_model(hub_cache, "org/model", used, main=False)
    assert Path(local_model("org/model", used)).name == used
    with pytest.raises(InputError, match="org/other is not a folder") as reported:
        local_model("org/other")
    assert "hf download org/other" in reported.value.fix
    for gone in (str(tmp_path / "gone"), "./gone", "a/b/c", "plain"):
        with pytest.raises(InputError, match="does not exist"):
            local_model(gone)
    with Scorer() as scorer:
        references = scorer.references(make_dataset([1]))
        entries = log([load_tokenizer(str(folder)).encode(RESPONSES[0])])
        scored = scorer.scoring("rouge", entries, references, local_model("org/model"), expected_count=1)(None)
    assert scored.scores["gen_len"] == len(RESPONSES[0])
    assert no_network == []


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """Return a run that was created while a network existed."""
    return DummyRuns().copy(tmp_path / "run", "SingleStream", "accuracy")


def test_a_run_of_a_missing_model_is_not_rescored(run: RunDir, hub_cache: Path, no_network: list[object]) -> None:
    manifest = json.loads(run.manifest.read_bytes())
    manifest["plan"]["model_path"] = "org/model"
    run.manifest.write_text(json.dumps(manifest))
    verdict = verify_one_result(run.root)
    assert verdict.parts[0].details.values["scores_from"] == "accuracy.txt"
    (unscored,) = [finding for finding in verdict.parts[0].violated if finding.rule == "accuracy-scored-again"]
    assert "model org/model is not a folder" in unscored.found
    sources = ScoreSources(Path(manifest["plan"]["dataset_path"]), "org/model")
    verdict = verify_one_result(run.root, sources=sources)
    assert verdict.exit_code() == 2
    assert no_network == []
