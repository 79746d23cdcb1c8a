"""The command `signoff`: its files, and repeated measurements."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from compliance.judge.rule import find_rule
from compliance.judge.verdict import Finding, stated
from compliance.results.attestation_check import read_and_attested
from compliance.results.find_results import find_results
from compliance.signoff.signoff_verdict import SignOff, SignOffDetails, action, feedback
from qsl.embedded.articles import bundled_dataset
from runs.errors import ExecutionError, ExitCode, InputError
from runs.record.layout import SIGNOFF_LEDGER, RunDir
from runs.record.manifest import read_manifest
from scenarios.audit.remeasure import Sign, remeasured
from scenarios.launch.run_config import RunConfig
from tests.conftest import RunMain, run_here
from tests.support.runs.run_commands import arguments
from tests.support.runs.signoff_fixtures import FrozenRuns

CONF = """
*.SingleStream.target_latency = 8
*.SingleStream.min_duration = 200
*.SingleStream.min_query_count = 64
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> FrozenRuns:
    return FrozenRuns(tmp_path_factory)


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def noisy_sign_off() -> SignOff:
    return SignOff([stated("B-1/noisy_baseline", "text")], details=SignOffDetails("baseline", 0.5, "open"))


def test_remeasured_runs_of_both_sides_are_signed_off(run_main: RunMain, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    names = ("ref-1", "ref-2", "cand-1", "cand-2")  # the minimum for a sign-off is two runs of each side
    for name in names:
        tpot_ms = 0.2 if name.startswith("ref") else 0.05
        done = run_main(*arguments("SingleStream", folder / name, "--dummy-tpot-ms", tpot_ms, conf=CONF))
        assert done.code == ExitCode.OK, done.stderr
    (folder / "ref-1-user.conf").unlink()  # the copy in the run counts, not the named file
    before = digests(folder)
    out, mend = tmp_path / "verdict.json", tmp_path / "audit_feedback.json"
    sides = ("--ref", *(folder / name for name in names[:2]), "--cand", *(folder / name for name in names[2:]))
    options = ("--noise-band", 0.0001, "--remeasure", 1, "--out", out, "--feedback", mend)
    done = run_main("signoff", "--scope", "patch", *sides, *options)
    assert done.code in (ExitCode.OK, ExitCode.NEGATIVE), done.stderr  # depends on the load of the host
    assert "repeated the performance runs 1 time" in done.stdout
    # The old runs are unchanged in discarded/, and the new runs are in their places.
    turns = ("ref-1", "cand-1", "ref-2", "cand-2")
    aside = {name: folder / "discarded" / str(number) / name for number, name in enumerate(turns, start=1)}
    old = {f"{name}/{file}": digest for name, path in aside.items() for file, digest in digests(path).items()}
    assert old == {name: digest for name, digest in before.items() if "/" in name}
    assert not list(folder.glob("repeat-*"))
    verdict = json.loads(out.read_bytes())
    assert verdict["remeasured"] == 1
    assert verdict["ref"] + verdict["cand"] == [str(folder / name) for name in names]
    started = {name: read_manifest(RunDir(path).manifest) for name, path in aside.items()}
    for name in names:
        new = read_manifest(RunDir(folder / name).manifest)
        assert new.plan.engine_options == started[name].plan.engine_options
        assert (new.start_time_ns or 0) > max(value.start_time_ns or 0 for value in started.values())
        assert verdict["log_sha256"][str(folder / name)] != digests(aside[name])
    assert [load["rule"] for load in json.loads(mend.read_bytes())["to_mend"]] == verdict["flags"]


def test_a_moved_dataset_can_be_named(run_main: RunMain, tmp_path: Path) -> None:
    """A user of another host has the dataset in another directory."""
    data, moved, result = tmp_path / "rows.json", tmp_path / "moved.json", tmp_path / "result"
    data.write_text(json.dumps(json.loads(bundled_dataset("bytes").read_bytes())[:32]))
    (result / "performance").mkdir(parents=True)
    for more in (("performance/run_1",), ("accuracy", "--accuracy")):
        done = run_main(*arguments("SingleStream", result / more[0], *more[1:], "--dataset-path", data, conf=CONF))
        assert done.code == ExitCode.OK, done.stderr
    data.rename(moved)
    command = ("signoff", "--scope", "harness", "--ref", result)
    refused = run_here(*command)
    assert refused.code == ExitCode.NEGATIVE
    assert str(data) in refused.stdout
    named = run_here(*command, "--dataset-path", moved)
    assert named.code == ExitCode.OK, named.stdout


def test_runs_are_repeated_only_if_the_verdict_requires_it(runs: FrozenRuns) -> None:
    ref = runs.paths("srv-1", "srv-2")
    before = digests(ref[0].parent)
    passed = SignOff(details=SignOffDetails("baseline", 0.5, "open"))
    assert remeasured(lambda ref, cand: passed, ref, [], 1, Console(), print)[1] == 0
    assert remeasured(lambda ref, cand: noisy_sign_off(), ref, [], 0, Console(), print)[1] == 0
    assert digests(ref[0].parent) == before


def repeat(ran: list[Path]) -> Callable[..., None]:
    """Return a stand-in for a run. Its directory contains only a file with its number."""

    def run(config: RunConfig, _: Console) -> None:
        assert config.output_log_dir is not None
        ran.append(config.output_log_dir)
        config.output_log_dir.mkdir(parents=True)
        (config.output_log_dir / "number").write_text(str(len(ran)))

    return run


def sign_off_with_verdicts(verdicts: Iterable[SignOff], references: list[list[Path]] | None = None) -> Sign:
    """Return a sign-off with these verdicts. It keeps the directories of the reference in each call."""
    left = iter(verdicts)

    def sign(ref: Sequence[Path], cand: Sequence[Path]) -> SignOff:
        if references is not None:
            references.append(list(ref))
        return next(left)

    return sign


def test_remeasuring_ends_with_the_first_verdict_that_requires_no_repetition(
    runs: FrozenRuns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def copies() -> tuple[list[Path], list[Path]]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        ref = [runs.copy(folder / name, name) for name in ("srv-1", "srv-2", "srv-acc")]
        return ref, [runs.copy(folder / f"cand-{number}", f"srv-{number}") for number in (1, 2)]

    ran: list[Path] = []
    monkeypatch.setattr("scenarios.audit.remeasure.execute_run", repeat(ran))
    (ref, _), references = copies(), list[list[Path]]()
    last = SignOff(details=SignOffDetails("baseline", 0.5, "open"))
    assert remeasured(
        sign_off_with_verdicts([noisy_sign_off(), noisy_sign_off(), last], references),
        ref,
        [],
        3,
        Console(),
        lambda _: None,
    ) == (last, 2)
    assert references == [ref] * 3
    assert [(ref[0] / "number").read_text(), (ref[1] / "number").read_text()] == ["3", "4"]
    assert not (ref[2] / "number").exists()
    ran.clear()
    ref, cand = copies()
    still, rounds = remeasured(
        sign_off_with_verdicts([noisy_sign_off(), noisy_sign_off()]), ref[:2], cand, 1, Console(), lambda _: None
    )
    assert [path.name for path in ran] == ["srv-1", "cand-1", "srv-2", "cand-2"]  # in turn
    assert (rounds, action(still)) == (1, "remeasure")
    assert [finding.slug for finding in still.findings] == ["noisy_baseline", "baseline_imperfect"]


@pytest.mark.parametrize(
    ("rules", "rounds"),
    [
        (["B-4/contended"], 1),
        (["G-2/overstated", "B-4/contended"], 1),  # although the claim is corrected first
        (["G-6/hidden_regression"], 0),
        (["B-4/contended", "G-4/overlap"], 0),  # a FAIL stays a FAIL
    ],
)
def test_a_busy_host_requires_repetitions(monkeypatch: pytest.MonkeyPatch, rules: list[str], rounds: int) -> None:
    monkeypatch.setattr("scenarios.audit.remeasure._performance_runs", lambda _: {})
    findings = [Finding(rule, find_rule(rule).severity, "text") for rule in rules]
    findings = [
        replace(finding, severity="warning") if finding.rule == "B-4/contended" else finding for finding in findings
    ]
    verdicts = [SignOff(value, details=SignOffDetails("baseline", 0.5, "open")) for value in (findings, [])]
    assert remeasured(sign_off_with_verdicts(verdicts), [Path()], [], 3, Console(), lambda _: None)[1] == rounds


def test_a_discarded_run_is_not_signed_off(runs: FrozenRuns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = runs.copy(tmp_path / "performance" / "run_1", "srv-1")
    runs.copy(tmp_path / "accuracy", "srv-acc")

    def run(config: RunConfig, _: Console) -> None:
        assert config.output_log_dir is not None
        runs.copy(config.output_log_dir, "srv-2")

    monkeypatch.setattr("scenarios.audit.remeasure.execute_run", run)
    remeasured(
        sign_off_with_verdicts([noisy_sign_off(), noisy_sign_off()]), [tmp_path], [], 1, Console(), lambda _: None
    )
    assert [path.name for path in (tmp_path / "performance").iterdir()] == ["run_1"]
    assert digests(old) == digests(runs("srv-2"))
    assert digests(tmp_path / "discarded" / "1" / "run_1") == digests(runs("srv-1"))
    (result,) = find_results([tmp_path])
    assert result.directories == [old, tmp_path / "accuracy"]


def test_a_failed_repetition_keeps_the_runs(runs: FrozenRuns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ref = [runs.copy(tmp_path / "performance" / f"run_{number}", f"srv-{number}") for number in (1, 2)]
    before = digests(tmp_path)
    ran: list[Path] = []

    def run(config: RunConfig, console: Console) -> None:
        if ran:
            raise ExecutionError("the engine died")
        repeat(ran)(config, console)

    monkeypatch.setattr("scenarios.audit.remeasure.execute_run", run)
    with pytest.raises(ExecutionError, match="the engine died"):
        remeasured(sign_off_with_verdicts([noisy_sign_off()]), ref, [], 1, Console(), lambda _: None)
    assert {name: digest for name, digest in digests(tmp_path).items() if "repeat-1" not in name} == before


def test_a_run_without_repeatable_options_is_refused(runs: FrozenRuns, tmp_path: Path) -> None:
    run = runs.copy(tmp_path / "run", "srv-1", ["set_manifest", "asked.turbo", True])
    with pytest.raises(InputError, match="cannot be repeated: --turbo: "):
        remeasured(lambda ref, cand: noisy_sign_off(), [run], [], 1, Console(), print)


def test_verdict_and_ledger_are_written_to_the_named_path(runs: FrozenRuns, tmp_path: Path) -> None:
    out = tmp_path / "out" / "verdict.json"
    before = digests(runs("srv-1"))
    done = run_here("signoff", "--scope", "harness", "--ref", *runs.paths("srv-1", "srv-acc"), "--out", out)
    assert done.code == ExitCode.OK, done.stderr
    assert {path.name for path in out.parent.iterdir()} == {"verdict.json", SIGNOFF_LEDGER}
    assert "remeasured" not in json.loads(out.read_bytes())
    assert digests(runs("srv-1")) == before


def ledger(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / SIGNOFF_LEDGER).read_bytes().splitlines()]


def test_a_verdict_is_written_beside_the_candidate_and_into_the_ledger(runs: FrozenRuns, tmp_path: Path) -> None:
    ref = [runs.copy(tmp_path / name, name) for name in ("ss-1", "ss-3", "ss-acc")]
    cand = [runs.copy(tmp_path / name, name) for name in ("ss-fast-1", "ss-fast-2")]
    before = digests(tmp_path)
    for _ in range(2):
        done = run_here("signoff", "--scope", "patch", "--ref", *ref, "--cand", *cand)
        assert done.code == ExitCode.OK, done.stdout
    file = cand[0] / "signoff_patch.json"
    assert f"written to {file}" in done.stdout
    after = digests(tmp_path)
    new = {f"ss-fast-1/{name}" for name in (file.name, SIGNOFF_LEDGER)}
    assert (after.keys() - before.keys(), {name: after[name] for name in before}) == (new, before)
    first, second = ledger(cand[0])
    assert second["sha256"] == after["ss-fast-1/signoff_patch.json"]
    assert {**second, "time": ""} == {
        "time": "", "file": file.name, "sha256": second["sha256"], "audit_scope": "patch", "short_name": "ss-1",
        "verdict": "PASS", "action": "pass", "ref": [*map(str, ref)], "cand": [*map(str, cand)],
    }  # fmt: skip
    assert first["sha256"] == second["sha256"]  # the verdict on the same runs is equal
    # The files are not part of the attestation of the run.
    signed = run_here("signoff", "--scope", "harness", "--ref", cand[0], runs("ss-fast-acc"), "--strict-flag")
    assert signed.code == ExitCode.OK, signed.stdout
    assert read_and_attested(RunDir(cand[0]))[1] == []
    assert [line["audit_scope"] for line in ledger(cand[0])] == ["patch", "patch", "harness"]


@pytest.mark.parametrize("planted", ["directory", "link", "pipe"])
@pytest.mark.parametrize("name", ["signoff_harness.json", SIGNOFF_LEDGER])
def test_an_unwritable_verdict_does_not_change_the_exit_code(
    runs: FrozenRuns, tmp_path: Path, name: str, planted: str
) -> None:
    run, victim = runs.copy(tmp_path / "run", "srv-1"), tmp_path / "victim"
    victim.write_text("not ours")
    {
        "directory": lambda path: path.mkdir(),
        "link": lambda path: path.symlink_to(victim),
        "pipe": os.mkfifo,
    }[planted](run / name)
    done = run_here("signoff", "--scope", "harness", "--ref", run, runs("srv-acc"))
    assert done.code == ExitCode.OK, done.stderr
    replaced = (planted, name) == ("link", "signoff_harness.json")
    assert (f"verdict not saved: {run / name} cannot be written: " in done.stdout) != replaced
    assert victim.read_text() == "not ours"


def test_a_verdict_on_bare_logs_is_written_only_to_a_named_path(runs: FrozenRuns, tmp_path: Path) -> None:
    run = runs.copy(tmp_path / "run", "srv-1")
    RunDir(run).manifest.unlink()
    before = digests(tmp_path)
    done = run_here("signoff", "--scope", "harness", "--ref", run)
    assert done.code == ExitCode.NEGATIVE
    assert "verdict not saved" in done.stdout
    assert digests(tmp_path) == before


def test_feedback_names_the_most_severe_findings_first() -> None:
    reasons = [
        stated("B-1/steady", "text"),
        stated("B-2/outlier", "text", Path("file")),
        stated("P-5/same_process", "text"),
    ]
    verdict = SignOff(reasons, details=SignOffDetails("baseline", 0.5, "open"))
    assert [finding["rule"].split("/")[0] for finding in feedback(verdict)["to_mend"]] == ["P-5", "B-2"]
    verdict.error = ExecutionError("ValueError")
    assert (feedback(verdict)["to_mend"], feedback(verdict)["verdict"]) == ([], None)
