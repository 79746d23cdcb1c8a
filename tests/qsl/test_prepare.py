"""Preparation of a dataset: sources, refusals and the written file; and models and sources without the hub."""

import http.server
import runpy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from qsl.dataset import load_dataset
from qsl.dataset_kind import dataset_kinds
from qsl.datasets import cnn_dailymail
from qsl.datasets.cnn_dailymail import article_prompt, encode_rows, read_articles, read_calibration
from qsl.hub import check_hub, from_hub
from qsl.model_files import find_model
from qsl.prepared_rows import write_rows
from qsl.tokenizers import ByteTokenizer, load_tokenizer
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError, SetupError
from runs.files.writing import sha256_of
from scripts.make_rehearsal_dataset import main as rehearse
from scripts.prepare_dataset import main
from tests.conftest import ROOT
from tests.support.engines.small_tokenizer import make_tokenizer
from tests.support.runs import orca

ARTICLES = ['One, with "quotes"\nand lines.', "NA", "{braces} — dash", "Four\tfour"]
HIGHLIGHTS = ["H one .\nH more .", "H two .", "null", "H four ."]


def table(**changes: list[Any]) -> pd.DataFrame:
    return pd.DataFrame({"id": [1, 2, 3, 4], "article": ARTICLES, "highlights": HIGHLIGHTS, **changes})


def save(data: pd.DataFrame, path: Path) -> Path:
    match path.suffix:
        case ".parquet":
            data.to_parquet(path)
        case ".csv":
            data.to_csv(path, index=False)
        case ".tsv":
            data.to_csv(path, index=False, sep="\t")
        case ".json":
            data.to_json(path, orient="records")
        case ".jsonl":
            data.to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".tsv", ".json", ".jsonl"])
def test_all_file_formats_give_equal_articles(tmp_path: Path, suffix: str) -> None:
    source = read_articles(str(save(table(), tmp_path / f"a{suffix}")))
    assert source.articles == ARTICLES
    assert source.highlights == HIGHLIGHTS


