"""The dataset of a run: prompts as token IDs, reference summaries, and the hash of their file.

Columns (MLCommons format): `input` the article, `tok_input` the prompt's token IDs, `output` the reference summary.
The IDs are used unchanged; a run does not tokenize.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from qsl.dataset_file import PREPARE_FIX, parse_rows, read_dataset_bytes, shorten
from runs.errors import InputError

COLUMNS = ("input", "tok_input", "output")

_BLANKS = b" \t\r\n"
# Words in the last line of each reference summary that scripts/make_rehearsal_dataset.py writes.
SYNTHETIC_MARK = "Synthetic rehearsal row"
# LoadGen's accuracy log has IDs as int32, which limits the IDs of a vocabulary.
LARGEST_ID = 2**31 - 1


@dataclass(frozen=True)
class Dataset:
    """Rows of a validated dataset, in file order."""

    path: Path  # path of the file
    sha256: str  # SHA-256 of the whole file, even if only its first rows are used
    prompts: list[list[int]]  # token IDs per row
    targets: list[str]  # reference summary per row
    # Minimum and maximum output tokens per row, from the column `output_lengths`; None = as in the sampling of the run
    output_lengths: list[tuple[int, int]] | None = None

    def __len__(self) -> int:
        return len(self.prompts)

    def select(self, rows: Sequence[int]) -> "Dataset":
        """Return a dataset with only these rows, in this order."""
        prompts, targets = [self.prompts[row] for row in rows], [self.targets[row] for row in rows]
        lengths = None if self.output_lengths is None else [self.output_lengths[row] for row in rows]
        return Dataset(self.path, self.sha256, prompts, targets, lengths)

    @cached_property
    def longest_prompt(self) -> int:
        """Length of the longest prompt, in tokens."""
        return max(len(prompt) for prompt in self.prompts)


@dataclass(frozen=True)
class References:
    """The columns of a dataset that the rules need."""

    sha256: str  # SHA-256 of the file
    texts: list[str]  # reference summaries by sample index
    prompt_tokens: NDArray[np.int64]  # length of each prompt, in tokens, an array of shape (samples,)


class _Row(msgspec.Struct):
    output: str
    tok_input: msgspec.Raw  # The IDs stay undecoded, because decoding them takes most of the time.


def load_references(path: Path) -> References:
    """Return the columns that the rules need, in a fraction of the time of `load_dataset`.

    Raises:
        InputError: If `load_dataset` raises it; that function reads files that are not an array of valid rows.
    """
    data = read_dataset_bytes(path)
    try:
        rows = msgspec.json.decode(data, type=list[_Row])
        lengths = list(map(_prompt_length, rows))
        if not rows or not all(row.output.strip() for row in rows):
            raise ValueError("an empty column")
        texts = [row.output for row in rows]
    except (msgspec.DecodeError, ValueError, RecursionError):
        dataset = load_dataset(path)
        return References(dataset.sha256, dataset.targets, np.array(list(map(len, dataset.prompts)), dtype=np.int64))
    return References(sha256(data).hexdigest(), texts, np.array(lengths, dtype=np.int64))


def _prompt_length(row: _Row) -> int:
    ids = bytes(row.tok_input)
    if ids.translate(None, b"0123456789," + _BLANKS) != b"[]" or not ids.strip(b"[]" + _BLANKS):
        raise ValueError("no whole numbers")
    return ids.count(b",") + 1


def load_dataset(
    path: Path | str,
    *,
    count: int | None = None,
    vocab_size: int | None = None,
    max_prompt_tokens: int | None = None,
    checked_sha256: str | None = None,
) -> Dataset:
    """Read and check a dataset in the MLCommons format.

    Args:
        path: JSON array, JSON lines or pandas' column-oriented JSON.
        count: number of rows to take; None = all. Further rows are not checked.
        vocab_size: IDs must be in [0, vocab_size).
        max_prompt_tokens: longest prompt that the engine accepts.
        checked_sha256: SHA-256 of a file whose rows were checked before; rows of a file with this hash are not
            checked again.

    Raises:
        InputError: If a row is invalid; it names file, row (from 0), column, value and the fix.
    """
    path = Path(path)
    if count is not None and count < 1:
        raise InputError(
            f"sample count {count} is below 1", "give a count of at least 1, or remove the option to use all rows"
        )
    data = read_dataset_bytes(path)
    digest = sha256(data).hexdigest()
    rows = parse_rows(data, path, COLUMNS)
    del data
    if not rows:
        raise InputError(f"dataset {path} has no rows", PREPARE_FIX)
    if count is not None:
        if count > len(rows):
            raise InputError(
                f"sample count {count} is more than the {len(rows)} rows of {path}",
                f"give a count of at most {len(rows)}, or a larger dataset",
            )
        del rows[count:]
    if digest != checked_sha256:
        check_rows(rows, path, vocab_size=vocab_size, max_prompt_tokens=max_prompt_tokens)
    prompts, targets = ([row[column] for row in rows] for column in ("tok_input", "output"))
    return Dataset(path, digest, prompts, targets, _output_lengths(rows, path))


def _output_lengths(rows: Sequence[dict[str, Any]], path: Path) -> list[tuple[int, int]] | None:
    if "output_lengths" not in rows[0]:
        return None
    for number, row in enumerate(rows):
        value = row.get("output_lengths")
        if not (
            isinstance(value, list) and [type(number) for number in value] == [int, int] and 1 <= value[0] <= value[1]
        ):
            raise _bad_cell(path, number, "output_lengths", value, "is not [fewest, most] output tokens")
    return [(row["output_lengths"][0], row["output_lengths"][1]) for row in rows]


def check_rows(
    rows: Sequence[dict[str, Any]], path: Path, *, vocab_size: int | None = None, max_prompt_tokens: int | None = None
) -> None:
    """Check every row's columns, types and ranges; extra columns are ignored.

    Raises:
        InputError: If a row is invalid; it names the first such row.
    """
    largest_id = LARGEST_ID if vocab_size is None else vocab_size - 1
    for number, row in enumerate(rows):
        for column in COLUMNS:
            if column not in row:
                raise InputError(
                    f"{path}, row {number}: no column {column!r}; its columns are {shorten(sorted(row))}", PREPARE_FIX
                )
        for column in ("input", "output"):
            text = row[column]
            if not isinstance(text, str):
                raise _bad_cell(path, number, column, text, "is not a string")
            if not text.strip():
                raise _bad_cell(path, number, column, text, "is empty")
        _check_prompt(path, number, row["tok_input"], largest_id, vocab_size, max_prompt_tokens)


def _check_prompt(
    path: Path, row: int, ids: Any, largest_id: int, vocab_size: int | None, max_prompt_tokens: int | None
) -> None:
    if not isinstance(ids, list):
        raise _bad_cell(path, row, "tok_input", ids, "is not a list of token IDs")
    if not ids:
        raise _bad_cell(path, row, "tok_input", ids, "is empty")
    if set(map(type, ids)) != {int}:  # exact types, because isinstance and NumPy accept a JSON true as an integer
        place, value = next((place, value) for place, value in enumerate(ids) if type(value) is not int)
        raise _bad_cell(path, row, "tok_input", value, f"at position {place} is not an integer")
    try:
        array = np.array(ids, dtype=np.int64)
        outside = (array < 0) | (array > largest_id)
        first = int(outside.argmax()) if outside.any() else None
    except OverflowError:
        first = next(place for place, value in enumerate(ids) if not 0 <= value <= largest_id)
    if first is not None:
        fix = (
            f"the dataset was tokenized for another model (the IDs of this model are 0 to {largest_id}): "
            "prepare it with scripts/prepare_dataset.py --model-path"
            if vocab_size is not None
            else PREPARE_FIX
        )
        raise InputError(
            f"{path}, row {row}, column 'tok_input': ID {ids[first]} at position {first} is outside 0 to {largest_id}",
            fix,
        )
    if max_prompt_tokens is not None and len(ids) > max_prompt_tokens:
        raise InputError(
            f"{path}, row {row}, column 'tok_input': {len(ids)} tokens, but the engine takes prompts of at most "
            f"{max_prompt_tokens} tokens",
            "raise the engine's maximum model length, or remove the row",
        )


def _bad_cell(path: Path, row: int, column: str, value: object, problem: str) -> InputError:
    return InputError(f"{path}, row {row}, column {column!r}: {shorten(value)} {problem}", PREPARE_FIX)
