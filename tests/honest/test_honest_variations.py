"""Honest results: variations of one result and runs with unusual settings are accepted by verify and the sign-off."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from compliance.judge.rule import find_rule
from compliance.results.find_results import find_results
from compliance.results.policy import verify_result
from compliance.results.scorer import Scorer
from compliance.results.scoring import ScoreSources
from compliance.signoff.judge import sign_off
from tests.conftest import StartedMain
from tests.honest.pair import Pair
from tests.honest.variations import LATE, OFFLINE_TOO, STEPPED, VARIATIONS
from tests.support.processes import warm
from tests.support.runs.dummy_runs import USER_CONF, DummyRuns

# Rules that only inform the reader, or state that the host was too busy for a comparison
FLAGGED = {
    *("busy", "very-busy", "fast-legs-on-a-busy-machine", "late-159-ms", "late-338-ms", "stopped-900-ms"),
}


class Judge:
    """Results of this host, each created once, and the verdicts on copies of them. All share one scorer."""

    def __init__(self, scorer: Scorer) -> None:
        self._runs, self._sources = DummyRuns(), ScoreSources(scorer=scorer)
        self._plain: dict[str, tuple[str, frozenset[str]]] = {}

    def copy(self, scenario: str, folder: Path, runs: DummyRuns | None = None) -> Pair:
        pair = Pair(folder)
        for mode, run in zip(("performance", "accuracy"), pair.runs, strict=True):
            shutil.copytree((runs or self._runs)(scenario, mode), run.root)
        return pair

    def verified(self, root: Path) -> tuple[str, frozenset[str]]:
        """Return the outcome of verify, and the violated rules."""
        (result,) = find_results([root])
        verdict = verify_result(result, sources=self._sources)
        broken = [check.rule for part in verdict.parts for check in (*part.violated, *part.contradictions)]
        broken += [check.rule for check in verdict.of("error")]
        return verdict.outcome + "".join(f": {reason}" for reason in verdict.all_findings), frozenset(broken)

    def plain(self, scenario: str, folder: Path) -> frozenset[str]:
        """Return the rules that such a short run violates without changes."""
        if scenario not in self._plain:
            self._plain[scenario] = self.verified(self.copy(scenario, folder / "plain").root)
        return self._plain[scenario][1]

    def signed(self, root: Path) -> tuple[str | None, list[str]]:
        verdict = sign_off("bundle", [root], sources=self._sources)
        return verdict.outcome, [
            f"{finding.rule}: {finding.text}" for finding in verdict.all_findings if finding.severity != "note"
        ]


@pytest.fixture(scope="module")
def judge():  # type: ignore[no-untyped-def]
    with Scorer() as scorer:
        yield Judge(scorer)


CASES = [
    *((name, "Server") for name in VARIATIONS),
    *((name, "Offline") for name in sorted(OFFLINE_TOO)),
    *((name, "Server") for name in LATE),
    *((name, scenario) for name in STEPPED for scenario in ("Server", "SingleStream")),
]


def expect_acceptance(judge: Judge, scenario: str, root: Path, folder: Path, name: str = "") -> None:
    outcome, broken = judge.verified(root)
    assert broken <= judge.plain(scenario, folder), outcome
    decision, reasons = judge.signed(root)
    assert decision == "FLAG" if name in FLAGGED else decision in ("PASS", "FLAG"), reasons


@pytest.mark.parametrize(("name", "scenario"), CASES, ids=[f"{name}-{scenario}" for name, scenario in CASES])
def test_honest_variations_are_accepted(judge: Judge, tmp_path: Path, name: str, scenario: str) -> None:
    pair = judge.copy(scenario, tmp_path / "made" / "result")
    root = ({**VARIATIONS, **LATE, **STEPPED})[name](pair) or pair.root
    try:
        expect_acceptance(judge, scenario, root, tmp_path, name)
    finally:
        for path in tmp_path.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)  # read-only directories could not be removed


SCENARIOS = ("SingleStream", "Interactive", "Offline", "Server")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_unchanged_results_of_each_scenario_are_accepted(judge: Judge, tmp_path: Path, scenario: str) -> None:
    expect_acceptance(judge, scenario, judge.copy(scenario, tmp_path / "result").root, tmp_path)


# Name → start of the runs, and their user.conf
LEAST = """
*.Offline.min_duration = 1
*.Offline.min_query_count = 65
*.Offline.target_qps = 1
*.Server.min_duration = 1
*.Server.min_query_count = 460
*.Server.target_qps = 400
*.SingleStream.min_duration = 1
*.SingleStream.min_query_count = 65
*.SingleStream.target_latency = 8
"""
FAST = "--dummy-ttft-ms 0 --dummy-tpot-ms 0"
RUNS: dict[str, tuple[str, str]] = {
    "done-at-once": (f"Server {FAST}", USER_CONF),
    "done-at-once-single-stream": (f"SingleStream {FAST}", LEAST),
    "done-at-once-interactive": (f"Interactive {FAST}", USER_CONF),
    "done-at-once-offline": (f"Offline {FAST}", LEAST),
    "one-query-more-than-the-least": ("Server", LEAST),
    "one-query-more-than-the-least-single-stream": ("SingleStream", LEAST),
    "one-sample-more-than-the-least-offline": ("Offline", LEAST),
    "answers-as-long-as-allowed": ("Server --dummy-shortest-tokens 128", USER_CONF),
    "answers-as-long-as-allowed-offline": ("Offline --dummy-shortest-tokens 128", USER_CONF),
    "answers-of-one-token-and-more": ("Server --dummy-shortest-tokens 1", USER_CONF),
    "answers-of-few-tokens": ("SingleStream --sampling-arg max_tokens=32 --sampling-arg min_tokens=1", LEAST),
    "one-at-a-time": ("Offline --dummy-slots 1 --dummy-tpot-ms 0.01 --dummy-ttft-ms 4", USER_CONF),
    "few-samples": ("Server --total-sample-count 16", USER_CONF),
    "with-a-trace": ("Server --enable-log-trace", USER_CONF),
    "with-a-trace-single-stream": ("SingleStream --enable-log-trace", USER_CONF),
    "in-another-order": ("Server --admission shortest --admission-tokens 4096", USER_CONF),
    "several-engines": ("Server --replicas 2", USER_CONF),
    "several-engines-offline": ("Offline --replicas 3", USER_CONF),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_unusual_run_settings_are_accepted(judge: Judge, tmp_path: Path, name: str) -> None:
    options, settings = RUNS[name]
    root = judge.copy(options, tmp_path / "result", DummyRuns(settings)).root
    outcome, broken = judge.verified(root)
    assert not {rule for rule in broken if find_rule(rule).kind == "contradiction"}, outcome
    decision, reasons = judge.signed(root)
    assert decision in ("PASS", "FLAG"), reasons


# Name → source and encoding of a locale, if this host can build it
LOCALES = {"C": None, "tr_TR.UTF-8": ("tr_TR", "UTF-8"), "de_DE.ISO-8859-1": ("de_DE", "ISO-8859-1")}


def _surroundings(name: str, folder: Path) -> Mapping[str, str]:
    """Return variables that set the locale and a time zone other than UTC."""
    if (made_of := LOCALES[name]) is not None:
        source, letters = made_of
        if shutil.which("localedef") is None or not Path("/usr/share/i18n/locales", source).is_file():
            pytest.skip(f"this machine cannot make the locale {name}")
        subprocess.run(["localedef", "-i", source, "-f", letters, folder / name], check=True)
    return {"LC_ALL": name, "LOCPATH": str(folder), "TZ": "Australia/Eucla"}


@pytest.mark.long
@pytest.mark.parametrize("name", LOCALES)
def test_runs_in_each_locale_and_time_zone_are_accepted(tmp_path: Path, name: str) -> None:
    around = _surroundings(name, tmp_path)
    conf, root = tmp_path / "user.conf", tmp_path / "result"
    conf.write_text(USER_CONF)
    plain = ("--scenario", "Server", "--engine", "dummy", "--user-conf", conf, "--output-log-dir")
    for more in ((root / "performance" / "run_1",), (root / "accuracy", "--accuracy")):
        code, stdout, stderr = warm.run([*plain, *more], tmp_path, around)
        assert code == 0, stdout + stderr
    moved = shutil.move(root, tmp_path / "İstanbul ß")
    signed = StartedMain(("signoff", "--scope", "bundle", "--ref", moved), tmp_path, dict(around)).wait()
    assert signed.code == 0, signed.stdout + signed.stderr


def test_results_named_by_relative_paths_are_accepted(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = judge.copy("Server", tmp_path / "result")
    monkeypatch.chdir(pair.performance.root)
    for named in ("../..", f"..{os.sep}..{os.sep}", f"{pair.root}/./accuracy/.."):
        expect_acceptance(judge, "Server", Path(named), tmp_path / "a")