def test_count_takes_the_first_rows_without_checking_the_rest(tmp_path: Path) -> None:
    path = str(save(table(highlights=["a", "b", None, "d"]), tmp_path / "a.parquet"))
    source = read_articles(path, 2)
    assert (source.articles, source.highlights) == (ARTICLES[:2], ["a", "b"])
    with pytest.raises(InputError, match=r"row 2, column 'highlights'"):
        read_articles(path)
    for count in (5, 0):
        with pytest.raises(InputError, match=f"--count {count}: .* has 4 rows"):
            read_articles(path, count)
    for no_file in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match=r"does not exist|not a file"):
            read_articles(str(no_file))


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json"])
@pytest.mark.parametrize(("column", "row"), [("article", 1), ("highlights", 3)])
@pytest.mark.parametrize("cell", ["", "  ", None])
def test_empty_cells_are_named_with_row_and_column(
    tmp_path: Path, suffix: str, column: str, row: int, cell: str | None
) -> None:
    cells: list[Any] = list(ARTICLES if column == "article" else HIGHLIGHTS)
    cells[row] = cell
    path = save(table(**{column: cells}), tmp_path / f"a{suffix}")
    with pytest.raises(InputError, match=rf"row {row}, column '{column}'"):
        read_articles(str(path))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_cells_that_are_not_text_are_refused(tmp_path: Path, suffix: str) -> None:
    path = save(table(article=[1, 2, 3, 4]), tmp_path / f"a{suffix}")
    with pytest.raises(InputError, match=r"row 0, column 'article': the cell is 1, not a string"):
        read_articles(str(path))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.parquet", b"garbage", "cannot be read as parquet"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b"article,highlights\n", "no rows"),
        ("a.csv", b'article,highlights\na,b\n"open', "cannot be read as csv"),
        ("a.csv", b"article,highlights\na,b,c,d\n", "more cells than its header"),
        ("a.csv", b"text,highlights\na,b\n", "no column 'article'; its columns are ['highlights', 'text']"),
        ("a.csv", b"article,summary\na,b\n", "no column 'highlights'"),
        ("a.csv", b"article,highlights\ncaf\xe9,b\n", "cannot be read as csv"),
        ("a.json", b'[{"article": "x", "highlights": "h"}, {"artic', "cannot be read as json"),
        (
            "a.json",
            b'[{"article": "x", "highlights": "h"}, {"article": 5, "highlights": "h"}]',
            "row 1, column 'article'",
        ),
        ("a.txt", b"text", "suffix '.txt'"),
        ("a.pkl", b"\x80\x04.", "suffix '.pkl'"),
    ],
)
def test_damaged_source_files_are_refused(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_articles(str(path))
    assert words in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.fix


def test_prepared_rows_equal_those_of_the_reference(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(make_tokenizer(tmp_path)))
    articles = [f"Article {n} {{input}} naïve" * (n % 7 + 1) for n in range(600)]  # more than two batches
    seen: list[int] = []
    rows = list(encode_rows(articles, [f"h{n}" for n in range(600)], tokenizer, seen.append))
    assert [row["input"] for row in rows] == articles
    assert [row["tok_input"] for row in rows] == [tokenizer.encode(article_prompt(article)) for article in articles]
    assert [row["output"] for row in rows] == [f"h{n}" for n in range(600)]
    assert seen == sorted(seen)
    assert seen[-1] == 600


def test_a_prepared_file_is_read_by_the_harness_and_by_pandas(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    prepared = write_rows(path, encode_rows(ARTICLES, HIGHLIGHTS, ByteTokenizer()))
    dataset = load_dataset(path, vocab_size=258)
    frame = pd.read_json(path)
    assert frame.columns.tolist() == ["input", "tok_input", "output"]
    assert frame.input.tolist() == ARTICLES
    assert frame.tok_input.tolist() == dataset.prompts == [ByteTokenizer().encode(article_prompt(a)) for a in ARTICLES]
    assert frame.output.tolist() == dataset.targets == HIGHLIGHTS
    assert prepared.sha256 == dataset.sha256 == sha256_of(path)
    assert (prepared.rows, prepared.longest_prompt_tokens) == (4, dataset.longest_prompt)
    assert prepared.mean_prompt_tokens == pytest.approx(sum(map(len, dataset.prompts)) / 4)


def test_an_interrupted_preparation_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")

    def stop(done: int) -> None:
        if done > 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rows(path, encode_rows(["a"] * 600, ["h"] * 600, ByteTokenizer(), stop))
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]


def test_the_script_writes_and_reports_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = save(table(), tmp_path / "a.csv"), tmp_path / "out.json"
    assert main(["--source", str(source), "--model-path", "bytes", "--output", str(output), "--count", "3"]) == 0
    dataset = load_dataset(output)
    assert len(dataset) == 3
    stdout = capsys.readouterr().out
    assert f"sha256: {dataset.sha256}" in stdout
    assert "rows: 3" in stdout
    assert "13,368" in stdout
    orca.write_rows(tmp_path / "rows.jsonl", 4)
    options = ["--lg-model-name", "llama2-70b", "--source", str(tmp_path / "rows.jsonl"), "--model-path", "bytes"]
    assert main([*options, "--output", str(output), "--force"]) == 0
    assert load_dataset(output).targets[2].startswith("Because the")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "row 1, column 'article'"),
        ({"--output": "."}, "is a directory"),
        ({"--output": "no/o.json"}, "does not exist"),
        ({"--model-path": "./none"}, "does not exist"),
        ({"--ids": "list.txt", "--count": "2"}, "--ids and --count exclude"),
        ({"--ids": "none.txt"}, "none.txt"),
        ({"--lg-model-name": "llama2-70b", "--ids": "list.txt"}, "not supported for llama2-70b"),
        ({"--lg-model-name": "llama2-70b", "--source": "hub"}, "--source hub: "),
        ({"--lg-model-name": "llama2-70b", "--source": "a.pkl"}, "a.pkl"),
    ],
)
def test_the_script_refuses_invalid_options_with_exit_code_2(
    changes: dict[str, str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    save(table(article=["x", "", "y", "z"]), tmp_path / "a.csv")
    options = {"--source": "a.csv", "--model-path": "bytes", "--output": "out.json", **changes}
    assert main([word for option in options.items() for word in option]) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("program", [main, rehearse])
def test_an_existing_file_is_replaced_only_on_request(
    program: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "rehearsal.json"
    source = ["--source", str(save(table(), tmp_path / "a.csv"))] if program is main else ["--count", "2"]
    words = [*source, "--model-path", "bytes", "--output", str(output)]
    output.symlink_to(tmp_path / "missing")
    for old in ("", "old"):
        if old:
            output.unlink()
            output.write_text(old)
        assert program(words) == 2
        assert f"--output {output}: already exists" in capsys.readouterr().err
        assert output.is_symlink() or output.read_text() == old
    assert program([*words, "--force"]) == 0
    assert load_dataset(output)
    assert program is rehearse or program([*words[:-1], "/dev/null"]) == 0


def test_a_file_created_during_the_preparation_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out.json"

    def rows(*arguments: object) -> Iterator[dict[str, Any]]:
        output.write_text("of another program")
        yield from encode_rows(ARTICLES, HIGHLIGHTS, ByteTokenizer())

    monkeypatch.setattr(cnn_dailymail, "encode_rows", rows)
    source = str(save(table(), tmp_path / "a.csv"))
    assert main(["--source", source, "--model-path", "bytes", "--output", str(output)]) == 2
    assert output.read_text() == "of another program"


def test_the_former_script_name_and_options_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program = runpy.run_path(str(ROOT / "scripts" / "download-dataset.py"))
    source = str(save(table(), tmp_path / "a.csv"))
    words = program["translated"](["--total_count", "2", f"--source={source}", "--model_name", "bytes"])
    assert program["main"](words) == 0
    assert len(load_dataset(tmp_path / "cnn_eval.json")) == 2
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert program["main"](program["translated"](["--total-count=2", "--force"])) == 3
    assert "--model-path meta-llama/Llama-3.1-8B-Instruct" in capsys.readouterr().err


def test_articles_are_selected_in_the_order_of_a_list(tmp_path: Path) -> None:
    source = save(table(id=["a", "b", "c", "d"]), tmp_path / "a.parquet")
    ids = tmp_path / "list.txt"
    for text, articles in (("c\na\nc\n", [ARTICLES[2], ARTICLES[0], ARTICLES[2]]), ("", None), ("a\nx", None)):
        ids.write_text(text)
        if articles:
            assert read_calibration(str(source), ids).articles == articles
        else:
            with pytest.raises(InputError, match=r"contains no ID|1 of the 2 IDs"):
                read_calibration(str(source), ids)


NOWHERE = "http://127.0.0.1:9"  # the discard port, on which no process listens


def test_hub_access_is_refused_if_offline_mode_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SetupError, match="HF_HUB_OFFLINE is set"):
        check_hub("a model")


def test_an_unreachable_hub_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    for find in (find_model, load_tokenizer):
        with pytest.raises(SetupError, match=r"127\.0\.0\.1:9 is unreachable"):
            find("nobody/nothing")
    assert from_hub("a model", lambda local: local)  # content of the cache


def test_a_hub_that_refuses_a_request_counts_as_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    # Has no HEAD: status 501
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        assert from_hub("a model", lambda local: local) is False


def test_a_missing_hub_ends_with_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["--source", "hub", "--output", "/tmp/never.json", "--model-path", "nobody/nothing"]) == 3
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert "fix: " in errors


def test_benchmarks_name_each_dataset_that_can_be_prepared() -> None:
    assert {benchmark.data_set for benchmark in BENCHMARKS.values()} == set(dataset_kinds())
