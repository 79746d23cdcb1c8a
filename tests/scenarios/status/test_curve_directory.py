"""`status` of the directory of a curve: the curve, not the runs of the client."""

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from runs.errors import ExitCode
from runs.files.writing import write_json
from runs.mlperf_endpoints.layout import EVENTS
from scenarios.curve.client_process import EventLog
from scenarios.curve.curve_dir import VERIFIED, CurveDir
from scenarios.curve.curve_progress import LiveProgress
from tests.conftest import run_here
from tests.support.terminals.fake_terminal import terminal

LEVELS = {"r1": 128, "r2": 64, "r3": 32}


@pytest.fixture
def place(tmp_path: Path) -> CurveDir:
    """The directory of a curve with one finished point of three."""
    place = CurveDir(tmp_path / "curve")
    place.root.mkdir()
    place.lock.touch()
    place.config.write_text("{}")
    points = [{"name": name, "concurrency": level, "seconds": 3600} for name, level in LEVELS.items()]
    write_json(place.plan, {"points": points, "accelerators": 8})
    finish(place, "r1")
    return place


def finish(place: CurveDir, name: str) -> None:
    """Add a finished run of the client."""
    folder = place.point(name)
    folder.mkdir(parents=True)
    (folder / EVENTS).touch()
    write_json(folder / VERIFIED, {"duration_s": 1800})


def shown(place: CurveDir) -> dict[str, Any]:
    """Return the JSON of `status` on the curve, which has no other group."""
    finished = run_here("status", place.root, "--json")
    (group,) = (entry for entry in json.loads(finished.stdout)["answer"]["runs"] if entry["kind"] != "leg")
    assert finished.code == group["exit_code"]
    return dict(group)


def test_a_curve_in_progress_shows_its_points_hours_and_next_step(
    place: CurveDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scenarios.curve.curve_progress.HEARTBEAT_S", 0.0)
    console, screen = terminal(columns=100)
    with place.lock.open() as lock, LiveProgress(place, "r2", 500, console) as live:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (place.point("r2")).mkdir()
        (place.point("r2") / EVENTS).touch()
        assert "starting the client (0 s)" in screen.lines
        live.show(EventLog(place.point("r2") / EVENTS, issued=184, completed=120))
        group = shown(place)
        lines = list(screen.lines)
    assert (group["kind"], group["state"], group["done"], group["total"]) == ("curve", "running", 1, 3)
    summary = "1 of 3 points done, 1 to do; 4.0 of about 24.0 GPU hours; next: r3 (concurrency 32)"
    assert group["text"] == f"r2 (concurrency 64): 120 of 500 samples; {summary}"
    assert lines[0].startswith("r2 (concurrency 64)  ")
    assert lines[1].endswith(" 120 of 500 samples  24%")
    assert [line for line in lines if line.startswith("open")] == ["open  64"]
    assert summary in lines
    assert screen.text.strip() == ""
    assert not place.progress.exists()


def test_only_the_curve_is_shown_and_not_its_runs(place: CurveDir) -> None:
    text = run_here("status", place.root).stdout
    assert "curve" in text
    assert "Endpoints" not in text


@pytest.mark.parametrize(
    ("end", "state", "code"),
    [
        ({"exit_code": 0}, "finished", ExitCode.OK),
        ({"exit_code": 1}, "finished", ExitCode.NEGATIVE),
        ({"exit_code": 4, "message": "the server is dead"}, "failed", ExitCode.FAILED),
        ({"exit_code": 130, "message": "interrupted"}, "interrupted", ExitCode.INTERRUPTED),
        (None, "killed", ExitCode.FAILED),
    ],
    ids=["complete", "a point fails", "server dead", "interrupted", "killed"],
)
def test_an_ended_curve_has_the_state_of_its_end(
    place: CurveDir, end: dict[str, Any] | None, state: str, code: ExitCode
) -> None:
    if end is not None:
        write_json(place.root / "ended.json", end)
    write_json(place.progress, {"name": "r2", "samples": 500})  # of a killed command
    group = shown(place)
    assert (group["state"], group["exit_code"]) == (state, code)
    assert "r2 (concurrency 64): " not in group["text"]


def test_a_curve_with_all_points_needs_its_tree(place: CurveDir) -> None:
    for name in ("r2", "r3"):
        finish(place, name)
    write_json(place.root / "ended.json", {"exit_code": 0})
    assert shown(place)["text"].endswith("3 of 3 points done, 0 to do; 12.0 of about 24.0 GPU hours; next: the tree")
    place.tree.mkdir()
    assert "next" not in shown(place)["text"]


def test_a_curve_without_a_plan_shows_its_probes(place: CurveDir) -> None:
    place.plan.unlink()
    place.probe(64, 1).mkdir(parents=True)
    write_json(place.probe(64, 1) / VERIFIED, {"rate": 3.0})
    assert shown(place)["text"].startswith("1 probe done")


def test_a_damaged_plan_is_a_state(place: CurveDir) -> None:
    place.plan.write_text('{"points": 3}')
    group = shown(place)
    assert (group["state"], group["exit_code"]) == ("damaged", ExitCode.BAD_INPUT)


def test_report_does_not_replace_the_page_of_a_curve(place: CurveDir) -> None:
    place.page.write_text("page of the curve")
    assert run_here("report", place.root).code == ExitCode.BAD_INPUT
    assert place.page.read_text() == "page of the curve"
