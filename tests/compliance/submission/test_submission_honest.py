"""Honest variations of a campaign are built into a tree, signed off."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from compliance.signoff.judge import sign_off
from compliance.submission.build import SubmitOutcome
from runs.record.layout import CampaignDir
from tests.honest.pair import Pair
from tests.honest.variations import VARIATIONS, run_at
from tests.support.submission_legs import results_of

pytestmark = pytest.mark.slow

# Those of a group happen to one campaign.
GROUPS = (
    ("busy", "rebooted-between", "resumed-campaign", "files-of-a-desktop", "verified-before"),
    ("environment-elsewhere", "no-boot-id", "less-memory-after-a-reboot"),
)


def accepted(outcome: SubmitOutcome) -> None:
    assert outcome.findings == []
    assert outcome.signed is not None
    assert outcome.signed.outcome in ("PASS", "FLAG"), outcome.signed.headline


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_an_honest_campaign_is_submitted(
    build: Callable[..., SubmitOutcome], campaign: CampaignDir, names: tuple[str, ...]
) -> None:
    for result in results_of(campaign):
        for name in names:
            VARIATIONS[name](Pair(result.root))
    accepted(build())


def test_a_campaign_is_signed_off_as_a_whole(build: Callable[..., SubmitOutcome], campaign: CampaignDir) -> None:
    """As docs/signoff.md types it: by its own directory."""
    accepted(build())
    verdict = sign_off("bundle", [campaign.root])
    assert verdict.outcome in ("PASS", "FLAG"), verdict.headline
    replayed = {path for one in verdict.findings if one.rule == "P-6/replayed" for path in one.files}
    assert len(replayed) == len({leg.detail for result in results_of(campaign) for leg in Pair(result.root).legs})


def test_a_campaign_over_new_year(build: Callable[..., SubmitOutcome], campaign: CampaignDir) -> None:
    start = datetime(2026, 12, 31, 20, 59, 59, tzinfo=UTC)
    for number, result in enumerate(results_of(campaign)):
        run_at(result.performance, start + timedelta(hours=3 * number))
        run_at(result.accuracy, start + timedelta(hours=3 * number + 1))
    accepted(build())
