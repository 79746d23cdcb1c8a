"""Fixtures of the tests of compliance: recorded runs, a small campaign, and a tree that is built from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance.accuracy.accuracy_text import read_scores
from compliance.accuracy.metrics import ROUGE, Metric, Scores
from compliance.accuracy.scores import DecodedResponse, begin_scoring
from compliance.submission.build import Submission, build_submission
from compliance.submission.candidate import SubmitRequest
from compliance.submission.system import read_system_file
from runs.record.layout import CampaignDir
from runs.rounds import CURRENT_ROUND
from tests.support.official import targets_at
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.signoff_fixtures import FrozenRuns
from tests.support.runs.submission_runs import CALIBRATION, SYSTEM, campaign_copy

Submit = Callable[..., Submission]


@pytest.fixture(scope="session")
def runs() -> DummyRuns:
    return DummyRuns()


@pytest.fixture(scope="session")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> FrozenRuns:
    """Return the runs of the sign-off's back-test."""
    return FrozenRuns(tmp_path_factory)


@pytest.fixture
def scorings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return a list that receives the predictions of each scoring."""
    done: list[tuple[str, ...]] = []

    def count_scoring(metric: Metric, responses: list[DecodedResponse], *more: Any) -> Any:
        done.append(tuple(response.text for response in responses))
        return begin_scoring(metric, responses, *more)

    monkeypatch.setattr("compliance.results.scorer.begin_scoring", count_scoring)
    return done


@pytest.fixture
def dummy_scores_as_target(runs: DummyRuns, monkeypatch: pytest.MonkeyPatch) -> Scores:
    """Use the scores of the dummy engine as reference, so that its accuracy run can pass."""
    scores = read_scores(ROUGE, (runs("Server", "accuracy") / "accuracy.txt").read_text())
    monkeypatch.setattr(
        "compliance.results.run_evidence.target_of", lambda run: (targets_at(scores), "the dummy itself")
    )
    return scores


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignDir:
    """Return performance, accuracy and TEST06 runs of two scenarios of the dummy engine, with limits that they meet."""
    return campaign_copy("campaign", tmp_path / "campaign", monkeypatch)


@pytest.fixture
def build(campaign: CampaignDir, tmp_path: Path) -> Submit:
    """Return a function that builds a rehearsal of the campaign, by default to `tmp_path/tree`."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text("print('the code that ran')\n")
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "calibration.md").write_bytes(CALIBRATION)

    def run(*results: Path, tree: str = "tree", **more: object) -> Submission:
        values: dict[str, object] = {
            "results": list(results) or [campaign.root],
            "output": tmp_path / tree,
            "organization": "Org",
            "system_name": "Box",
            "division": "closed",
            "round": CURRENT_ROUND,
            "given": read_system_file({"system": SYSTEM}),
            "source": code,
            "documentation": documents,
            "rehearsal": True,
        }
        return build_submission(SubmitRequest(**{**values, **more}), lambda text: None)  # type: ignore[arg-type]

    return run
