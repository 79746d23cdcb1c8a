"""Tunes of short dummy runs: complete, changed, without result, in virtual time; and interrupted as by a user.

The dummy engine with slots is a queue of known capacity: four slots of about 39 ms per query are about 100 queries/s.
"""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from compliance.judge.verdict import stated
from compliance.signoff.claim import Claim
from compliance.signoff.signoff_verdict import SignOff, SignOffDetails, SignOffScope
from runs.errors import ExitCode
from runs.numbers.result import read_result
from runs.record.layout import SIGNOFF_LEDGER, RunDir
from runs.record.manifest import read_manifest
from runs.record.tune_dir import TuneDir
from scenarios.resumed import held
from scenarios.status.snapshot import take_snapshot
from tests.conftest import Finished, RunMain, run_here
from tests.support.documents.json_shapes import differences
from tests.support.simulated.virtual_tune import VirtualRuns

USER_CONF = """
# the settings of the real run
*.Offline.min_duration = 2000
*.Offline.min_query_count = 64
*.Server.target_qps = 1
*.Server.min_duration = 5000
*.Server.min_query_count = 459
*.Server.ttft_latency = 300
"""
# Limits that each busy host meets
ROOMY = USER_CONF.replace("ttft_latency = 300", "ttft_latency = 60000\n*.Server.tpot_latency = 10000")
QUEUE = ("--dummy-slots", 4, "--dummy-ttft-ms", 35)
WIDE = ("--dummy-slots", 40)  # ten times that, for runs of which only the order matters
# Throughput of the slots: a query takes 35 ms, and 0.05 ms for each of about 79 tokens after the first.
CAPACITY_QPS = 4 / (0.035 + 0.05e-3 * 79)


class SmallTune:
    """The files of a tune, and its command line."""

    def __init__(self, folder: Path) -> None:
        self.conf = folder / "given-user.conf"
        self.conf.write_text(USER_CONF)
        self.place = TuneDir(folder / "tune")

    def arguments(self, *more: object, scenario: str = "Server") -> list[object]:
        return [
            "tune", "--scenario", scenario, "--engine", "dummy", "--user-conf", self.conf,
            "--output-log-dir", self.place.root, *QUEUE, *more,
        ]  # fmt: skip

    def record(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.place.record.read_bytes())
        return content

    def starts(self) -> dict[str, int | None]:
        """Return the start of each run by directory. An equal number means that it was not run again."""
        return {path.parent.name: read_manifest(path).start_time_ns for path in self.place.root.glob("*/manifest.json")}


@pytest.fixture
def small_tune(tmp_path: Path) -> SmallTune:
    return SmallTune(tmp_path)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> VirtualRuns:
    """Let runs take no time."""
    runs = VirtualRuns()
    runs.install(monkeypatch)
    return runs


def test_a_rate_is_found_and_confirmed_in_virtual_time(small_tune: SmallTune, runs: VirtualRuns) -> None:
    finished = run_here(*small_tune.arguments("--estimate-s", 3, "--resolution", 0.05))
    check_found(small_tune, finished)
    (group,) = take_snapshot([small_tune.place.root]).groups
    assert (group.state, group.exit_code) == ("finished", finished.code)
    assert group.text.startswith(f"{len(small_tune.record()['probes'])} probes, last ")
    assert group.text.endswith(f"; confirmed {small_tune.record()['target_qps']:g}/s")
    # A repeated tune finds that all runs are complete.
    record, ran = small_tune.record(), [*runs.ran]
    again = run_here(*small_tune.arguments("--estimate-s", 3, "--resolution", 0.05))
    assert again.code == ExitCode.OK
    assert small_tune.record() == record
    assert runs.ran == ran


@pytest.mark.long
def test_a_rate_is_found_with_the_real_loadgen(small_tune: SmallTune, run_main: RunMain) -> None:
    check_found(small_tune, run_main(*small_tune.arguments("--estimate-s", 3, "--resolution", 0.05)))


