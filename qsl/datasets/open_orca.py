"""The OpenOrca dataset of llama2-70b: conversion of the official pickle, or of other rows, to the MLCommons format.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20):
  [ref]   language/llama2-70b/processorca.py and README
  [hash]  mlcommons/endpoints, page of the dataset: SHA-256 of the file that MLCommons distributes

MLCommons distributes this dataset as a pickled DataFrame. Loading a pickle may run any code, so only the file with the
published hash is loaded.
"""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from qsl.dataset import COLUMNS, check_rows
from qsl.dataset_file import MAX_BYTES
from qsl.dataset_kind import DatasetKind, DatasetRequest, SourceRows
from qsl.prepared_rows import encoded
from qsl.source_columns import HUB, check_count, read_columns
from qsl.tokenizers import Tokenizer
from runs.errors import InputError
from runs.files.reading import read_whole

OFFICIAL_NAME = "open_orca_gpt4_tokenized_llama.sampled_24576.pkl"  # [ref]; also as .pkl.gz
OFFICIAL_SHA256 = "b64e66e54b6267f79eb4f9ccec52d466bab3ac94747ed258c3b0f337ed166fab"  # [hash], of the .pkl
SYSTEM_PROMPT, QUESTION, RESPONSE = "system_prompt", "question", "response"  # columns of OpenOrca
REFERENCE_RESPONSE = "output"  # column name in the reference's preparation [ref]
# Llama 2's ID of a space, with which every response begins. The prompt ends with it, so a system cannot send it early.
# [ref]
FIRST_RESPONSE_ID = 29871


@dataclass(frozen=True)
class OrcaRows:
    """Questions and their responses, by row; the system prompt may be empty."""

    system_prompts: list[str]
    questions: list[str]
    responses: list[str]

    def __len__(self) -> int:
        return len(self.questions)


def is_pickle(source: str) -> bool:
    """Return whether a source is read as the official pickle."""
    return source.lower().endswith((".pkl", ".pkl.gz"))


def official_rows(
    path: Path, count: int | None = None, *, published_sha256: str = OFFICIAL_SHA256, max_bytes: int = MAX_BYTES
) -> list[dict[str, Any]]:
    """Return the rows of the official pickle, or of a gzip file of it, with its token IDs.

    Args:
        count: number of rows to take; None = all.
        published_sha256: SHA-256 of the uncompressed pickle.
        max_bytes: maximum size of the file and of its uncompressed content.

    Raises:
        InputError: If the file is not the published file, or has too few rows.
    """
    try:
        data = read_whole(path, "download it again", max_bytes=max_bytes)
        if data.startswith(b"\x1f\x8b"):
            with gzip.open(io.BytesIO(data)) as stream:  # some kB may unpack to many GB
                data = stream.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}", "download it again") from error
    if len(data) > max_bytes:
        raise InputError(f"{path} unpacks to more than {max_bytes:,} bytes", "download it again")
    if (digest := sha256(data).hexdigest()) != published_sha256:
        raise InputError(
            f"{path} is a pickle with SHA-256 {digest}, the published pickle has {published_sha256}; "
            "another pickle could run any code when it is loaded",
            "fetch the file from MLCommons again, or, if you trust it, save the table as Parquet or JSON",
        )
    import pandas

    table = pandas.read_pickle(io.BytesIO(data))
    check_count(count, len(table), str(path))
    columns = [table[name].tolist()[:count] for name in COLUMNS]
    rows = [
        {"input": text, "tok_input": [int(token_id) for token_id in ids], "output": response}
        for text, ids, response in zip(*columns, strict=True)
    ]
    check_rows(rows, path)
    return rows


def own_rows(path: Path, count: int | None = None) -> OrcaRows:
    """Return the rows of a Parquet, CSV, TSV, JSON or JSON lines file with columns of OpenOrca or the reference.

    Raises:
        InputError: If the file is missing or of an unsupported kind, or columns, cells or rows are missing or invalid.
    """
    columns = (SYSTEM_PROMPT, QUESTION, RESPONSE)
    cells = read_columns(
        str(path), columns, count, may_be_empty=(SYSTEM_PROMPT,), or_named={RESPONSE: REFERENCE_RESPONSE}
    )
    return OrcaRows(cells[SYSTEM_PROMPT], cells[QUESTION], cells[RESPONSE])


def question_prompt(system_prompt: str, question: str) -> str:
    """Return a question in Llama 2's format, with its system prompt if it has one. [ref]"""
    system = f"<<SYS>>\n{system_prompt}\n<</SYS>>\n\n" if system_prompt else ""
    return f"<s>[INST] {system}{question} [/INST]"


def encode_questions(
    rows: OrcaRows, tokenizer: Tokenizer, progress: Callable[[int], None] | None = None
) -> Iterator[dict[str, Any]]:
    """Return rows in the MLCommons format, tokenized as the reference does. [ref]

    Args:
        tokenizer: tokenizer of the model; prompts end with the question if it lacks Llama 2's `FIRST_RESPONSE_ID`.
        progress: called with the number of finished rows, after each batch.
    """
    texts = list(map(question_prompt, rows.system_prompts, rows.questions))
    last = [FIRST_RESPONSE_ID] if tokenizer.vocab_size > FIRST_RESPONSE_ID else []
    return encoded(texts, texts, rows.responses, tokenizer, last, progress)


class OpenOrca(DatasetKind):
    """Questions of OpenOrca, of which MLCommons distributes a selection."""

    name = "OpenOrca"
    columns = "system_prompt, question and response"
    official_source = "MLCommons' selection of OpenOrca"

    def is_official(self, source: str) -> bool:
        return is_pickle(source)

    def read(self, request: DatasetRequest) -> SourceRows:
        if request.source == HUB:
            raise InputError(
                f"--source {HUB}: the Hugging Face Hub does not have MLCommons' selection of OpenOrca",
                f"fetch {OFFICIAL_NAME}.gz from MLCommons and give its path with --source",
            )
        if is_pickle(request.source):
            official = official_rows(Path(request.source), request.count)
            return SourceRows(len(official), lambda _: iter(official))
        tokenizer = request.tokenizer()
        rows = own_rows(Path(request.source), request.count)
        return SourceRows(len(rows), partial(encode_questions, rows, tokenizer))
