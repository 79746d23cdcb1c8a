"""`main.py audit` as a user runs it: runs of the dummy engine through the real LoadGen, and their verdict."""

import io
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from compliance.audits.audit_registry import judged_again, request_beside
from compliance.audits.discovery import AUDITS, find_audit
from runs.errors import ExecutionError, ExitCode, InputError
from runs.loadgen.detail_log import read_detail
from runs.record.finished_run import FinishedRun
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from runs.record.requests_log import read_request_table
from scenarios.audit.audit_config import audit_options
from scenarios.audit.run_audit import run_audit
from tests.conftest import Finished, RunMain, StartMain, run_here
from tests.support.engines.cheats import CHEAT
from tests.support.processes.patience import until
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.run_commands import environment_with_code


def arguments(test: str, scenario: str, out: Path, *more: object) -> list[object]:
    return ["audit", "--test", test, "--scenario", scenario, "--engine", "dummy", "--output-log-dir", out, *more]


def record(out: Path, test: str) -> dict[str, Any]:
    return dict(json.loads((out / "audit" / test / f"audit_{test}.json").read_text()))


def check_no_verdict(finished: Finished, out: Path, code: ExitCode, says: str) -> None:
    assert finished.code == code, finished.stdout + finished.stderr
    assert says in finished.stderr
    assert "Traceback" not in finished.stderr
    assert "PASS" not in finished.stdout
    assert not list(out.glob("audit/*/audit_*.json"))
    assert not list(out.glob("audit/*/verify_*.txt"))


# Caching --------------------------------------------------------------------------------------------------------------


def test_an_audit_of_an_honest_engine_runs_as_planned_and_passes(run_main: RunMain, tmp_path: Path) -> None:
    """An honest engine that sleeps passes on a busy host, too."""
    out = tmp_path / "run"
    slow = ("--dummy-ttft-ms", 120, "--dummy-slots", 1)
    finished = run_main(*arguments("output_caching", "Offline", out, "--samples", 20, *slow))
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    folder = out / "audit" / "output_caching"
    text = (folder / "verify_performance.txt").read_text()
    assert text.startswith("Verifying performance.\nreference score = ")
    assert "\nTEST PASS\n" in text
    result = record(out, "output_caching")
    assert (result["passed"], result["official"], result["required"]) == (True, False, False)
    labels = [entry["label"] for entry in result["runs"]]
    assert labels[0] == "reference-n20-round1"
    assert len({entry["pid"] for entry in result["runs"]}) == len(labels)
    issued: set[int] = set()
    for number, label in enumerate(labels):
        run = RunDir(folder / label)
        table, detail, manifest = read_request_table(run.requests), read_detail(run.detail), read_manifest(run.manifest)
        assert len(table) == 20
        assert manifest.plan.rows is not None
        assert detail.integer("qsl_reported_total_count") == len(manifest.plan.rows)
        rows = {manifest.plan.row_of(index) for index in table.sample_index.tolist()}
        if label.startswith("reference"):
            assert len(rows) == 20
            assert not rows & issued
        elif label.startswith("repeat"):
            place = int(label.split("-")[1])
            assert set(table.sample_index.tolist()) == {detail.loaded_qsl_set[place]}
            assert len(rows) == 1
        else:
            assert len(rows) == 4
        issued |= rows
        assert run.audit_config.read_text() == (folder / f"{label}.audit.config").read_text()
        assert not manifest.official
        assert (manifest.engine.warm_up.prompts > 0) == (number == 0)  # one engine serves all runs
    count = 20 * sum(label.startswith("reference") for label in labels)
    assert (result["reference_samples"], result["new_reference_samples"]) == (count, count)


