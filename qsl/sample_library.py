"""LoadGen's query sample library of a run."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from qsl.dataset import Dataset
from runs.errors import ExecutionError


@dataclass
class SampleLibrary:
    """LoadGen's query sample library: the samples of a run, all in memory.

    LoadGen calls `load` on its own thread. An exception would unwind LoadGen's C++ code and leave LoadGen half open, so
    failures are reported to `on_error`.
    """

    dataset: Dataset
    on_error: Callable[[BaseException], None]

    def prompt(self, index: int) -> list[int]:
        """Return the token IDs of sample `index`. The list belongs to the dataset and must not be changed."""
        return self.dataset.prompts[index]

    def load(self, indices: Sequence[int]) -> None:
        """Check samples that LoadGen will issue next. This callback of LoadGen never raises."""
        try:
            for index in indices:
                if not 0 <= index < len(self.dataset):
                    raise ExecutionError(
                        f"LoadGen requested sample {index}, but the dataset has {len(self.dataset)} (0 to "
                        f"{len(self.dataset) - 1})",
                        "check performance_sample_count_override and the audit configuration",
                    )
        except BaseException as error:
            with contextlib.suppress(BaseException):  # A failing callback must not break LoadGen either.
                self.on_error(error)

    def unload(self, indices: Sequence[int]) -> None:
        """Do nothing with samples that LoadGen no longer needs: they stay in memory."""

    def construct(self, lg: Any) -> Any:
        """Return LoadGen's handle. All samples fit in memory, so both counts are the size of the dataset."""
        return lg.ConstructQSL(len(self.dataset), len(self.dataset), self.load, self.unload)
