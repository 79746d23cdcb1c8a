"""Mistakes that cost a newcomer a leg, a directory or an hour; each is told at once and leaves nothing in the way."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from runs.errors import SetupError
from runs.record.layout import RunDir, free_directory
from tests.conftest import Finished, run_here
from tests.support.legs import arguments

RunMain = Callable[..., Finished]


def test_a_leg_that_was_refused_leaves_its_directory_free(tmp_path: Path, run_main: RunMain) -> None:
    out = tmp_path / "leg"
    refused = run_main(*arguments("Offline", out, "--dummy-fault", "start"))
    assert refused.code == 3, refused.stderr
    assert RunDir(out).manifest.exists()
    finished = run_main(*arguments("Offline", out))
    assert finished.code == 0, finished.stderr
    assert run_main(*arguments("Offline", out)).code == 3  # now it holds a run
    assert run_here(*arguments("Offline", out, "--dry-run")).code == 3


def test_two_legs_of_the_same_second_have_a_directory_each(tmp_path: Path) -> None:
    wanted = tmp_path / "output" / "leg"
    assert [free_directory(wanted).name for _ in range(3)] == ["leg", "leg-2", "leg-3"]


def test_two_legs_at_once_in_one_directory(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "leg")
    refused: list[str] = []
    asking = threading.Event()

    def ask() -> None:
        asking.set()
        try:
            run.create()
        except SetupError as error:
            refused.append(error.message)

    other = threading.Thread(target=ask)
    with run.taken():
        other.start()
        asking.wait()
        time.sleep(0.1)  # so long the other one could go on
        run.manifest.write_text("{}")
    other.join()
    assert refused == [f"output directory {run.root} already holds a run (manifest.json)"]