def check_found(small: SmallTune, finished: Finished) -> None:
    """test_tune_search.py has an exhaustive search. Here the bracket shows that the rate above fails."""
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    record = small.record()
    rate = record["target_qps"]
    assert 0.7 * CAPACITY_QPS < rate < 1.2 * CAPACITY_QPS  # a short run ends before a small overload shows
    assert record["highest_valid_probe"] >= rate
    assert record["lowest_invalid_probe_above"] <= 1.06 * record["highest_valid_probe"]
    assert len(record["probes"]) <= 8

    confirmed = read_result(RunDir(small.place.root / record["confirmed_by"]).result)
    assert confirmed.verdict == confirmed.loadgen_verdict == "VALID"
    assert confirmed.in_force.target_qps == pytest.approx(rate)
    assert "*.Server.target_qps" not in small.place.user_conf.read_text()
    assert f"llama3_1-8b.Server.target_qps = {rate:g}" in small.place.user_conf.read_text()
    assert "# the settings of the real run" in small.place.user_conf.read_text()
    assert ElementTree.fromstring(small.place.plot.read_bytes()).tag.endswith("svg")
    best = yaml.safe_load(small.place.best.read_text())
    assert best["dummy_ttft_ms"] == 35
    assert best["user_conf"] == str(small.place.user_conf.resolve())


def test_a_changed_configuration_is_refused(small_tune: SmallTune, runs: VirtualRuns) -> None:
    small_tune.conf.write_text(ROOMY.replace("5000", "500"))
    assert run_here(*small_tune.arguments("--offline-qps", 500, "--max-probes", 1, *WIDE)).code == ExitCode.OK
    ran = [*runs.ran]
    refused = run_here(*small_tune.arguments("--offline-qps", 600, "--max-probes", 1, *WIDE, "--dummy-tpot-ms", 0.06))
    assert refused.code == ExitCode.BAD_INPUT
    assert "engine_options.tpot_ms: 0.05 then, 0.06 now" in refused.stderr
    assert "tune offline_qps: 500 then, 600 now" in refused.stderr
    assert "--restart-changed" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert runs.ran == ran

    anew = run_here(
        *small_tune.arguments(
            "--offline-qps", 600, "--max-probes", 1, *WIDE, "--dummy-tpot-ms", 0.06, "--restart-changed"
        )
    )
    assert anew.code == ExitCode.OK, anew.stderr
    assert (small_tune.place.discarded / "1" / "probe-1" / "user.conf").exists()
    assert (small_tune.place.discarded / "1" / "user.conf").exists()
    assert small_tune.record()["target_qps"] == 541.2


def test_a_probe_far_above_the_capacity_is_stopped(small_tune: SmallTune, run_main: RunMain) -> None:
    """At ten times the capacity, the verdict is certain long before the minute of the run is over."""
    small_tune.conf.write_text(USER_CONF.replace("5000", "60000").replace("300", "100"))
    finished = run_main(*small_tune.arguments("--offline-qps", 1_000, "--max-probes", 1))
    assert finished.code == ExitCode.NEGATIVE, finished.stdout + finished.stderr
    (probe,) = small_tune.record()["probes"]
    assert probe["verdict"] == "INVALID"
    assert probe["stopped"] is True
    assert probe["late_ttft"] > probe["late_allowed"] > 0
    assert probe["queries_answered"] < probe["queries_planned"] / 4
    assert small_tune.record()["target_qps"] is None
    assert not small_tune.place.user_conf.exists()
    manifest = read_manifest(RunDir(small_tune.place.run("probe", 1)).manifest)
    assert manifest.status == "interrupted"
    assert "because the verdict is certain" in manifest.error["message"]
    assert b"VALID" not in RunDir(small_tune.place.run("probe", 1)).result.read_bytes()
    assert "no rate was confirmed" in finished.stdout


def test_a_limit_exceeded_by_all_responses_is_named(small_tune: SmallTune, runs: VirtualRuns) -> None:
    finished = run_here(*small_tune.arguments("--offline-qps", 400, "--max-probes", 2, "--dummy-ttft-ms", 9_000))
    assert finished.code == ExitCode.NEGATIVE, finished.stdout + finished.stderr
    assert re.search(r"every response at [\d.]+ queries/s exceeded the TTFT limit of \d+ ms", finished.stdout)


