"""LoadGen's query sample library over a data set that is in memory already.

LoadGen calls `load` and `unload` from its own thread. An exception that left them would unwind through LoadGen's C++
and leave it half open, so a failure is remembered in `error` and reported through `on_error` instead.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from qsl.dataset import Dataset
from runs.errors import ExecutionError


class QslBinding(Protocol):
    """The part of the `mlperf_loadgen` module that is used here."""

    def ConstructQSL(
        self,
        total_sample_count: int,
        performance_sample_count: int,
        load: Callable[[Sequence[int]], None],
        unload: Callable[[Sequence[int]], None],
        /,
    ) -> Any: ...


class SampleLibrary:
    """The samples of one run.

    Attributes:
        dataset: the rows.
        loaded: indices that LoadGen has asked to be loaded and not yet unloaded.
        error: the first failure inside a callback, or None.
    """

    def __init__(self, dataset: Dataset, on_error: Callable[[BaseException], None] | None = None) -> None:
        self.dataset = dataset
        self.loaded: set[int] = set()
        self.error: BaseException | None = None
        self._on_error = on_error

    def __len__(self) -> int:
        return len(self.dataset)

    def prompt(self, index: int) -> list[int]:
        """Token ids of sample `index`; the data set's own list, not to be changed."""
        return self.dataset.prompts[index]

    def load(self, indices: Sequence[int]) -> None:
        """LoadGen callback: these samples are needed next. Never raises."""
        try:
            for index in indices:
                if not 0 <= index < len(self.dataset):
                    raise ExecutionError(
                        f"LoadGen asked for sample {index}; the data set has {len(self.dataset)} (0 to "
                        f"{len(self.dataset) - 1})",
                        "check performance_sample_count_override and the audit configuration",
                    )
            self.loaded.update(indices)
        except BaseException as error:
            self._fail(error)

    def unload(self, indices: Sequence[int]) -> None:
        """LoadGen callback: these samples are not needed any more. Never raises."""
        try:
            self.loaded.difference_update(indices)
        except BaseException as error:
            self._fail(error)

    def construct(self, lg: QslBinding) -> Any:
        """Register with LoadGen; every sample fits in memory, so both counts are the data set's.

        Args:
            lg: the `mlperf_loadgen` module.

        Returns:
            LoadGen's handle, to be given to StartTest and DestroyQSL.
        """
        return lg.ConstructQSL(len(self.dataset), len(self.dataset), self.load, self.unload)

    def _fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
        if self._on_error is not None:
            try:
                self._on_error(error)
            except BaseException as second:  # the observer must not break LoadGen either
                second.__context__ = error
                if self.error is error:
                    self.error = error
