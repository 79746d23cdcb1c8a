"""Readers of foreign files take linear time: ten times the size takes about ten times as long."""

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow.parquet import write_table

from compliance.accuracy.accuracy_text import read_scores
from compliance.accuracy.metrics import metric_of
from compliance.trees.audits import _STATED
from qsl.dataset_file import parse_rows
from qsl.datasets.cnn_dailymail import read_articles
from qsl.model_faults import tokenizer_faults
from qsl.model_files import ModelFacts, special_ids
from qsl.tokenizers import load_tokenizer
from runs.benchmarks import BENCHMARKS
from runs.errors import HarnessError
from runs.files.reading import read_object
from runs.files.yaml_file import read_yaml
from runs.loadgen.accuracy_log import read_accuracy_log
from runs.loadgen.detail_log import read_detail
from runs.loadgen.summary_log import read_summary
from runs.loadgen.trace_log import read_trace
from runs.loadgen.user_conf import check_conf
from runs.record.requests_log import read_request_table

pytestmark = pytest.mark.long
BENCHMARK = BENCHMARKS["llama3_1-8b"]
ENTRY = '{ "seq_id" : 0, "qsl_idx" : 1, "data" : "0A000000", "token_count" : 1 },\n'
ERROR = (
    ':::MLLOG {"key": "error_runtime", "value": "x", "time_ms": 1.5, "namespace": "mlperf::logging", "event_type": '
    '"POINT_IN_TIME", "metadata": {"is_error": true, "is_warning": false, "file": "x.cc", "line_no": 1}}\n'
)

