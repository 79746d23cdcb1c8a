"""Shared: a small campaign, the building of a tree from it, and a world in which no finding has a text."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compliance import finding as findings
from compliance.finding import Finding, all_rules
from compliance.submission.build import SubmitOutcome
from compliance.submission.build_inputs import SubmitRequest
from compliance.submission.build_submission import submit
from compliance.submission.system import read_system_file
from runs.errors import HarnessError
from runs.record.layout import CampaignDir
from runs.rounds import CURRENT_ROUND
from tests.support.submission_legs import CALIBRATION, SYSTEM, campaign_copy

Submit = Callable[..., SubmitOutcome]
X = "x"


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


@pytest.fixture
def wordless(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call the fixture's value to make every text that a finding, a rule or an error could have "x"."""

    def without_words() -> None:
        for rule in all_rules().values():
            monkeypatch.setitem(findings.RULES, rule.id, replace(rule, source=X, summary=X, fix=X))
        known, error = Finding.__post_init__, HarnessError.__init__

        def finding(self: Finding) -> None:
            known(self)
            for name in ("text", "found", "required", "fix"):
                object.__setattr__(self, name, X if getattr(self, name) else "")

        def silent(self: HarnessError, message: str, fix: str = "", **facts: Any) -> None:
            error(self, X, X, **facts)

        monkeypatch.setattr(Finding, "__post_init__", finding)
        monkeypatch.setattr(HarnessError, "__init__", silent)

    return without_words
