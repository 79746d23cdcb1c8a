"""Throughput against latency: the points of real run folders, which are joined, and the page that shows them."""

from dataclasses import replace
from pathlib import Path

import pytest

from compliance.report.curve import curves, point_of_folder
from compliance.report.pictures import CurvePoint
from scenarios.status.shown_legs import write_page
from tests.compliance.report.test_pictures import root_of, texts
from tests.support.endpoints_client import unpack

FAST = CurvePoint("fast", "8", 900.0, 20.0, 2.0)
SLOW = CurvePoint("slow", "1", 100.0, 30.0, 4.0)
OURS = CurvePoint("leg", "12/s", 500.0, 25.0, 3.0, (2000.0, 100.0), ours=True)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("recorded"))


def test_a_folder_is_a_point(recorded: Path) -> None:
    point = point_of_folder(recorded / "concurrency", "c")
    assert point is not None
    assert (point.load, point.holds, point.ours) == ("8", True, False)
    assert point.tokens_per_user == pytest.approx(1000 / (point.tpot_ms or 0))
    died = point_of_folder(recorded / "server-died", "d")
    assert died is not None
    assert not died.holds
    offline = point_of_folder(recorded / "offline", "o")
    assert offline is not None
    assert (offline.load, offline.ttft_ms) == ("Offline", None)


def test_points_are_drawn_by_what_they_are() -> None:
    ttft, tpot, user = curves([FAST, SLOW, OURS])
    assert {"8", "1", "12/s", "P90 TTFT, ms"} <= texts(ttft)
    assert "12/s: 500 at 25" in ttft.words
    assert "1,000 / P90 TPOT" in user.words
    assert tpot.svg != next(iter(curves([FAST, SLOW, replace(OURS, holds=False)]))).svg
    assert root_of(user) is not None


def test_one_point_is_no_curve() -> None:
    assert not list(curves([FAST]))
    assert not list(curves([FAST, replace(SLOW, ttft_ms=None, tpot_ms=None)]))


def test_a_page_shows_run_folders(recorded: Path, tmp_path: Path) -> None:
    page = write_page([recorded], tmp_path / "page.html").read_text()
    assert "Throughput against latency over concurrency" in page
    assert page.count("Tokens/s against") == 3
    assert "server-died" in page
