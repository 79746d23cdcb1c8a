"""A leg's process is started before the leg is checked: what it inherits, and that a refused leg leaves nothing."""

import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from tests.conftest import Finished, StartedMain
from tests.support.legs import alive, arguments, check_failed, patched, until

RunMain = Callable[..., Finished]
StartMain = Callable[..., StartedMain]

# Leaves a line at each start of a leg's process: its number, and a variable.
NOTE_START = """
import os, pathlib
with pathlib.Path({path!r}).open("a") as notes:
    print(os.getpid(), os.environ.get("GUESSED", "-"), file=notes)
"""
# Checking that takes longer than any test.
SLOW_CHECKS = """
import time
import qsl.dataset
qsl.dataset.check_rows = lambda *arguments, **more: time.sleep(3600)
"""


def starts(notes: Path) -> list[tuple[int, str]]:
    """Process number and variable of each start so far."""
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [(int(pid), guessed) for pid, guessed in map(str.split, lines)]


def test_a_refused_leg_leaves_neither_process_nor_directory(
    run_main: RunMain, make_dataset: Callable[..., Path], tmp_path: Path
) -> None:
    out, notes = tmp_path / "run", tmp_path / "notes"
    data = make_dataset([1, 2], [3, -4])
    finished = run_main(
        *arguments("Offline", out, "--dataset-path", data),
        environment=patched(tmp_path, in_leg=NOTE_START.format(path=str(notes))),
    )
    assert finished.code == ExitCode.BAD_INPUT
    assert "id -4 at position 1" in finished.stderr
    assert not out.exists()
    assert not any(alive(pid) for pid, _ in starts(notes))


def test_another_environment_than_planned_means_another_process(start_main: StartMain, tmp_path: Path) -> None:
    out, notes = tmp_path / "run", tmp_path / "notes"
    guess = """
    from sut.dummy.kind import DummyKind
    DummyKind.early_environment = lambda kind, asked: {"GUESSED": "wrongly"}
    """
    finished = start_main(
        *arguments("Offline", out),
        environment=patched(tmp_path, in_leg=NOTE_START.format(path=str(notes)), in_parent=guess),
    ).wait()
    assert finished.code == ExitCode.OK, finished.stderr
    # The first may be ended before it comes to write its line; the last one ran the leg.
    assert starts(notes)[-1] == (read_manifest(RunDir(out).manifest).pid, "-")
    assert {guessed for _, guessed in starts(notes)} <= {"wrongly", "-"}


def test_what_the_process_says_while_it_imports_stands_in_the_engines_log(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    late = """
    print("said early", flush=True)
    from sut.dummy.engine import DummyEngine
    start = DummyEngine.start
    async def start_and_say(self):
        print("said late")
        return await start(self)
    DummyEngine.start = start_and_say
    """
    finished = run_main(*arguments("Offline", out), environment=patched(tmp_path, in_leg=late))
    assert finished.code == ExitCode.OK, finished.stderr
    assert RunDir(out).engine_log.read_text() == "said early\nsaid late\n"


def test_the_last_words_of_a_process_that_ends_while_it_imports_are_kept(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    end = 'print("no library", flush=True)\nimport os\nos._exit(9)'
    finished = run_main(*arguments("Offline", out), environment=patched(tmp_path, in_leg=end))
    check_failed(finished, out, ExitCode.FAILED, "ended with code 9 without naming a cause")
    assert RunDir(out).engine_log.read_text() == "no library\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_ended_before_the_leg_is_checked(number: signal.Signals, start_main: StartMain, tmp_path: Path) -> None:
    out, notes = tmp_path / "run", tmp_path / "notes"
    started = start_main(
        *arguments("Offline", out),
        environment=patched(tmp_path, in_leg=NOTE_START.format(path=str(notes)), in_parent=SLOW_CHECKS),
    )
    ((group, _),) = until(lambda: starts(notes), "the leg's process")
    assert alive(group)
    started.process.send_signal(number)
    finished = started.wait()
    if number == signal.SIGINT:
        assert finished.code == ExitCode.INTERRUPTED
        assert "interrupted by SIGINT" in finished.stderr
        assert not psutil.pid_exists(group)
    until(lambda: not alive(group), "the end of the leg's process")
    assert not out.exists()