def test_a_dataset_with_too_few_samples_gets_new_engines(run_main: RunMain, tmp_path: Path) -> None:
    """The engine keeps responses for later runs. Its reference runs have all samples of the dataset."""
    out = tmp_path / "run"
    slow = ("--dummy-ttft-ms", 120, "--total-sample-count", 20, "--samples", 20)
    finished = run_main(*arguments("output_caching", "SingleStream", out, *slow), environment={CHEAT: "cache-prompt"})
    assert finished.code == ExitCode.NEGATIVE, finished.stdout + finished.stderr
    result = record(out, "output_caching")
    folder = out / "audit" / "output_caching"
    references = [entry["label"] for entry in result["runs"] if entry["label"].startswith("reference")]
    plans = [read_manifest(RunDir(folder / label).manifest).plan.replicas for label in references]
    assert len({plan.kept.start_time_ns for plan in plans if plan and plan.kept}) == len(references) == 2
    assert (result["engines"], result["new_reference_samples"]) == (2, 40)


# Responses
# --------------------------------------------------------------------------------------------------------------


def test_test06_ignores_an_audit_config_in_the_working_directory(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    (tmp_path / "working-directory" / "audit.config").write_text("*.*.mode = 1\n")
    finished = run_main(*arguments("TEST06", "Server", out, "--target-qps", 200))
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    folder = out / "audit" / "TEST06"
    text = (folder / "verify_accuracy.txt").read_text()
    assert (text.count("True"), text.count("False"), text.splitlines()[-1]) == (3, 0, "TEST06 verification complete")
    log = (folder / "performance" / "mlperf_log_accuracy.json").read_bytes()
    assert (folder / "accuracy" / "mlperf_log_accuracy.json").read_bytes() == log
    assert len(json.loads(log)) == 100


def test_output_consistency_runs_both_modes_and_accepts_existing_runs(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    # SingleStream: both runs have one query after another.
    finished = run_main(*arguments("output_consistency", "SingleStream", out, "--samples", 20))
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    folder = out / "audit" / "output_consistency"
    test, performance = find_audit("output_consistency"), FinishedRun(RunDir(folder / "performance"))
    result, _ = judged_again(folder, test, request_beside(performance, test))
    assert result.passed
    existing = ["--ref", folder / "accuracy", "--run", folder / "performance", "--output-log-dir", tmp_path / "again"]
    for test in ("output_consistency", "output_length"):
        finished = run_here("audit", "--test", test, *existing)
        assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
        assert record(tmp_path / "again", test)["passed"]
    swapped = ["--ref", folder / "performance", "--run", folder / "accuracy", "--output-log-dir", tmp_path / "swapped"]
    finished = run_here("audit", "--test", "output_length", *swapped)
    check_no_verdict(finished, tmp_path / "swapped", ExitCode.BAD_INPUT, "must be an accuracy run")
    pair = ["--ref", folder / "performance", "--run", folder / "performance", "--output-log-dir", tmp_path / "pair"]
    finished = run_here("audit", "--test", "TEST04", *pair)
    assert finished.code == ExitCode.NEGATIVE, finished.stdout + finished.stderr
    text = (tmp_path / "pair" / "audit" / "TEST04" / "verify_performance.txt").read_text()
    assert text.startswith("Verifying performance.\nTEST FAIL: Reference results are invalid\n")  # 20 of 64 queries


# No verdict -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "scenario", "more", "code", "says"),
    [
        ("output_caching", "Server", (), ExitCode.REFUSED, "arrival rate determines"),
        ("output_caching", "Interactive", (), ExitCode.REFUSED, "arrival rate determines"),
        (
            "output_cashing",
            "Offline",
            (),
            ExitCode.BAD_INPUT,
            ", ".join(AUDITS),
        ),
        ("TEST06", "Offline", ("--sample-index", 3), ExitCode.BAD_INPUT, "--sample-index 3: "),
        ("TEST06", "Offline", ("--run", "a"), ExitCode.BAD_INPUT, "TEST06 checks its own runs only"),
        ("output_length", "Offline", ("--ref", "a"), ExitCode.BAD_INPUT, "requires both --ref and --run"),
        (
            "TEST04",
            "Offline",
            ("--ref", "a", "--run", "b"),
            ExitCode.BAD_INPUT,
            "--engine: no effect with --ref and --run",
        ),
        ("TEST06", "Offline", ("--accuracy",), ExitCode.BAD_INPUT, "--accuracy"),
    ],
)
def test_invalid_audits_are_refused_before_the_start(
    tmp_path: Path, test: str, scenario: str, more: tuple[object, ...], code: ExitCode, says: str
) -> None:
    out = tmp_path / "run"
    check_no_verdict(run_here(*arguments(test, scenario, out, *more)), out, code, says)
    assert not out.exists()


def test_a_refused_audit_leaves_its_directory_usable(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    check_no_verdict(
        run_main(*arguments("TEST06", "Offline", out, "--dummy-fault", "start")), out, ExitCode.REFUSED, "not to start"
    )
    finished = run_main(*arguments("TEST06", "Offline", out, "--dummy-fault", "die@5"))
    check_no_verdict(finished, out, ExitCode.FAILED, "died")
    reported = run_here("status", out)
    assert (reported.code, reported.stdout.startswith("failed "), "died" in reported.stdout) == (4, True, True)
    finished = run_main(*arguments("TEST06", "Offline", out))
    check_no_verdict(finished, out, ExitCode.REFUSED, "already contains an audit")


def test_a_vanished_audit_config_prevents_a_verdict(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    remove = """
        import os
        chdir = os.chdir
        def into_run_directory(path):
            chdir(path)
            os.unlink("audit.config")
        os.chdir = into_run_directory
    """
    environment = environment_with_code(tmp_path, in_run=remove)
    finished = run_main(*arguments("TEST06", "Offline", out, "--dummy-ttft-ms", 50), environment=environment)
    check_no_verdict(finished, out, ExitCode.FAILED, "did not apply audit.config")


def test_an_interrupted_audit_has_no_verdict(start_main: StartMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    main = start_main(*arguments("output_caching", "Offline", out, "--samples", 8, "--dummy-ttft-ms", 3000))
    runs = out / "audit" / "output_caching"
    until(lambda: list(runs.glob("repeat-*/progress.json")), "the second run")
    main.process.send_signal(signal.SIGINT)
    check_no_verdict(main.wait(), out, ExitCode.INTERRUPTED, "interrupted")
    assert run_here("status", out).stdout.startswith("interrupted ")


def test_an_audit_in_yaml_is_run_beside_its_result(tmp_path: Path) -> None:
    config = tmp_path / "audit.yaml"
    config.write_text("scenario: Server\nengine: dummy\naudit: {test: output_caching, sample-index: [3, 5]}\n")
    check_no_verdict(run_here("audit", "--config", config), tmp_path, ExitCode.REFUSED, "arrival rate determines")
    config.write_text("scenario: Offline\nengine: dummy\naudit: {test: TEST06, colour: blue}\n")
    check_no_verdict(run_here("audit", "--config", config), tmp_path, ExitCode.BAD_INPUT, "colour")
    config.write_text("scenario: Offline\nengine: dummy\naudit: {test: TEST06}\n")
    check_no_verdict(run_here("run", "--config", config), tmp_path, ExitCode.BAD_INPUT, "audit --config")


def test_existing_runs_are_judged_and_the_outcome_is_kept(tmp_path: Path) -> None:
    runs, shown = DummyRuns(), io.StringIO()
    options = audit_options({"test": "output_length", "ref": runs("Offline", "accuracy"), "run": runs("Offline")})
    console = Console(file=shown, width=300)
    assert run_audit(options, {"output_log_dir": tmp_path}, console) == ExitCode.OK
    assert "audit output_length " in shown.getvalue()
    assert "pass length-samples" in shown.getvalue()
    folder = tmp_path / "audit" / "output_length"
    record = json.loads((folder / "audit_output_length.json").read_bytes())
    assert record["passed"] is True
    assert record["reason"] in shown.getvalue()
    assert (folder / "verify_output_len.txt").is_file()


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [(KeyError("x"), ExecutionError, "unreadable: KeyError"), (InputError("damaged"), InputError, "damaged")],
)
def test_existing_runs_without_verdict_leave_no_files(
    error: Exception, raised: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(type(AUDITS["output_length"]), "verify", fails)
    runs = DummyRuns()
    options = audit_options({"test": "output_length", "ref": runs("Offline", "accuracy"), "run": runs("Offline")})
    with pytest.raises(raised, match=message):
        run_audit(options, {"output_log_dir": tmp_path / "out"}, Console(quiet=True))
    assert not (tmp_path / "out").exists()