# Reader, and the content of a hostile file of a given size
CASES: dict[str, tuple[Callable[[Path], object], Callable[[int], str]]] = {
    "JSON, deep": (lambda path: read_object(path, ""), lambda size: '{"a":' + "[" * size),
    "JSON, one number": (lambda path: read_object(path, ""), lambda size: '{"a":1.' + "1" * size + "}"),
    "JSON, escapes": (lambda path: read_object(path, ""), lambda size: '{"a":"' + "\\u0061" * size + '"}'),
    "YAML, keys": (
        lambda path: read_yaml(path, "--config"), lambda size: "".join(f"k{i}: 1\n" for i in range(size // 20)),
    ),
    "YAML, aliases": (
        lambda path: read_yaml(path, "--config"),
        lambda size: "a: &a 1\n" + "".join(f"k{i}: [*a, *a]\n" for i in range(size // 40)),
    ),
    "YAML, anchors": (
        lambda path: read_yaml(path, "--config"), lambda size: "".join(f"k{i}: &a{i} 1\n" for i in range(size // 20)),
    ),
    "detail log, errors": (read_detail, lambda size: ERROR * (size // 10)),
    "detail log, one line": (read_detail, lambda size: ":::MLLOG " + '{"key":' * size),
    "summary, digits": (read_summary, lambda size: "1" * size + "th percentile latency (ns) : 1\n"),
    "summary, blank lines": (read_summary, lambda size: " \n" * size),
    "accuracy log": (read_accuracy_log, lambda size: "[\n" + ENTRY * (size // 10) + "]\n"),
    "accuracy log, blanks": (read_accuracy_log, lambda size: "[" + "\n \t" * size),
    "trace": (read_trace, lambda size: "[" + '{"name": "Sample", ' * size),
    "requests.jsonl": (read_request_table, lambda size: '{"seq": 1}\n' * size),
    "user.conf": (
        lambda path: check_conf(path.read_text(), path, BENCHMARK, "Server"),
        lambda size: "*.*.a = 1 # \n" * (size // 10),
    ),
    "accuracy.txt, quotes": (
        lambda path: read_scores(metric_of(BENCHMARK), path.read_text()), lambda size: "'rouge1': " * size,
    ),
    "accuracy.txt, braces": (
        lambda path: read_scores(metric_of(BENCHMARK), path.read_text()), lambda size: "{" * size,
    ),
    "text of an audit": (lambda path: _STATED.findall(path.read_text()), lambda size: "\n " * size),
    "data set": (
        lambda path: parse_rows(path.read_bytes(), path, ("input",)), lambda size: '{"input": "a"}\n' * (size // 10),
    ),
}  # fmt: skip


def table(cells: int, text: str = "a text", **more: list[Any]) -> pyarrow.Table:
    return pyarrow.table({"article": [text] * cells, "highlights": ["h"] * cells, **more})


def numbered_table(cells: int) -> pyarrow.Table:
    texts = [f"text {number}" for number in range(cells)]
    return pyarrow.table({"article": texts, "highlights": texts})


# Writers of a hostile Parquet file of a given size
PARQUET: dict[str, Callable[[Path, int], None]] = {
    "one text": lambda path, size: write_table(table(3 * size), path),
    "row groups": lambda path, size: write_table(table(size // 2), path, row_group_size=10),
    "wide": lambda path, size: write_table(table(1, **{f"c{number}": [1] for number in range(size // 20)}), path),
    "nested": lambda path, size: write_table(
        table(1, **{"s": [{f"c{number}": [[1]] for number in range(size // 20)}]}), path
    ),
    "deep": lambda path, size: write_table(
        table(1).append_column("d", pyarrow.array([None], deep_list(size // 1500))), path
    ),
    "dictionary pages": lambda path, size: write_table(numbered_table(2 * size), path),
    "plain pages": lambda path, size: write_table(numbered_table(2 * size), path, use_dictionary=False),
    "small pages": lambda path, size: write_table(
        numbered_table(size), path, use_dictionary=False, data_page_size=1, write_batch_size=2
    ),
    "long texts": lambda path, size: write_table(table(10, "x" * 50 * size), path, use_dictionary=False),
    "metadata, keys": lambda path, size: write_table(
        table(1).replace_schema_metadata({f"key {number}": "value" for number in range(size)}), path
    ),
    "metadata, one": lambda path, size: write_table(
        table(1).replace_schema_metadata({"huggingface": "[" * 50 * size}), path
    ),
}


def deep_list(depth: int) -> pyarrow.DataType:
    kind = pyarrow.int64()
    for _ in range(depth):
        kind = pyarrow.list_(kind)
    return kind


def token(number: int, content: str = "") -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": number, "content": content or f"<{number}>", **flags}


def bpe(size: int = 0, **more: Any) -> str:
    """Return a tokenizer.json with numbers up to `size` as tokens, each merged from its head and its last digit."""
    vocabulary = {str(number): number for number in range(max(size, 10))}
    merges = [[str(number // 10), str(number % 10)] for number in range(10, size)]
    return json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": vocabulary, "merges": merges}, **more})


def split(pattern: str) -> str:
    kind = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return bpe(pre_tokenizer=kind)


def config(size: int = 0, **more: Any) -> str:
    """Return a tokenizer_config.json with the added tokens of tokenizer.json."""
    listed = {str(number): {k: v for k, v in token(number).items() if k != "id"} for number in range(10, 10 + size)}
    return json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": listed, **more})


def added(size: int) -> list[dict[str, Any]]:
    return [token(number) for number in range(10, 10 + size)]


# tokenizer.json, tokenizer_config.json and special_tokens_map.json of a given size
TOKENIZERS: dict[str, Callable[[int], tuple[str, str, str]]] = {
    "merges": lambda size: (bpe(size), config(), "{}"),
    "added tokens": lambda size: (bpe(added_tokens=added(size)), config(), "{}"),
    "added tokens, one text": lambda size: (
        bpe(added_tokens=[token(number, "x") for number in range(10, size)]), config(), "{}",
    ),
    "added tokens, prefixes": lambda size: (
        bpe(added_tokens=[token(100 + number, "x" * number) for number in range(1, int(size**0.5) * 3)]),
        config(), "{}",
    ),
    "pattern": lambda size: (split("(?:a|bc)" * size), config(), "{}"),
    "pattern, look-behind": lambda size: (split("(?<=a|bc|def)" * size), config(), "{}"),
    "pattern, repeated": lambda size: (split("(?:(?:(?:abc|d){1000}){1000}){1000}" * (size // 1000)), config(), "{}"),
    "pattern, groups": lambda size: (split("(" * size + ")" * size), config(), "{}"),
    "pre-tokenizers, deep": lambda size: (
        bpe()[:-1] + ', "pre_tokenizer": ' + '{"type": "Sequence", "pretokenizers": [' * size, config(), "{}",
    ),
    "template": lambda size: (bpe(), config(chat_template="{% if a %}" * 10 * size), "{}"),
    "template, for transformers": lambda size: (
        bpe(), config(chat_template="{% if a %}" * 10 * size, add_bos_token=False), "{}",
    ),
    "template, deep": lambda size: (bpe(), '{"chat_template": ' + "[" * 50 * size, "{}"),
    "added_tokens_decoder": lambda size: (bpe(added_tokens=added(size // 3)), config(size // 3), "{}"),
    "added_tokens_decoder, for transformers": lambda size: (bpe(), config(size // 20, add_bos_token=False), "{}"),
    "special tokens": lambda size: (
        bpe(), config(), json.dumps({"additional_special_tokens": [f"<{number}>" for number in range(size // 60)]}),
    ),
    "special tokens, deep": lambda size: (bpe(), config(), '{"pad_token": ' + "[" * 50 * size),
}  # fmt: skip


def read_tokenizer(folder: Path) -> None:
    """Read a folder as `doctor`, `run` and the preparation of a dataset do."""
    for read in (
        lambda: list(tokenizer_faults(folder, 10**9)),
        lambda: special_ids(ModelFacts("", folder, None, 10**9, 1, "", {})),
        lambda: load_tokenizer(str(folder)),
    ):
        with contextlib.suppress(HarnessError):
            read()


def seconds(read: Callable[[Path], object], path: Path, content: str) -> float:
    """Return the processor time of reading a file with this content."""
    path.write_text(content)
    return shortest(read, path)


def shortest(read: Callable[[Path], object], path: Path) -> float:
    """Return the processor time; the shortest of three."""
    times = []
    for _ in range(3):
        begin = time.process_time()
        with contextlib.suppress(HarnessError, ValueError, SyntaxError, RecursionError, MemoryError):
            read(path)
        times.append(time.process_time() - begin)
    return min(times)


def test_duplicate_keys_are_found_in_linear_time(tmp_path: Path) -> None:
    """The reader of the standard library is not linear in the number of keys, because of the processor's caches."""
    path, size = tmp_path / "file.json", 200_000
    content = "{" + "".join(f'"{i}":1,' for i in range(size)) + f'"{size - 1}":1}}'
    object_s = seconds(lambda path: read_object(path, ""), path, content)
    assert object_s <= 4 * seconds(lambda path: json.loads(path.read_bytes()), path, content)


@pytest.mark.parametrize("case", CASES)
def test_reading_time_grows_linearly_with_the_size(case: str, tmp_path: Path) -> None:
    read, content = CASES[case]
    size = 20_000
    small, large = (seconds(read, tmp_path / "file.json", content(times * size)) for times in (1, 10))
    assert large <= 12 * max(small, 0.005), f"{small:.3f} s, then {large:.3f} s"


def expect_linear(large: float, small: float) -> None:
    """Compare the times of a file and of one ten times as large.

    The objects of these files exceed the processor's caches, so a linear reader takes up to 22 times as long, like the
    JSON reader of the standard library. A quadratic one takes 100 times as long.
    """
    assert large <= 30 * max(small, 0.01), f"{small:.3f} s, then {large:.3f} s"


@pytest.mark.parametrize("case", PARQUET)
def test_reading_a_parquet_file_takes_linear_time(case: str, tmp_path: Path) -> None:
    times, path = [], tmp_path / "file.parquet"
    for size in (10_000, 100_000):
        PARQUET[case](path, size)
        times.append(shortest(lambda path: read_articles(str(path)), path))
    expect_linear(times[1], times[0])


@pytest.mark.parametrize("case", TOKENIZERS)
def test_reading_a_tokenizer_takes_linear_time(case: str, tmp_path: Path) -> None:
    times, names = [], ("tokenizer", "tokenizer_config", "special_tokens_map")
    for size in (5_000, 50_000):
        for name, content in zip(names, TOKENIZERS[case](size), strict=True):
            (tmp_path / f"{name}.json").write_text(content)
        times.append(shortest(read_tokenizer, tmp_path))
    expect_linear(times[1], times[0])
