"""Rows in the MLCommons format (input, tok_input, output), and the file of all rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from qsl.tokenizers import Tokenizer
from runs.errors import InputError
from runs.files.writing import write_atomic

_BATCH = 256


@dataclass(frozen=True)
class Prepared:
    """The number of rows and the hash of a written file."""

    path: Path
    sha256: str
    rows: int
    longest_prompt_tokens: int
    mean_prompt_tokens: float


def encoded(
    inputs: Sequence[str],
    prompts: Iterable[str],
    outputs: Sequence[str],
    tokenizer: Tokenizer,
    last_ids: Sequence[int] = (),
    progress: Callable[[int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield rows in the MLCommons format from the texts of the three columns. `last_ids` are appended to every
    prompt.
    """
    texts = iter(prompts)
    for start in range(0, len(inputs), _BATCH):
        batch = inputs[start : start + _BATCH]
        ids_of_batch = tokenizer.encode_batch(list(islice(texts, _BATCH)))
        for text, ids, output in zip(batch, ids_of_batch, outputs[start : start + _BATCH], strict=True):
            yield {"input": text, "tok_input": [*ids, *last_ids], "output": output}
        if progress is not None:
            progress(start + len(batch))


def write_rows(output: Path, rows: Iterable[dict[str, Any]]) -> Prepared:
    """Write rows in the MLCommons format as one JSON array, whole or not at all.

    Raises:
        OSError: If `output` cannot be written.
        InputError: If the tokenizer returned no IDs for a prompt.
    """
    lines: list[bytes] = []
    lengths: list[int] = []
    for row in rows:
        if not row["tok_input"]:
            raise InputError(f"row {len(lines)}: the tokenizer returned no tokens for the prompt", "check --model-path")
        lengths.append(len(row["tok_input"]))
        lines.append(orjson.dumps(row))
    content = b"[\n" + b",\n".join(lines) + b"\n]\n"
    write_atomic(output, content)
    return Prepared(output, sha256(content).hexdigest(), len(lines), max(lengths), sum(lengths) / len(lengths))
