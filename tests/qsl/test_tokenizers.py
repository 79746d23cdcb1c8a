"""The prompt and the tokenizers."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qsl.datasets.cnn_dailymail import TEMPLATE, article_prompt
from qsl.embedded.articles import bundled_articles
from qsl.model_faults import tokenizer_faults
from qsl.model_files import ModelFacts, SpecialIds, special_ids
from qsl.tokenizers import BOS_ID, EOS_ID, ByteTokenizer, Tokenizer, load_tokenizer, tokenizer_fingerprint
from runs.errors import InputError
from runs.files.reading import MIB
from tests.conftest import ROOT
from tests.support.engines.small_tokenizer import make_tiny_llama, make_tokenizer


def test_the_prompt_equals_the_official_template() -> None:
    assert article_prompt("TEXT") == (
        "Summarize the following news article in 128 tokens. Please output the summary only, without any other text."
        "\n\nArticle:\nTEXT\n\nSummary:"
    )
    for article in ("{input}", "{0} {x!r}", "a } b {{", ""):  # braces have no meaning
        assert article_prompt(article) == TEMPLATE.replace("{input}", article)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_byte_tokenizer_encodes_and_decodes_any_text(text: str) -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert ids[0] == BOS_ID
    assert len(ids) == 1 + len(text.encode())
    assert tokenizer.batch_decode([[*ids, EOS_ID]]) == [text]


def test_byte_tokenizer_decodes_arrays_special_ids_and_damage() -> None:
    tokenizer = load_tokenizer("bytes")
    assert tokenizer.vocab_size == 258
    ids = np.array([BOS_ID, 72, 105, EOS_ID], dtype=np.int32)
    assert tokenizer.batch_decode([ids, []]) == ["Hi", ""]
    assert tokenizer.batch_decode([[0xFF, 65]]) == ["�A"]
    assert tokenizer.encode_batch(["a", ""]) == [[BOS_ID, 97], [BOS_ID]]
    for bad in (258, -1):
        with pytest.raises(InputError, match=str(bad)):
            tokenizer.batch_decode([[bad]])


def test_batches_lists_and_arrays_are_encoded_equally(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(make_tokenizer(tmp_path)))
    texts = ["The quick fox.", "same length..!", "", "naïve — “quotes” 12", "x" * 5000, "a\n\nb"]
    lists = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(texts) == lists
    assert tokenizer.encode_batch([]) == []
    assert {ids[0] for ids in lists} == {0}  # special token that this tokenizer adds by default
    assert tokenizer.vocab_size > max(map(max, lists))
    assert tokenizer.batch_decode(lists) == texts
    assert tokenizer.batch_decode([np.array(ids, dtype=np.int32) for ids in lists]) == texts
    assert tokenizer.batch_decode(np.array([lists[0], lists[0]])) == [texts[0]] * 2
    assert tokenizer.batch_decode([[]]) == [""]


TEXTS = ["The quick fox .", "", "naïve — “quotes” 12", "<eos>x<pad>", "it 's n't I 'm we 've ' you 're ! , ? so"]


@pytest.mark.parametrize("config", [{}, {"model_type": "llama"}, {"model_type": "gpt2"}])
@pytest.mark.parametrize("clean_up", [False, True])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"pad_token": "<pad>"},  # missing in tokenizer.json
        {"add_eos_token": True},
        {"split_special_tokens": True},
        {"additional_special_tokens": ["<eos>", "<bos>"]},
        {"added_tokens_decoder": {"1": {"content": "<eos>", "special": False}}},
        {"added_tokens_decoder": {"1": {"content": "<eos>", "special": True, "normalized": False}}},
    ],
    ids=str,
)
def test_tokenizers_equal_those_of_autotokenizer(
    tmp_path: Path, config: dict[str, str], clean_up: bool, more: dict[str, Any]
) -> None:
    from transformers import AutoTokenizer

    folder = make_tokenizer(tmp_path, clean_up=clean_up)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_bytes()) | more))
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    assert_alike(load_tokenizer(str(folder)), AutoTokenizer.from_pretrained(folder))


def test_the_tokenizer_of_a_generated_model_equals_that_of_autotokenizer(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    articles = [article.article for article in bundled_articles()[:20]]
    folder = make_tiny_llama(tmp_path / "model", articles)
    assert_alike(load_tokenizer(str(folder)), AutoTokenizer.from_pretrained(folder), articles)


def assert_alike(tokenizer: Tokenizer, reference: Any, more: Sequence[str] = ()) -> None:
    reference.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True  # as in transformers 4
    texts = [*TEXTS, *more]
    ids = tokenizer.encode_batch(texts)
    assert ids == [reference.encode(text) for text in texts]
    assert tokenizer.vocab_size == len(reference)
    assert tokenizer.batch_decode(ids) == [reference.decode(token_id, skip_special_tokens=True) for token_id in ids]


def test_a_llama_tokenizer_loads_without_pytorch_and_transformers(tmp_path: Path) -> None:
    folder = make_tokenizer(tmp_path)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    code = f"import sys; from qsl.tokenizers import load_tokenizer as load; load({str(folder)!r}).encode_batch(['a'])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print([name for name in ('torch', 'transformers') if name in sys.modules])"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_a_missing_or_damaged_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_tokenizer(str(tmp_path / "none"))
    with pytest.raises(InputError, match="no tokenizer could be loaded"):
        load_tokenizer(str(tmp_path))
    folder = make_tokenizer(tmp_path / "broken")
    path, parsed = folder / "tokenizer.json", json.loads((folder / "tokenizer.json").read_bytes())
    unknown = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}], "pair": []}
    for content in (
        "{",
        '{"normalizer": {"type": "Sequence", "normalizers": [' * 1000,
        json.dumps({**parsed, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}),  # Rust panics
        json.dumps({**parsed, "post_processor": {**unknown, "special_tokens": {}}}),  # Rust panics at the first text
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(InputError, match="no tokenizer could be loaded"):
            load_tokenizer(str(folder))


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "vocab.json", "chat_template.jinja"])
def test_tokenizer_files_above_the_size_limit_are_refused(tmp_path: Path, name: str) -> None:
    folder = make_tokenizer(tmp_path)
    with (folder / name).open("ab") as stream:
        stream.truncate(64 * MIB + 1)
    with pytest.raises(InputError, match=f"{name}: it has 67,108,865 bytes, required: at most 67,108,864"):
        load_tokenizer(str(folder))


def test_a_large_tokenizer_file_is_read(tmp_path: Path) -> None:
    """The file of Gemma has 33 MB."""
    folder = make_tokenizer(tmp_path)
    path = folder / "tokenizer.json"
    path.write_bytes(path.read_bytes() + b" " * 20 * MIB)
    assert special_ids(model(folder)).neutral == (0, 1)
    assert not list(tokenizer_faults(folder, 300))
    assert load_tokenizer(str(folder)).vocab_size == 258


def test_the_fingerprint_changes_with_the_tokenizer_files(tmp_path: Path) -> None:
    folder = make_tokenizer(tmp_path)
    before = tokenizer_fingerprint(str(folder))
    assert before == tokenizer_fingerprint(str(folder))
    config = folder / "tokenizer_config.json"
    config.write_text(config.read_text(encoding="utf-8").replace("<bos>", "<BOS>"), encoding="utf-8")
    assert tokenizer_fingerprint(str(folder)) != before
    assert len({tokenizer_fingerprint("bytes"), tokenizer_fingerprint("some/model"), before}) == 3


def model(folder: Path, **files: Any) -> ModelFacts:
    """Return a model folder with these files, by name without `.json`; a text is written unchanged."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.json").write_text(text)
    return ModelFacts("model", folder, None, 300, 64, "Llama", {"eos_token_id": 9, "bos_token_id": 8})


