"""No honest result is refused: sixty variations of one, before verify and the sign-off."""

import os
import shutil
import time
from pathlib import Path

import pytest

from compliance.evidence.accuracy import ScoreSources
from compliance.evidence.scorer import Scorer
from compliance.signoff.judge import sign_off
from compliance.verify.legs import find_results
from compliance.verify.verdict import verify_result
from tests.honest.clocks import STEPPED
from tests.honest.pair import Pair
from tests.honest.variations import LATE, OFFLINE_TOO, VARIATIONS
from tests.support.verify_legs import DummyLegs

# Of these the issue is that a reader is told, or that the machine was too busy to compare with anything.
FLAGGED = {"busy", "very-busy", "late-159-ms", "late-338-ms", "summer-time-between-the-legs"}


class Judge:
    """Results of this machine, each made once, and what is said of copies of them; one scorer for all."""

    def __init__(self, factory: pytest.TempPathFactory, scorer: Scorer) -> None:
        self._legs, self._sources = DummyLegs(factory), ScoreSources(scorer=scorer)
        self._plain: dict[str, tuple[str, frozenset[str]]] = {}

    def copy(self, scenario: str, folder: Path) -> Pair:
        pair = Pair(folder)
        for mode, run in zip(("performance", "accuracy"), pair.legs, strict=True):
            shutil.copytree(self._legs(scenario, mode), run.root)
        return pair

    def verified(self, root: Path) -> tuple[str, frozenset[str]]:
        """verify's outcome, and the rules that are broken."""
        (result,) = find_results([root])
        verdict = verify_result(result, sources=self._sources)
        broken = [check.rule for part in verdict.parts for check in (*part.broken, *part.contradictions)]
        broken += [check.rule for check in verdict.checks if not check.passed]
        return verdict.outcome + "".join(f": {reason}" for reason in verdict.reasons), frozenset(broken)

    def plain(self, scenario: str, folder: Path) -> frozenset[str]:
        """The rules that such a short leg breaks as it is."""
        if scenario not in self._plain:
            self._plain[scenario] = self.verified(self.copy(scenario, folder / "plain").root)
        return self._plain[scenario][1]

    def signed(self, root: Path) -> tuple[str | None, list[str]]:
        verdict = sign_off("harness", [root], sources=self._sources)
        return verdict.decision, [f"{one.rule}: {one.text}" for one in verdict.reasons if one.severity != "note"]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    with Scorer() as scorer:
        yield Judge(tmp_path_factory, scorer)


CASES = [
    *((name, "Server") for name in VARIATIONS),
    *((name, "Offline") for name in sorted(OFFLINE_TOO)),
    *((name, "Server") for name in LATE),
    *((name, scenario) for name in STEPPED for scenario in ("Server", "SingleStream")),
]


def test_there_are_sixty() -> None:
    assert len(CASES) + len(ZONES) + len(SCENARIOS) >= 60


def accepted(judge: Judge, scenario: str, root: Path, folder: Path, name: str = "") -> None:
    outcome, broken = judge.verified(root)
    assert broken <= judge.plain(scenario, folder), outcome
    decision, reasons = judge.signed(root)
    assert decision == "FLAG" if name in FLAGGED else decision in ("PASS", "FLAG"), reasons


@pytest.mark.parametrize(("name", "scenario"), CASES, ids=[f"{name}-{scenario}" for name, scenario in CASES])
def test_an_honest_result_is_accepted(judge: Judge, tmp_path: Path, name: str, scenario: str) -> None:
    pair = judge.copy(scenario, tmp_path / "made" / "result")
    root = ({**VARIATIONS, **LATE, **STEPPED})[name](pair) or pair.root
    try:
        accepted(judge, scenario, root, tmp_path, name)
    finally:
        for path in tmp_path.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)  # what is read-only could not be removed


SCENARIOS = ("SingleStream", "Interactive", "Offline", "Server")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_scenario_as_it_is(judge: Judge, tmp_path: Path, scenario: str) -> None:
    accepted(judge, scenario, judge.copy(scenario, tmp_path / "result").root, tmp_path)


ZONES = ("Asia/Kathmandu", "Pacific/Kiritimati", "Pacific/Pago_Pago")


@pytest.mark.parametrize("zone", ZONES)
def test_a_judge_may_sit_anywhere(judge: Judge, tmp_path: Path, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judge.plain("Server", tmp_path)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        accepted(judge, "Server", judge.copy("Server", tmp_path / "result").root, tmp_path)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_from_where_it_is_named(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = judge.copy("Server", tmp_path / "result")
    monkeypatch.chdir(pair.performance.root)
    for named in ("../..", f"..{os.sep}..{os.sep}", f"{pair.root}/./accuracy/.."):
        accepted(judge, "Server", Path(named), tmp_path / "a")
