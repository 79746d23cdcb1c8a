"""The sample library: what LoadGen is given, and failures that never reach it."""

import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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


def test_construct_gives_loadgen_both_counts_and_the_callbacks() -> None:
    calls: list[tuple[Any, ...]] = []

    class Binding:
        def ConstructQSL(
            self,
            total: int,
            fits: int,
            load: Callable[[Sequence[int]], None],
            unload: Callable[[Sequence[int]], None],
            /,
        ) -> int:
            calls.append((total, fits, load, unload))
            return 77

    library = SampleLibrary(DATASET, print)
    assert library.construct(Binding()) == 77
    assert calls == [(3, 3, library.load, library.unload)]


def test_real_loadgen_loads_every_sample_once(tmp_path: Path) -> None:
    """In a process of its own: LoadGen runs once a process."""
    program = textwrap.dedent(
        f"""
        import mlperf_loadgen as lg
        from pathlib import Path
        from qsl.dataset import Dataset
        from qsl.dataset import SampleLibrary

        class Watched(SampleLibrary):
            def load(self, indices):
                super().load(indices)
                print("loaded", sorted(indices), flush=True)

            def unload(self, indices):
                print("unloaded", sorted(indices), flush=True)

        library = Watched(Dataset(Path("d"), "0", [[1, 2]] * 5, ["x"] * 5), print)
        qsl = library.construct(lg)
        sut = lg.ConstructSUT(
            lambda queries: lg.QuerySamplesComplete([lg.QuerySampleResponse(q.id, 0, 0, 2) for q in queries]),
            lambda: None,
        )
        settings = lg.TestSettings()
        settings.scenario, settings.mode = lg.TestScenario.Offline, lg.TestMode.AccuracyOnly
        logs = lg.LogSettings()
        logs.log_output.outdir = {str(tmp_path)!r}
        logs.enable_trace = False
        lg.StartTestWithLogSettings(sut, qsl, settings, logs, {str(tmp_path / "none.config")!r})
        lg.DestroyQSL(qsl)
        lg.DestroySUT(sut)
        """
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "loaded [0, 1, 2, 3, 4]" in done.stdout
    assert "unloaded [0, 1, 2, 3, 4]" in done.stdout
