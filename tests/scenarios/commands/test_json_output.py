"""`--json`: each command prints exactly one object; `-q`: only errors are printed."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from runs.record.layout import ResultDir, RunDir
from scenarios.dispatch import COMMANDS
from tests.conftest import ROOT, Finished, RunMain, run_here
from tests.support.documents.json_shapes import differences, shapes
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.run_commands import USER_CONF, arguments
from tests.support.runs.submission_runs import edit


def output_of(finished: Finished) -> dict[str, Any]:
    (line,) = finished.stdout.splitlines()
    document: dict[str, Any] = json.loads(line)
    assert list(document) == ["command", "exit_code", "error", "answer"]
    assert document["exit_code"] == finished.code
    return document


def test_a_run_prints_its_result_as_json(tmp_path: Path, run_main: RunMain) -> None:
    out = tmp_path / "run"
    finished = run_main(*arguments("Offline", out, "--json"))
    document = output_of(finished)
    assert (document["command"], document["exit_code"], document["error"]) == ("run", 0, None)
    assert document["answer"]["run_directory"] == str(out)
    assert document["answer"]["result"] == json.loads(RunDir(out).result.read_bytes())
    assert differences(document["answer"], "run") == []
    assert "Offline performance: VALID" in finished.stderr


def test_a_dry_run_prints_its_plan_as_json(tmp_path: Path) -> None:
    document = output_of(run_here(*arguments("Offline", tmp_path / "run", "--json", "--dry-run")))
    assert document["answer"]["plan"]["count"]["samples"] == 64
    assert document["answer"]["plan"]["invalid_because"] == []


def test_a_dry_bench_prints_its_plan_as_json() -> None:
    document = output_of(run_here("bench", "--engine", "dummy", "--concurrency", "8", "--dry-run", "--json"))
    assert differences(document["answer"], "bench") == []
    assert [step["concurrency"] for step in document["answer"]["plan"]] == [8]


def test_a_dry_comparison_prints_its_plan_as_json(tmp_path: Path) -> None:
    systems = [tmp_path / f"{name}.yaml" for name in "ab"]
    for system in systems:
        system.write_text("engine: dummy\n")
    document = output_of(run_here("ab", *systems, "--rates", "8", "--dry-run", "--json"))
    assert differences(document["answer"], "ab") == []
    assert [step["qps"] for step in document["answer"]["plan"]] == [8]


@pytest.mark.parametrize("command", [*COMMANDS, "store query"])
def test_an_unknown_option_is_reported_as_json_by_each_command(command: str) -> None:
    document = output_of(run_here(*command.split(), "--no-such-option", "--json"))
    assert (document["command"], document["exit_code"]) == (command.split()[0], 2)
    assert "--no-such-option" in document["error"]["message"]
    assert document["error"]["fix"]


def test_verbose_prints_the_engine_log(tmp_path: Path, run_main: RunMain) -> None:
    reported = run_main(*arguments("Offline", tmp_path / "run", "-v", "--dummy-fault", "raise@5"))
    assert reported.code == 4
    assert "| Traceback (most recent call last):" in reported.stdout
    assert "Traceback" not in reported.stderr


def test_quiet_prints_only_errors(tmp_path: Path, run_main: RunMain) -> None:
    finished = run_main(*arguments("Offline", tmp_path / "run", "-q"))
    assert (finished.code, finished.stdout, finished.stderr) == (0, "", "")
    refused = run_main("run", "--scenario", "Offlin", "-q")
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: ")


# Documented structures ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a result, a failed run, a file of LoadGen settings and a campaign."""
    folder, runs = tmp_path_factory.mktemp("place"), DummyRuns()
    result = ResultDir(folder / "result")
    runs.copy(result.performance.root, "Server")
    runs.copy(result.accuracy.root, "Server", "accuracy")
    failed = runs.copy(folder / "group/audit/TEST06/performance", "Offline")
    edit(failed.manifest, status="failed", exit_code=4, error={"message": "the engine died"})
    (folder / "user.conf").write_text(USER_CONF)
    config = {"benchmark": "llama3.1-8b", "division": "open", "engine": "dummy", "user_conf": str(folder / "user.conf")}
    (folder / "campaign.yaml").write_text(json.dumps(config | {"scenarios": ["Offline"]}))
    (folder / "curve.yaml").write_text(json.dumps(curve_values(folder)))
    assert run_here("store", "ingest", folder / "result", "--db", folder / "db").code == 0
    return folder


