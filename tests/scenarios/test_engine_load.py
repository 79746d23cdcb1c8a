"""Telling a computing engine from an idle one."""

import subprocess
import sys

import pytest

from scenarios import engine_load


@pytest.mark.parametrize(
    ("code", "working"),
    [("import time; print(flush=True); time.sleep(60)", False), ("print(flush=True)\nwhile True: pass", True)],
    ids=["idle", "computing"],
)
def test_children_are_working(code: str, working: bool) -> None:
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()  # it is up: what follows is what it does
        assert engine_load.children_are_working() is working
    finally:
        child.kill()
        child.wait()


def test_without_children_nothing_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_load, "LOOK_S", 0.01)
    assert engine_load.children_are_working() is False
