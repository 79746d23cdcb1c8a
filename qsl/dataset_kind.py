"""What a dataset of a benchmark declares: how its sources become rows in the MLCommons format.

Each module in `qsl/datasets/` declares one dataset. `Benchmark.data_set` names it.
"""

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from qsl import datasets
from qsl.tokenizers import Tokenizer, load_tokenizer
from runs.errors import InputError

Steps = Callable[[int], None]  # called with the number of finished rows


@dataclass(frozen=True)
class DatasetRequest:
    """The rows that a user requests.

    Attributes:
        source: "hub" (the Hugging Face Hub), or the path of a file.
        count: number of rows, from the first one; None = all.
        ids: text file that selects rows by their IDs, one per line.
        model_path: directory or Hugging Face Hub ID of the model with the tokenizer.
    """

    source: str
    count: int | None = None
    ids: Path | None = None
    model_path: str | None = None

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer.

        Raises:
            InputError: If no model was given, or its tokenizer is unusable.
        """
        if self.model_path is None:
            raise InputError("--model-path: missing", "give the model folder or Hugging Face Hub ID with the tokenizer")
        return load_tokenizer(self.model_path)


@dataclass(frozen=True)
class SourceRows:
    """The rows of a source. They are encoded while they are iterated."""

    count: int
    encode: Callable[[Steps], Iterator[dict[str, Any]]]  # returns rows with the columns input, tok_input and output


class DatasetKind(ABC):
    """A dataset.

    Attributes:
        name: name in `Benchmark.data_set`.
        columns: columns that a source file must have, for the help text.
        official_source: the official rows, as a noun phrase.
        calibration_list_sha256: SHA-256 of the official list of calibration rows; None if IDs select no rows.
    """

    name: ClassVar[str]
    columns: ClassVar[str]
    official_source: ClassVar[str]
    calibration_list_sha256: ClassVar[str | None] = None

    @abstractmethod
    def read(self, request: DatasetRequest) -> SourceRows:
        """Read and check a source.

        Raises:
            InputError: If the source or another value of the request is unusable.
            SetupError: If the Hugging Face Hub is unreachable.
        """

    @abstractmethod
    def is_official(self, source: str) -> bool:
        """Return True if a source can only have official rows."""


def dataset_kinds() -> dict[str, DatasetKind]:
    """Return all datasets by name."""
    modules = (import_module(info.name) for info in pkgutil.iter_modules(datasets.__path__, f"{datasets.__name__}."))
    kinds = (
        value()
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, DatasetKind) and value.__module__ == module.__name__
    )
    return {kind.name: kind for kind in kinds}