def curve_values(folder: Path) -> dict[str, Any]:
    """Return the content of curve.yaml for a dry run, which starts no program."""
    (folder / "prompts.jsonl").write_text('{"prompt": "p"}')
    (folder / "system.json").write_text("{}")
    datasets = [{"path": "prompts.jsonl"}, {"path": "prompts.jsonl", "type": "accuracy"}]
    return {
        "server": "http://127.0.0.1:9", "client": sys.executable, "model": "model", "datasets": datasets,
        "division": "RDI", "seed_set": "A", "target_cohort": "2026-12-C0", "system": "system.json", "c_max": 64,
        "disclosures": dict.fromkeys(("model_precision", "link_to_model", "dataset_link"), "x"), "shared_src": ".",
        "shared_docs": ".", "accelerators": 1,
    }  # fmt: skip


DUMMY = "--engine dummy --user-conf {}/user.conf"
SHAPES = {
    "run --dry-run": f"run --scenario Offline {DUMMY} --output-log-dir {{}}/new --dry-run",
    "campaign": "campaign --config {}/campaign.yaml --output-log-dir {}/new --dry-run",
    "curve": "curve --config {}/curve.yaml --rehearsal --dry-run",
    "verify": "verify {}/result",
    "signoff": "signoff --scope harness --ref {}/result/performance/run_1",
    "gate": "gate {}/result",
    "doctor": "doctor",
    "status": "status {}",
    "results": "results {}",
    "report": "report {}/result --output {}/page.html",
    "compare": "compare {}/result/performance/run_1 {}/result/performance/run_1 --output-dir {}/compared",
    "init": "init {}/mlperf",
    "init --kind endpoints": "init --kind endpoints",
    "anchor": "anchor {}/result --ledger {}",
    "audit": "audit --test output_length --ref {}/result/accuracy --run {}/result/performance/run_1 "
    "--output-log-dir {}/audited",
    "store compare": "store compare RUN_ID RUN_ID --db {}/db",
    "store ingest": "store ingest {}/result --db {}/db",
    "store query": "store query --db {}/db",
    "store export": "store export --db {}/db",
    "store summary": "store summary --db {}/db",
}
# Structures that the tests of these files compare, because they create the needed output.
ELSEWHERE = {
    "run": "test_json_output.py",
    "ab": "test_json_output.py",
    "bench": "test_json_output.py",
    "tune": "tune/test_tune.py",
    "quantize": "quantize/test_quantize.py",
    "submit": "submission/test_submission_build.py",
    "check": "trees/test_submission_check_command.py",
    "check, submit (MLPerf Endpoints)": "mlperf_endpoints/test_rules_and_submission.py",
}


@pytest.mark.parametrize("name", SHAPES)
def test_json_outputs_have_the_documented_structure(name: str, place: Path) -> None:
    row = output_of(run_here("store", "query", "--db", place / "db", "--json"))["answer"]["rows"][0]
    words = SHAPES[name].replace("{}", str(place)).replace("RUN_ID", row["run_id"])
    document = output_of(run_here(*shlex.split(words), "--json"))
    assert document["error"] is None
    assert differences(document["answer"], name) == []


def test_each_command_has_a_documented_and_tested_structure() -> None:
    headings = {name for name in shapes() if name.partition(",")[0].partition(" ")[0] in COMMANDS}
    assert headings == {*SHAPES, *ELSEWHERE}
    assert {name.partition(" ")[0].rstrip(",") for name in headings} == set(COMMANDS)
    for name, file in ELSEWHERE.items():
        (path,) = (path for path in (ROOT / "tests").rglob("*.py") if path.as_posix().endswith(file))
        assert re.search(rf'differences\(.*, "{re.escape(name)}"\)', path.read_text()), (name, path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time_ns": "now"}, "status.time_ns: str, documented: integer"),
        ({"time_ns": True}, "status.time_ns: bool, documented: integer"),
        ({"more": 1}, "status.more: not documented"),
        ({"runs": [{"kind": "audit"}]}, "status.runs[0].state: missing"),
        ({"runs": None}, "status.runs: NoneType, documented: list of state of a group or state of a run"),
    ],
)
def test_a_deviation_from_the_documented_structure_is_found(change: dict[str, Any], message: str) -> None:
    assert message in differences({"time_ns": 1, "runs": [], **change}, "status")
