"""Shared by the tests of submission trees: a small campaign, and the building of a tree from it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from compliance.submission.submit import Outcome, Request, submit
from compliance.submission.system import read_system_file
from runs.record.layout import CampaignDir
from runs.rounds import CURRENT_ROUND
from tests.support.submission_legs import SYSTEM, copy_of, lower_limits, make_campaign

Submit = Callable[..., Outcome]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> CampaignDir:
    return make_campaign(tmp_path_factory.mktemp("submission-legs"))


@pytest.fixture
def campaign(made: CampaignDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignDir:
    """A campaign to change; the limits are such that it passes."""
    lower_limits(made, monkeypatch)
    return copy_of(made, tmp_path / "campaign")


@pytest.fixture
def build(campaign: CampaignDir, tmp_path: Path) -> Submit:
    """Builds a rehearsal of the campaign to `tmp_path/tree`, unless told otherwise."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text("print('the code that ran')\n")

    def run(*results: Path, tree: str = "tree", **more: object) -> Outcome:
        values: dict[str, object] = {
            "results": list(results) or [campaign.root],
            "output": tmp_path / tree,
            "organisation": "Org",
            "system_name": "Box",
            "division": "closed",
            "round": CURRENT_ROUND,
            "given": read_system_file({"system": SYSTEM}),
            "source": code,
            "rehearsal": True,
        }
        return submit(Request(**{**values, **more}), lambda text: None)  # type: ignore[arg-type]

    return run
