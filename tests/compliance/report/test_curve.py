"""Throughput against latency: the points of real run folders, which are joined, and the page that shows them."""

from pathlib import Path

import pytest

from compliance.report.curve import point_of_folder
from scenarios.status.shown_legs import write_page
from tests.support.endpoints_client import unpack


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


def test_a_page_shows_run_folders(recorded: Path, tmp_path: Path) -> None:
    page = write_page([recorded], tmp_path / "page.html").read_text()
    assert "Throughput against latency over concurrency" in page
    assert page.count("Tokens/s against") == 3
    assert "server-died" in page
