"""Shared: recorded legs, a small campaign, and the building of a tree from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance.accuracy.accuracy_text import read_scores
from compliance.accuracy.metrics import ROUGE, Metric, Scores
from compliance.accuracy.scores import DecodedAnswer, begin_scoring
from compliance.submission.build import SubmitOutcome, submit
from compliance.submission.build_inputs import SubmitRequest
from compliance.submission.system import read_system_file
from runs.record.layout import CampaignDir
from runs.rounds import CURRENT_ROUND
from tests.support.official import targets_at
from tests.support.signoff_fixtures import FrozenLegs
from tests.support.submission_legs import CALIBRATION, SYSTEM, campaign_copy
from tests.support.verify_legs import DummyLegs

Submit = Callable[..., SubmitOutcome]


@pytest.fixture(scope="session")
def legs() -> DummyLegs:
    return DummyLegs()


@pytest.fixture(scope="session")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> FrozenLegs:
    """The legs of the sign-off's back-test."""
    return FrozenLegs(tmp_path_factory)


@pytest.fixture
def scorings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The predictions of every scoring that is really done."""
    done: list[tuple[str, ...]] = []

    def counted(metric: Metric, answers: list[DecodedAnswer], *more: Any) -> Any:
        done.append(tuple(answer.text for answer in answers))
        return begin_scoring(metric, answers, *more)

    monkeypatch.setattr("compliance.evidence.scorer.begin_scoring", counted)
    return done


@pytest.fixture
def own_target(legs: DummyLegs, monkeypatch: pytest.MonkeyPatch) -> Scores:
    """Lets the dummy's own scores be the reference, so that an accuracy leg of it can pass."""
    scores = read_scores(ROUGE, (legs("Server", "accuracy") / "accuracy.txt").read_text())
    monkeypatch.setattr(
        "compliance.evidence.leg_evidence.target_of", lambda leg: (targets_at(scores), "the dummy itself")
    )
    return scores


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignDir:
    """Performance, accuracy and TEST06 of two scenarios with the dummy engine; the limits are such that it passes."""
    return campaign_copy("campaign", tmp_path / "campaign", monkeypatch)


@pytest.fixture
def build(campaign: CampaignDir, tmp_path: Path) -> Submit:
    """Builds a rehearsal of the campaign to `tmp_path/tree`, unless told otherwise."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text("print('the code that ran')\n")
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "calibration.md").write_bytes(CALIBRATION)

    def run(*results: Path, tree: str = "tree", **more: object) -> SubmitOutcome:
        values: dict[str, object] = {
            "results": list(results) or [campaign.root],
            "output": tmp_path / tree,
            "organisation": "Org",
            "system_name": "Box",
            "division": "closed",
            "round": CURRENT_ROUND,
            "given": read_system_file({"system": SYSTEM}),
            "source": code,
            "documentation": documents,
            "rehearsal": True,
        }
        return submit(SubmitRequest(**{**values, **more}), lambda text: None)  # type: ignore[arg-type]

    return run