def test_offline_finds_the_rate_of_a_complete_run(small_tune: SmallTune, runs: VirtualRuns) -> None:
    finished = run_here(
        *small_tune.arguments("--offline-qps", 20, scenario="Offline")
    )  # the first run is much too short
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    first, second = small_tune.record()["confirmations"]
    assert (first["target_qps"], first["verdict"], second["verdict"]) == (20, "INVALID", "VALID")
    assert 0.7 * CAPACITY_QPS < second["target_qps"] < 1.2 * CAPACITY_QPS
    assert f"llama3_1-8b.Offline.target_qps = {second['target_qps']:g}" in small_tune.place.user_conf.read_text()
    result = read_result(RunDir(small_tune.place.run("confirm", 2)).result)
    assert result.duration_ns >= 2_000_000_000


# Searches with a known outcome: with more slots a queue holds a higher rate, with fewer slots a lower one.
SEARCH = (
    "--offline-qps", 410, "--dummy-slots", 16, "--search", "--search-values", "dummy_slots=[4, 18]",
    "--search-values", 'admission=["fcfs"]', "--max-probes", 3,
)  # fmt: skip


def test_scheduling_options_are_searched_and_recommended(small_tune: SmallTune, runs: VirtualRuns) -> None:
    small_tune.conf.write_text(USER_CONF.replace("5000", "1000"))
    finished = run_here(*small_tune.arguments(*SEARCH, "--search-trials", 3))
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    record = small_tune.record()
    search = record["search"]
    assert search["trials"] == 3
    assert search["legs_shortened"] is False
    assert search["best"]["options"]["dummy_slots"] == 18
    (worth,) = [record for record in search["worth"] if record["option"] == "dummy_slots"]
    assert worth["best_target_qps"] == search["best"]["target_qps"]
    assert worth["without"]["invalid"] > worth["without"]["valid"]
    assert worth["worth_at_most"] > worth["worth_at_least"] >= 0
    # A setting that fails at the rate of the best one ends with that run.
    assert len([probe for probe in search["probes"] if probe["options"].get("dummy_slots") == 4]) == 1
    assert {run["options"]["dummy_slots"] for run in record["probes"] + record["confirmations"]} == {18}

    # The option was signed off: two runs without it, and two with it at the best rate.
    ((options, ref, cand),) = runs.signed
    probes = {probe["directory"]: probe for probe in search["probes"]}
    assert options == ["slots"]
    assert [probes[name]["options"] for name in (ref[0], cand[0])] == [{}, {"dummy_slots": 18}]
    assert probes[cand[0]]["target_qps"] == search["best"]["target_qps"]
    assert probes[ref[0]]["target_qps"] == worth["without"]["valid"]
    assert {*ref[1:], *cand[1:]} == {name for name in runs.ran if name.startswith("repeat-")}
    (signed,) = search["signoffs"]
    assert (signed["option"], signed["verdict"], signed["action"]) == ("dummy_slots", "PASS", "pass")
    verdict = json.loads((small_tune.place.root / signed["file"]).read_bytes())
    assert (verdict["verdict"], verdict["levers"]) == ("PASS", ["slots"])
    (line,) = (small_tune.place.root / SIGNOFF_LEDGER).read_text().splitlines()
    assert json.loads(line)["file"] == signed["file"]

    # The recommended setting differs in one option.
    best = yaml.safe_load(small_tune.place.best.read_text())
    assert (best["scenario"], best["engine"], best["dummy_slots"]) == ("Server", "dummy", 18)
    assert best["user_conf"] == str(small_tune.place.user_conf.resolve())
    repeated = run_here(*small_tune.arguments(*SEARCH, "--search-trials", 3), "--json")
    assert differences(json.loads(repeated.stdout)["answer"], "tune") == []
    again = run_here(
        "run", "--config", small_tune.place.best, "--output-log-dir", small_tune.conf.parent / "again", "--dry-run"
    )
    assert again.code == ExitCode.OK, again.stderr
    assert f"`rates_from: [{small_tune.place.root}]`" in finished.stdout
    file = small_tune.conf.parent / "campaign.yaml"
    content = {"benchmark": "llama3.1-8b", "division": "open", "engine": "dummy", "scenarios": ["Server"]}
    file.write_text(yaml.safe_dump({**content, "rates_from": [str(small_tune.place.root)]}))
    plan = run_here("campaign", "--config", file, "--dry-run")
    assert plan.code == ExitCode.OK, plan.stderr


