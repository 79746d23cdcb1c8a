"""What the judges of one command share: the sources of scores, and the scores themselves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance.accuracy.metrics import Metric
from compliance.accuracy.scores import DecodedAnswer, Scoring
from compliance.evidence.accuracy import ScoreSources, verify_accuracy, with_scorer
from compliance.signoff import evidence, judge, sign_off
from compliance.signoff.claim import Claim, PatchVerdict
from compliance.signoff.evidence import Evidence
from compliance.submission.build_submission import SubmitOutcome
from compliance.verify.find_results import find_results
from runs.files import write_json
from runs.record.layout import CampaignDir
from tests.support.signoff_fixtures import FrozenLegs


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> FrozenLegs:
    return FrozenLegs(tmp_path_factory)


@pytest.fixture
def scorings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The predictions of every scoring that is really done."""
    done: list[tuple[str, ...]] = []

    class Counted(Scoring):
        def __init__(self, metric: Metric, answers: list[DecodedAnswer], *more: Any) -> None:
            done.append(tuple(answer.text for answer in answers))
            super().__init__(metric, answers, *more)

    monkeypatch.setattr("compliance.evidence.scorer.Scoring", Counted)
    return done


def test_patches_are_judged_again_with_the_bundles_sources_and_scores(
    legs: FrozenLegs, scorings: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ref, cand = legs.paths("off-1", "off-2", "off-acc"), legs.paths("off-two-1", "off-two-2", "off-two-acc")
    patches = []
    for lever, candidate in (("tpot_ms", ("off-fast-1", "off-fast-2")), ("slots", ("off-slots-1", "off-slots-2"))):
        record = {"audit_scope": "patch", "levers": [lever], "ref": [str(path) for path in ref]}
        record["cand"] = [str(path) for path in legs.paths(*candidate)]
        write_json(tmp_path / f"{lever}.json", record)
        patches.append(PatchVerdict(lever=lever, verdict_file=tmp_path / f"{lever}.json"))
    asked: list[ScoreSources] = []

    def spy(paths: list[Path], sources: ScoreSources) -> object:
        asked.append(sources)
        return evidence.load(paths, sources)

    monkeypatch.setattr(judge, "load", spy)
    given = ScoreSources(model_path="bytes")
    verdict = sign_off("bundle", ref, cand, Claim(levers=["tpot_ms", "slots"], patch_verdicts=patches), sources=given)
    assert len(verdict.lever_decomposition) == 2
    assert [sources.model_path for sources in asked] == ["bytes"] * 6  # reference and candidate, of bundle and patches
    assert len({id(sources.scorer) for sources in asked}) == 1
    assert len(scorings) == len(set(scorings)) <= 2  # off-acc and off-two-acc, whose answers may be the same


def test_a_scorer_that_is_given_scores_what_was_verified_no_more(
    legs: FrozenLegs, scorings: list[tuple[str, ...]]
) -> None:
    pair = legs.paths("srv-1", "srv-acc")
    leg = next(leg for result in find_results(pair) for leg in result.legs if leg.mode == "AccuracyOnly")
    with with_scorer(None) as (sources, _):
        verified = verify_accuracy(leg, sources)
        assert len(scorings) == 1
        signed = sign_off("harness", pair, sources=sources)
        assert len(scorings) == 1
    assert signed.outcome == sign_off("harness", pair).outcome == "PASS"
    assert len(scorings) == 2
    assert verified.details["scores"]


@pytest.mark.slow
def test_submit_scores_each_leg_once(
    build: Callable[..., SubmitOutcome], campaign: CampaignDir, scorings: list[tuple[str, ...]]
) -> None:
    outcome = build()
    assert [one.sentence for one in outcome.findings] == []
    assert outcome.signed is not None
    assert outcome.signed.outcome in ("PASS", "FLAG")
    assert len(outcome.judged) == 2
    assert 0 < len(scorings) == len(set(scorings))


def test_the_data_set_of_a_leg_is_at_hand_where_it_is_unchanged(legs: FrozenLegs, tmp_path: Path) -> None:
    copy = legs.copy(tmp_path / "leg", "srv-1")
    leg = find_results([copy])[0].legs[0]
    references = Evidence.of(leg).references
    assert references is not None
    assert leg.manifest is not None
    assert leg.manifest.plan.dataset_sha256 == references.sha256
    manifest = json.loads((copy / "manifest.json").read_bytes())
    manifest["plan"]["dataset_sha256"] = "0" * 64
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert Evidence.of(find_results([copy])[0].legs[0]).references is None
