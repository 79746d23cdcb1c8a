"""OpenOrca as llama2-70b asks it: the official pickle or rows of one's own, to the MLCommons format.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20):
  [ref]   language/llama2-70b/processorca.py and README
  [hash]  mlcommons/endpoints, the data set's own page: SHA-256 of the file that MLCommons distributes

MLCommons distributes this data set as a pickled DataFrame, and loading a pickle runs whatever it names. So the file has
to have the published hash before a byte of it is interpreted, and the reader makes nothing but DataFrames, their
blocks and indexes, and NumPy arrays; any other name ends it.
"""

import gzip
import importlib
import io
import pickle
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from qsl.cnn_dailymail.prepare import encoded, read_columns
from qsl.dataset import check_rows
from qsl.dataset_file import MAX_BYTES
from qsl.tokenizers import Tokenizer
from runs.errors import InputError
from runs.reading import read_whole

OFFICIAL_NAME = "open_orca_gpt4_tokenized_llama.sampled_24576.pkl"  # [ref]; also as .pkl.gz
OFFICIAL_SHA256 = "b64e66e54b6267f79eb4f9ccec52d466bab3ac94747ed258c3b0f337ed166fab"  # [hash], of the .pkl
SYSTEM_PROMPT, QUESTION, RESPONSE = "system_prompt", "question", "response"  # OpenOrca's own columns
REFERENCE_RESPONSE = "output"  # as the reference's preparation names it [ref]
# Llama 2's id of a space, which it begins every answer with: at the end of the prompt nobody can send it ahead. [ref]
FIRST_ANSWER_ID = 29871

# module of the pickle -> (module today, names). Pickles of pandas 1 and 2 and of NumPy 1 use the older modules.
_MODULES: dict[str, tuple[str, frozenset[str]]] = {
    "builtins": ("builtins", frozenset({"slice", "bytearray"})),
    "__builtin__": ("builtins", frozenset({"slice", "bytearray"})),
    "numpy": ("numpy", frozenset({"ndarray", "dtype"})),
    "numpy.core.multiarray": ("numpy._core.multiarray", frozenset({"_reconstruct"})),
    "numpy._core.multiarray": ("numpy._core.multiarray", frozenset({"_reconstruct"})),
    "numpy.core.numeric": ("numpy._core.numeric", frozenset({"_frombuffer"})),
    "numpy._core.numeric": ("numpy._core.numeric", frozenset({"_frombuffer"})),
    "pandas": ("pandas", frozenset({"DataFrame", "Index", "RangeIndex"})),
    "pandas.core.frame": ("pandas", frozenset({"DataFrame"})),
    "pandas.core.indexes.base": ("pandas.core.indexes.base", frozenset({"_new_Index", "Index"})),
    "pandas.core.indexes.range": ("pandas", frozenset({"RangeIndex"})),
    "pandas.core.internals.managers": ("pandas.core.internals.managers", frozenset({"BlockManager"})),
    "pandas.core.internals.blocks": ("pandas.core.internals.blocks", frozenset({"new_block"})),
    "pandas._libs.internals": ("pandas._libs.internals", frozenset({"_unpickle_block"})),
}


@dataclass(frozen=True)
class OrcaRows:
    """Questions and their answers, row by row; the system prompt may be empty."""

    system_prompts: list[str]
    questions: list[str]
    responses: list[str]

    def __len__(self) -> int:
        return len(self.questions)


def is_pickle(source: str) -> bool:
    """Whether a source is to be read as the official pickle."""
    return source.lower().endswith((".pkl", ".pkl.gz"))


def official_rows(path: Path, published_sha256: str = OFFICIAL_SHA256) -> list[dict[str, Any]]:
    """The rows of the official pickle, tokenised as it has them.

    Raises:
        InputError: another file than the published one, or no table of such rows.
    """
    names = ("input", "tok_input", "output")
    table = read_table(path, published_sha256, names)
    rows = [
        {"input": text, "tok_input": [int(one) for one in ids], "output": answer}
        for text, ids, answer in zip(*(table[name] for name in names), strict=True)
    ]
    check_rows(rows, path)
    return rows


