"""The special ids of a model, from its own files."""

import json
from pathlib import Path
from typing import Any

import pytest

from qsl.model_files import ModelFacts, SpecialIds, special_ids
from qsl.tokenizers import BOS_ID, EOS_ID
from runs.errors import InputError


def model(folder: Path, **files: Any) -> ModelFacts:
    """A model folder with these files, by name without `.json`; a text is written as it is."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.json").write_text(text)
    return ModelFacts("model", folder, None, 300, 64, "Llama", {"eos_token_id": 9, "bos_token_id": 8})


def test_without_a_model_they_are_those_of_the_byte_tokenizer() -> None:
    assert special_ids(None) == SpecialIds((EOS_ID,), (BOS_ID,))


def test_all_come_from_the_models_files(tmp_path: Path) -> None:
    added = [{"id": number, "special": number != 13} for number in (10, 11, 12, 13, 14)]
    facts = model(
        tmp_path, generation_config={"eos_token_id": [11, 12], "bos_token_id": 10}, tokenizer={"added_tokens": added}
    )
    # 13 is an added token as any other word: a model may answer with it.
    assert special_ids(facts) == SpecialIds(stop=(11, 12), begin=(10,), other=(14,))


def test_config_counts_where_there_is_no_generation_config(tmp_path: Path) -> None:
    assert special_ids(model(tmp_path)) == SpecialIds((9,), (8,))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("generation_config", "{", "cannot be read"),
        ("generation_config", [], "holds no object"),
        ("generation_config", {"eos_token_id": "</s>"}, "not token ids"),
        ("tokenizer", "{", "cannot be read"),
        ("tokenizer", {"added_tokens": 5}, "no list of tokens"),
        ("tokenizer", {"added_tokens": [{"special": True}]}, "no list of tokens"),
        ("tokenizer", {"added_tokens": ["<s>"]}, "no list of tokens"),
        ("tokenizer", {"added_tokens": [{"id": "5", "special": True}]}, "no whole number"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: Any, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        special_ids(model(tmp_path, **{name: content}))
    assert f"{name}.json" in refused.value.message