def test_an_option_refused_by_sign_off_is_not_recommended(small_tune: SmallTune, runs: VirtualRuns) -> None:
    small_tune.conf.write_text(USER_CONF.replace("5000", "1000"))
    runs.refused = {"slots"}
    finished = run_here(*small_tune.arguments(*SEARCH, "--search-trials", 3))
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    assert "sign-off of dummy_slots=18: FAIL, action eject: G-4/no_real_gain" in finished.stdout
    search = small_tune.record()["search"]
    assert (search["signoffs"][0]["option"], search["signoffs"][0]["verdict"]) == ("dummy_slots", "FAIL")
    assert "dummy_slots" not in search["best"]["options"]
    assert yaml.safe_load(small_tune.place.best.read_text())["dummy_slots"] == 16
    kept = {path.name for path in small_tune.place.contents()}
    assert kept >= {"signoff_patch_dummy_slots.json", SIGNOFF_LEDGER, "repeat-1"}


@pytest.mark.parametrize("settled", [True, False])
def test_an_option_that_changes_responses_requires_accuracy_runs(
    small_tune: SmallTune, runs: VirtualRuns, monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    small_tune.conf.write_text(USER_CONF.replace("5000", "1000"))
    run_names: list[list[str]] = []

    def sign_off(scope: SignOffScope, ref: list[Path], cand: list[Path], claim: Claim) -> SignOff:
        run_names.append([path.name for path in (*ref, *cand)])
        differ = [stated("C-3/diverges_needs_accuracy_probe", "other responses")]
        return SignOff([] if settled and len(run_names) > 1 else differ, details=SignOffDetails(scope, 0.5, "open"))

    monkeypatch.setattr("scenarios.tune.signed_options.sign_off", sign_off)
    finished = run_here(*small_tune.arguments(*SEARCH, "--search-trials", 3))
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    assert [name for name in runs.ran if name.startswith("accuracy-")] == ["accuracy-1", "accuracy-2"]
    assert [len(names) for names in run_names[:2]] == [4, 6]
    assert {"accuracy-1", "accuracy-2"} <= {*run_names[1]}
    assert ("dummy_slots" in small_tune.record()["search"]["best"]["options"]) == settled
    # A repeated tune starts no run again.
    ran = [*runs.ran]
    assert run_here(*small_tune.arguments(*SEARCH, "--search-trials", 3)).code == ExitCode.OK
    assert runs.ran == ran


@pytest.mark.long
def test_an_accepted_option_is_signed_off_with_the_real_loadgen(small_tune: SmallTune, run_main: RunMain) -> None:
    small_tune.conf.write_text(USER_CONF.replace("5000", "3000"))
    finished = run_main(*small_tune.arguments(*SEARCH, "--search-trials", 3))
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    for signed in small_tune.record()["search"]["signoffs"]:
        verdict = json.loads((small_tune.place.root / signed["file"]).read_bytes())
        assert (verdict["verdict"], verdict["audit_scope"]) == (signed["verdict"], "patch")
        rules = {reason["rule"] for reason in verdict["reasons"] if reason["severity"] == "error"}
        assert rules <= {"G-4/overlap", "G-4/no_real_gain", "G-4/too_few_repeats"}  # depends on the load of the host


def test_a_search_keeps_its_time_limit_and_continues(small_tune: SmallTune, runs: VirtualRuns) -> None:
    small_tune.conf.write_text(
        ROOMY.replace("5000", "600000")
    )  # runs of official length; those of the search are short
    arguments = small_tune.arguments("--dummy-slots", 16, "--search", "--offline-qps", 300, "--search-leg-s", 2)

    # No run can end within this time.
    finished = run_here(*arguments, "--search-budget-s", 0.5)
    assert finished.code == ExitCode.NEGATIVE, finished.stderr
    assert "no rate was VALID with the given options" in finished.stdout
    (cut,) = small_tune.record()["search"]["probes"]
    assert cut["cut"] is True
    assert "min_duration = 2000" in RunDir(small_tune.place.run("search", 1)).user_conf.read_text()

    # With more time, the same rate is probed again. The interrupt comes in the next run.
    runs.interrupted = "search-3"
    assert run_here(*arguments, "--search-budget-s", 600).code == ExitCode.INTERRUPTED
    assert len(small_tune.place.journal.read_text().splitlines()) == 4  # configuration, estimate, two of the search

    # With less time than it has used, the search ends, and the rate is searched in complete runs.
    runs.interrupted = "probe-1"
    finished = run_here(*arguments, "--search-budget-s", 0.6)
    assert finished.code == ExitCode.INTERRUPTED
    assert "min_duration = 600000" in RunDir(small_tune.place.run("probe", 1)).user_conf.read_text()
    assert "search: defaults: VALID at 270.6 queries/s" in finished.stdout
    assert runs.ran == ["search-1", "search-2", "search-3", "probe-1"]
    assert not small_tune.place.run("search", 3).exists()
    assert (small_tune.place.discarded / "1" / "search-3").exists()
    assert not small_tune.place.best.exists()

    small_tune.place.study.unlink()
    refused = run_here(*arguments)
    assert refused.code == ExitCode.BAD_INPUT
    assert f"{small_tune.place.study}: trials of the probes" in refused.stderr


def test_settings_that_fail_to_start_are_skipped(small_tune: SmallTune, runs: VirtualRuns) -> None:
    small_tune.conf.write_text(ROOMY.replace("5000", "1000"))
    finished = run_here(
        *small_tune.arguments(
            "--dummy-slots", 16, "--offline-qps", 300, "--search", "--search-trials", 2, "--search-values",
            "max_num_seqs=[8, 16]", "--max-probes", 1,
        )
    )  # fmt: skip
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    search = small_tune.record()["search"]
    assert search["best"]["options"] == {}
    reasons = [probe["reasons"][0] for probe in search["probes"] if probe["verdict"] is None]
    assert len(reasons) == 2
    assert all(reasons)


@pytest.mark.parametrize(
    ("conf", "more", "code", "words"),
    [
        (
            USER_CONF.replace("459", "100"),
            ("--offline-qps", 20),
            ExitCode.REFUSED,
            "fewer than 459 queries cannot be VALID",
        ),
        (
            USER_CONF + "*.Server.performance_issue_unique = 1\n*.*.performance_sample_count_override = 64\n",
            (),
            ExitCode.BAD_INPUT,
            "it fixes the number of queries",
        ),
        (USER_CONF, ("--offline-qps", 20, "--dummy-fault", "fail@3"), ExitCode.FAILED, "query 3 failed in the engine"),
    ],
    ids=["too-few-queries", "unique", "engine-fails"],
)
def test_an_impossible_tune_is_refused_with_its_reason(
    small_tune: SmallTune, conf: str, more: tuple[object, ...], code: ExitCode, words: str, runs: VirtualRuns
) -> None:
    small_tune.conf.write_text(conf)
    finished = run_here(*small_tune.arguments(*more))
    assert finished.code == code, finished.stderr
    assert words in finished.stderr
    assert "Traceback" not in finished.stderr
    assert not small_tune.place.user_conf.exists()


def test_a_file_of_another_program_is_never_replaced(small_tune: SmallTune) -> None:
    small_tune.place.root.mkdir()
    small_tune.place.user_conf.write_text("mine")
    refused = run_here(*small_tune.arguments("--offline-qps", 50))
    assert refused.code == ExitCode.REFUSED
    assert f"{small_tune.place.user_conf} already exists" in refused.stderr
    assert small_tune.place.user_conf.read_text() == "mine"
    with held(small_tune.place.lock, "tuning"):
        refused = run_here(*small_tune.arguments("--offline-qps", 50))
    assert (refused.code, "another tuning is in progress here" in refused.stderr) == (ExitCode.REFUSED, True)