def own_rows(path: Path, count: int | None = None) -> OrcaRows:
    """Rows of a Parquet, CSV, TSV, JSON or JSON lines file with OpenOrca's columns, or those of the reference.

    Raises:
        InputError: no such file, a kind not known, columns missing, a cell empty or not a string, too few rows.
    """
    columns = (SYSTEM_PROMPT, QUESTION, RESPONSE)
    cells = read_columns(
        str(path), columns, count, may_be_empty=(SYSTEM_PROMPT,), or_named={RESPONSE: REFERENCE_RESPONSE}
    )
    return OrcaRows(cells[SYSTEM_PROMPT], cells[QUESTION], cells[RESPONSE])


def render(system_prompt: str, question: str) -> str:
    """Llama 2's form of a question, with its system prompt where there is one. [ref]"""
    system = f"<<SYS>>\n{system_prompt}\n<</SYS>>\n\n" if system_prompt else ""
    return f"<s>[INST] {system}{question} [/INST]"


def encode_rows(
    rows: OrcaRows, tokenizer: Tokenizer, progress: Callable[[int], None] | None = None
) -> Iterator[dict[str, Any]]:
    """Rows in the MLCommons format, tokenised as the reference does. [ref]

    Args:
        tokenizer: one that lacks `FIRST_ANSWER_ID` is not Llama 2's, and prompts end with the question.
        progress: told the number of rows done so far, a batch at a time.
    """
    texts = list(map(render, rows.system_prompts, rows.questions))
    last = [FIRST_ANSWER_ID] if tokenizer.vocab_size > FIRST_ANSWER_ID else []
    return encoded(texts, texts, rows.responses, tokenizer, last, progress)


def read_table(
    path: Path, published_sha256: str, columns: tuple[str, ...], *, max_bytes: int = MAX_BYTES
) -> dict[str, list[Any]]:
    """Columns of a pickled DataFrame, as lists.

    Args:
        path: the pickle, or a gzip file of it.
        published_sha256: hex hash of the pickle itself.
        max_bytes: of the file, and of what it unpacks to.

    Raises:
        InputError: unreadable, another hash, no table, or a column is missing.
    """
    try:
        data = read_whole(path, "fetch it again", max_bytes=max_bytes)
        if data.startswith(b"\x1f\x8b"):
            with gzip.open(io.BytesIO(data)) as stream:  # a few kilobytes may be as many gigabytes
                data = stream.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise InputError(f"{path} holds more than {max_bytes:,} bytes", "fetch it again")
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}", "fetch it again") from error
    digest = sha256(data).hexdigest()
    if digest != published_sha256:
        raise InputError(
            f"{path} is a pickle with SHA-256 {digest}, the published one has {published_sha256}; another "
            "could run any code",
            "fetch the file from MLCommons again, or save the table as Parquet or JSON where you trust it",
        )
    table = _load(path, data)
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}; it has {', '.join(map(str, table.columns))}")
    return {name: table[name].tolist() for name in columns}


def _load(path: Path, data: bytes) -> Any:
    import pandas

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # older pickles set attributes that are deprecated
            table = _TableUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # a pickle raises anything
        raise InputError(f"{path} is no pickled table: {error}", "fetch it again") from error
    if type(table) is not pandas.DataFrame:
        raise InputError(f"{path} holds a {type(table).__name__}, not a table", "fetch it again")
    return table


class _TableUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _as_bytes
        today, names = _MODULES.get(module, ("", frozenset()))
        if name not in names:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a table")
        return getattr(importlib.import_module(today), name)


def _as_bytes(text: str, encoding: str) -> bytes:
    """Bytes as protocol 2 has them."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes in {encoding}")
    return text.encode("latin1")
