"""Throughput against latency: the points of real run folders, which are joined, and the page that shows them."""

from pathlib import Path

import pytest

from compliance.report.curve import point_of_folder
from scenarios.status.shown_legs import write_page
from tests.support.endpoints_client import unpack
from tests.support.recorded import OVER_HTTP, recorded


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("recorded"))


def test_a_folder_is_a_point(folders: Path) -> None:
    point = point_of_folder(folders / "concurrency", "c")
    assert point is not None
    assert (point.load, point.holds, point.ours) == ("8", True, False)
    assert point.tokens_per_user == pytest.approx(1000 / (point.tpot_ms or 0))
    died = point_of_folder(folders / "server-died", "d")
    assert died is not None
    assert not died.holds
    offline = point_of_folder(folders / "offline", "o")
    assert offline is not None
    assert (offline.load, offline.ttft_ms) == ("Offline", None)


def test_a_page_shows_run_folders_and_legs_over_http_on_one_curve(folders: Path, tmp_path: Path) -> None:
    leg = recorded() / OVER_HTTP / "campaign" / "llama3.1-8b" / "Server" / "performance"
    page = write_page([folders, leg], tmp_path / "page.html").read_text()
    assert "Throughput against latency over concurrency" in page
    assert page.count("Tokens/s against") == 3
    assert "server-died" in page
    assert "100/s: " in page
