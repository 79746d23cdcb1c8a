"""The sample library: what LoadGen is given, and failures that never reach it."""

from pathlib import Path

import pytest

from qsl.dataset import Dataset, SampleLibrary
from runs.errors import ExecutionError

DATASET = Dataset(Path("d.json"), "0" * 64, [[1, 2], [3], [4, 5, 6]], ["a", "b", "c"])


def test_samples_stay_whatever_loadgen_gives_back() -> None:
    seen: list[BaseException] = []
    library = SampleLibrary(DATASET, seen.append)
    library.load([0, 2])
    library.unload([2])
    assert library.prompt(2) is DATASET.prompts[2]
    assert seen == []


@pytest.mark.parametrize("index", [3, -1])
def test_an_index_out_of_range_is_reported_and_not_raised(index: int) -> None:
    seen: list[BaseException] = []
    library = SampleLibrary(DATASET, seen.append)
    library.load([0, index])
    (error,) = seen
    assert isinstance(error, ExecutionError)
    assert f"sample {index}" in error.message


def test_whoever_is_told_of_errors_does_no_harm() -> None:
    told: list[BaseException] = []

    def broken(error: BaseException) -> None:
        told.append(error)
        raise RuntimeError("observer")

    library = SampleLibrary(DATASET, broken)
    library.load([7])
    library.load(None)  # type: ignore[arg-type]
    assert [type(error) for error in told] == [ExecutionError, TypeError]
