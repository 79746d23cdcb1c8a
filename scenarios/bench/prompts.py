"""The sources of a bench's prompts: random words of exact lengths, prompts of a file, and the benchmark's dataset.

A source numbers its rows, so that each run takes new rows and a run can be repeated. Rows are JSON in the MLCommons
format (qsl/dataset.py).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from qsl.dataset import SYNTHETIC_MARK, check_rows
from qsl.dataset_file import parse_rows, read_dataset_bytes, shorten
from qsl.tokenizers import BYTES, load_tokenizer
from runs.errors import InputError

BLOCK, BLOCK_TOKENS = 1024, 2**20  # maximum number of rows, and of their tokens, that share a random generator
FEWEST_WORDS = 1000
ENOUGH_ROWS = 2**40  # more than all rows of a bench
SPECIAL_TOKENS = 16  # maximum number of tokens that a tokenizer adds to a text
MAX_LISTED = 10
CUSTOM_FIX = 'write JSON lines such as {"prompt": "Summarize: …", "output_tokens": 128}'
FileKind = Literal["benchmark", "custom", "sharegpt"]
PromptLengths = tuple[int, int]  # lowest and highest number of tokens; each in between is equally likely
_WORD = re.compile(r" [A-Za-z]+")


class Prompts(Protocol):
    """A source of rows."""

    @property
    def total(self) -> int:
        """Number of different rows. After the last row, the first row follows."""

    @property
    def longest(self) -> int:
        """Upper bound of the number of tokens in a prompt."""

    def rows(self, first: int, count: int) -> list[bytes]:
        """Return rows as JSON objects. Row numbers may be below 0."""

    def facts(self) -> dict[str, str]:
        """Return the facts that must be equal in a comparison."""


@dataclass(frozen=True)
class Synthetic:
    """Random words of one token each, so that a text has as many tokens as its prompt.

    The first tokens are the row's number, so prompts differ from their first token on, and no cached prefix applies.
    """

    tokenizer: str
    input_len: PromptLengths
    output_len: PromptLengths
    seed: int

    @cached_property
    def _words(self) -> NDArray[np.int64]:
        """IDs of words that the tokenizer encodes as one ID; all IDs if such words are few."""
        if self.tokenizer == BYTES:
            return np.array([*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1)])
        tokenizer = load_tokenizer(self.tokenizer)
        texts = tokenizer.batch_decode([token_id] for token_id in range(tokenizer.vocab_size))
        token_ids = [token_id for token_id, text in enumerate(texts) if _WORD.fullmatch(text)]
        again = tokenizer.encode_batch([texts[token_id] for token_id in token_ids])
        kept = [token_id for token_id, ids in zip(token_ids, again, strict=True) if ids[-1:] == [token_id]]
        return np.array(kept if len(kept) >= FEWEST_WORDS else range(tokenizer.vocab_size))

    @cached_property
    def _shuffled(self) -> NDArray[np.int64]:
        return np.random.default_rng(self.seed).permutation(self._words)

    @cached_property
    def _digits(self) -> int:
        enough = (n for n in range(1, self.input_len[0]) if len(self._words) ** n >= ENOUGH_ROWS)
        return next(enough, self.input_len[0])

    @property
    def total(self) -> int:
        return int(min(len(self._words) ** self._digits, ENOUGH_ROWS))

    @property
    def longest(self) -> int:
        return self.input_len[1]

    def rows(self, first: int, count: int) -> list[bytes]:
        size = min(BLOCK, max(1, BLOCK_TOKENS // self.longest))
        blocks = range(first // size, (first + count - 1) // size + 1)
        rows = [row for block in blocks for row in self._block(block, size)]
        return rows[first % size :][:count]

    def _block(self, block: int, size: int) -> list[bytes]:
        chooser = np.random.default_rng([self.seed, block % ENOUGH_ROWS])
        inputs, outputs = (chooser.integers(low, high + 1, size) for low, high in (self.input_len, self.output_len))
        ids = self._words[chooser.integers(0, len(self._words), (size, self.longest))]
        numbers = (np.arange(size) + block * size) % ENOUGH_ROWS
        for digit in range(self._digits):
            numbers, rest = np.divmod(numbers, len(self._words))
            ids[:, digit] = self._shuffled[rest]
        return [
            _row("synthetic prompt", ids[i, : inputs[i]], SYNTHETIC_MARK, (int(outputs[i]), int(outputs[i])))
            for i in range(size)
        ]

    def facts(self) -> dict[str, str]:
        shown = {"input_tokens": self.input_len, "output_tokens": self.output_len}
        return {"data": "synthetic"} | {key: "-".join(map(str, dict.fromkeys(values))) for key, values in shown.items()}


def _row(text: str, ids: Any, output: str, output_tokens: PromptLengths | None) -> bytes:
    row: dict[str, Any] = {"input": text, "tok_input": ids, "output": output}
    if output_tokens is not None:
        row["output_lengths"] = output_tokens
    return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)


@dataclass(frozen=True)
class FilePrompts:
    """The prompts of a file, in its order; after the last row, the first row follows."""

    path: Path
    sha256: str
    kind: FileKind
    content: Sequence[dict[str, Any]]
    tokenizer: str
    output_tokens: int  # maximum for rows that state none
    exact: bool  # True if the end token is ignored

    @property
    def total(self) -> int:
        return len(self.content)

    @cached_property
    def longest(self) -> int:
        if self.kind == "benchmark":
            return max(len(row["tok_input"]) for row in self.content)
        return max(len(row["prompt"].encode()) for row in self.content) + SPECIAL_TOKENS

    def output_of(self, row: dict[str, Any]) -> int:
        return row.get("output_tokens") or self.output_tokens

    def rows(self, first: int, count: int) -> list[bytes]:
        rows = [self.content[number % self.total] for number in range(first, first + count)]
        if self.kind == "benchmark":
            return [_row(row["input"], row["tok_input"], row["output"], None) for row in rows]
        prompts = load_tokenizer(self.tokenizer).encode_batch([row["prompt"] for row in rows])
        return [
            _row(row["prompt"], ids, "none", (self.output_of(row) if self.exact else 2, self.output_of(row)))
            for row, ids in zip(rows, prompts, strict=True)
        ]

    def facts(self) -> dict[str, str]:
        return {"data": f"{self.kind} file", "dataset_sha256": self.sha256, "output_tokens": str(self.output_tokens)}


def read_prompts(
    path: Path, kind: FileKind | None, tokenizer: str, output_tokens: int, *, exact: bool,
    vocab_size: int | None, longest: int | None,
) -> FilePrompts:  # fmt: skip
    """Read a file of prompts and check each row.

    Args:
        kind: Format of the file; None = by its first row.
        longest: Maximum length of prompt and output together, in tokens; None = no limit.

    Raises:
        InputError: If rows are wrong; the message states their number and lines.
    """
    data = read_dataset_bytes(path)
    rows = parse_rows(data, path, ("prompt",))
    if kind is None and rows:
        kind = "benchmark" if "tok_input" in rows[0] else "sharegpt" if "conversations" in rows[0] else "custom"
    if kind == "benchmark":
        check_rows(
            rows, path, vocab_size=vocab_size, max_prompt_tokens=None if longest is None else longest - output_tokens
        )
    if kind == "sharegpt":
        rows = [_from_conversation(row) for row in rows]
    prompts = FilePrompts(path, sha256(data).hexdigest(), kind or "custom", rows, tokenizer, output_tokens, exact)
    problems = {} if kind == "benchmark" else {i: problem for i, row in enumerate(rows) if (problem := _fault(row))}
    if kind != "benchmark" and longest is not None and not problems:
        problems = _too_long(prompts, longest)
    if problems or not rows:
        lines = [number for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
        places = (
            [f"line {line}" for line in lines] if len(lines) == len(rows) else [f"row {i}" for i in range(len(rows))]
        )
        listed = [f"{places[i]}: {problem}" for i, problem in problems.items()][:MAX_LISTED]
        more = [f"{len(problems) - MAX_LISTED:,} more"] if len(problems) > MAX_LISTED else []
        what = f"{len(problems):,} of {len(rows):,} rows cannot be used: {'; '.join(listed + more)}"
        raise InputError(f"--dataset-path {path}: {what}", CUSTOM_FIX)
    return prompts


def _from_conversation(row: dict[str, Any]) -> dict[str, Any]:
    turns = row.get("conversations")
    first = turns[0] if isinstance(turns, list) and turns else None
    return {"prompt": first.get("value")} if isinstance(first, dict) else {}


def _fault(row: dict[str, Any]) -> str:
    prompt, tokens = row.get("prompt"), row.get("output_tokens")
    if "prompt" not in row:
        return "no prompt"
    if not isinstance(prompt, str) or not prompt.strip():
        return f"prompt {shorten(prompt)} is not a text, or empty"
    if tokens is not None and (type(tokens) is not int or tokens < 2):
        return f"output_tokens {shorten(tokens)} is not a whole number from 2"
    return ""


def _too_long(prompts: FilePrompts, longest: int) -> dict[int, str]:
    """Return the prompts that do not fit with their output. A prompt has at most as many tokens as bytes."""
    allowed = [longest - prompts.output_of(row) for row in prompts.content]
    texts = [row["prompt"] for row in prompts.content]
    suspect = [i for i, text in enumerate(texts) if len(text.encode()) + SPECIAL_TOKENS > allowed[i]]
    if not suspect:
        return {}
    ids = load_tokenizer(prompts.tokenizer).encode_batch([texts[i] for i in suspect])
    return {
        i: f"{len(token_ids):,} tokens; at most {allowed[i]:,} fit in addition to the output"
        for i, token_ids in zip(suspect, ids, strict=True)
        if len(token_ids) > allowed[i]
    }
