"""LoadGen's query sample library of a run."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from qsl.dataset import Dataset
from runs.errors import ExecutionError


@dataclass
class SampleLibrary:
    """LoadGen's query sample library: the samples of one run, all of them in memory.

    LoadGen calls `load` from its own thread. An exception that left it would unwind through LoadGen's C++ and leave it
    half open, so a failure is reported through `on_error` instead.
    """

    dataset: Dataset
    on_error: Callable[[BaseException], None]

    def prompt(self, index: int) -> list[int]:
        """Return the token IDs of sample `index`: the dataset's own list, which must not be changed."""
        return self.dataset.prompts[index]

    def load(self, indices: Sequence[int]) -> None:
        """LoadGen callback: these samples are needed next. Never raises."""
        try:
            for index in indices:
                if not 0 <= index < len(self.dataset):
                    raise ExecutionError(
                        f"LoadGen asked for sample {index}; the dataset has {len(self.dataset)} (0 to "
                        f"{len(self.dataset) - 1})",
                        "check performance_sample_count_override and the audit configuration",
                    )
        except BaseException as error:
            with contextlib.suppress(BaseException):  # A failing callback must not break LoadGen either.
                self.on_error(error)

    def unload(self, indices: Sequence[int]) -> None:
        """LoadGen callback: these are not needed any more. They stay in memory all the same."""

    def construct(self, lg: Any) -> Any:
        """LoadGen's handle (`lg` is its module); every sample fits in memory, so both counts are the dataset's."""
        return lg.ConstructQSL(len(self.dataset), len(self.dataset), self.load, self.unload)