def test_special_ids_without_model_are_those_of_the_byte_tokenizer() -> None:
    assert special_ids(None) == SpecialIds((EOS_ID,), (BOS_ID,))


def test_special_ids_are_read_from_the_model_files(tmp_path: Path) -> None:
    added = [{"id": number, "special": number != 13} for number in (10, 11, 12, 13, 14)]
    facts = model(
        tmp_path, generation_config={"eos_token_id": [11, 12], "bos_token_id": 10}, tokenizer={"added_tokens": added}
    )
    # Token 13 is added as an ordinary word, so a model may respond with it.
    assert special_ids(facts) == SpecialIds(stop=(11, 12), begin=(10,), neutral=(14,))


def test_special_ids_are_read_from_config_if_generation_config_is_missing(tmp_path: Path) -> None:
    assert special_ids(model(tmp_path)) == SpecialIds((9,), (8,))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("generation_config", "{", "cannot be read"),
        ("generation_config", [], "is not a JSON object"),
        ("generation_config", {"eos_token_id": "</s>"}, "not token IDs"),
        ("tokenizer", "{", "cannot be read"),
        ("tokenizer", {"added_tokens": 5}, "not a list of tokens"),
        ("tokenizer", {"added_tokens": [{"special": True}]}, "not a list of tokens"),
        ("tokenizer", {"added_tokens": ["<s>"]}, "not a list of tokens"),
        ("tokenizer", {"added_tokens": [{"id": "5", "special": True}]}, "not a whole number"),
    ],
)
def test_damaged_model_files_are_named(tmp_path: Path, name: str, content: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        special_ids(model(tmp_path, **{name: content}))
    assert f"{name}.json" in refused.value.message
