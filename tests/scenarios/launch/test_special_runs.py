"""Unusual runs: too short, overloaded, audited, oddly named, or with a false record."""

import json
import threading
import time
from pathlib import Path

from runs.errors import SetupError
from runs.files.writing import sha256_of
from runs.loadgen.detail_log import read_detail
from runs.numbers.result import read_result
from runs.record.layout import LOADGEN_LOGS, RunDir
from runs.record.manifest import read_manifest
from runs.record.new_run import free_directory, taken
from runs.record.requests_log import read_request_table
from tests.conftest import RunMain, run_here
from tests.support.runs.run_commands import USER_CONF, arguments, environment_with_code


def test_files_of_loadgen_are_unchanged_after_the_run(run_main: RunMain, tmp_path: Path) -> None:
    out, hashes = tmp_path / "run", tmp_path / "hashes.json"
    # The recorder is closed right after LoadGen's Start call returned.
    environment = environment_with_code(
        tmp_path,
        in_run=f"""
        import json, hashlib, pathlib
        from sut.request_writer import RequestLogWriter
        close = RequestLogWriter.close
        def hash_and_close(self):
            files = pathlib.Path({str(out)!r}).glob("mlperf_log_*")
            hashes = {{file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}}
            pathlib.Path({str(hashes)!r}).write_text(json.dumps(hashes))
            close(self)
        RequestLogWriter.close = hash_and_close
        """,
    )
    finished = run_main(*arguments("Server", out, "--accuracy"), environment=environment)
    assert finished.code == 0, finished.stderr
    assert json.loads(hashes.read_text()) == {name: sha256_of(out / name) for name in LOADGEN_LOGS}


def test_a_run_below_the_minimum_duration_is_invalid(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    conf = USER_CONF.replace("min_duration = 200", "min_duration = 60000").replace(
        "target_qps = 50", "target_qps = 0.1"
    )
    finished = run_main(*arguments("Offline", out, "--dummy-ttft-ms", 1, "--enable-log-trace", conf=conf))
    assert finished.code == 1
    assert finished.stderr == ""
    assert "Offline performance: INVALID" in finished.stdout
    assert "required 60 s" in finished.stdout
    result = read_result(RunDir(out).result)
    assert result.verdict == result.loadgen_verdict == "INVALID"
    assert result.disagreements == []
    assert result.derived_from == "trace"
    assert RunDir(out).trace.stat().st_size > 0
    manifest = read_manifest(RunDir(out).manifest)
    assert (manifest.status, manifest.exit_code, manifest.error) == ("finished", 1, None)


AUDIT_OF_ONE_SAMPLE = """# one sample again and again
*.*.mode = 2
*.*.performance_issue_same = 1
*.*.performance_issue_same_index = 3
*.*.sample_concatenate_permutation = 0
*.*.min_query_count = 64
"""


def test_a_run_with_audit_config_applies_it_and_is_not_eligible(run_main: RunMain, tmp_path: Path) -> None:
    out, audit = tmp_path / "run", tmp_path / "some-name.config"
    audit.write_text(AUDIT_OF_ONE_SAMPLE)
    finished = run_main(*arguments("Offline", out, "--audit-conf", audit))
    assert finished.code == 0, finished.stderr
    run = RunDir(out)
    assert run.audit_config.read_text() == AUDIT_OF_ONE_SAMPLE
    # The index counts in LoadGen's shuffled set, not in the dataset.
    assert set(read_request_table(run.requests).sample_index.tolist()) == {
        read_detail(run.detail).get("loaded_qsl_set")[3]
    }
    manifest = read_manifest(run.manifest)
    assert any("audit" in reason for reason in manifest.unofficial_reasons)
    assert manifest.plan.audit
    assert read_result(run.result).disagreements == []


def test_a_directory_name_with_special_characters_is_accepted(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run [red] [" / "1] 'é'"
    out.parent.mkdir()
    finished = run_main(*arguments("Offline", out))
    assert finished.code == 0, finished.stderr
    lines = finished.stdout.splitlines()
    assert lines[0].endswith(f"run directory {out}")
    assert any(f"written to {out}: " in line for line in lines)


def test_a_request_log_that_contradicts_loadgen_fails_the_run(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    environment = environment_with_code(
        tmp_path,
        in_run="""
        from sut.request_writer import RequestLogWriter
        append = RequestLogWriter.append
        def append_another_sample(self, complete_ns, outcomes):
            for request, IDs, reason in outcomes:
                request.sample_index = (request.sample_index + 1) % 64
            append(self, complete_ns, outcomes)
        RequestLogWriter.append = append_another_sample
        """,
    )
    finished = run_main(*arguments("Offline", out), environment=environment)
    assert finished.code == 4
    assert "disagree: sample index at seq 0" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert "VALID" not in finished.stdout
    result = json.loads(RunDir(out).result.read_bytes())
    assert result["verdict"] == "ERROR"
    assert result["disagreements"]  # the details are kept
    manifest = read_manifest(RunDir(out).manifest)
    assert (manifest.status, manifest.exit_code) == ("failed", 4)


def test_a_refused_run_leaves_its_directory_usable(tmp_path: Path, run_main: RunMain) -> None:
    out = tmp_path / "run"
    refused = run_main(*arguments("Offline", out, "--dummy-fault", "start"))
    assert refused.code == 3, refused.stderr
    assert RunDir(out).manifest.exists()
    finished = run_main(*arguments("Offline", out))
    assert finished.code == 0, finished.stderr
    assert run_main(*arguments("Offline", out)).code == 3  # the directory now has a run
    assert run_here(*arguments("Offline", out, "--dry-run")).code == 3


def test_two_runs_of_one_second_have_separate_directories(tmp_path: Path) -> None:
    wanted = tmp_path / "output" / "run"
    assert [free_directory(wanted).name for _ in range(3)] == ["run", "run-2", "run-3"]


def test_a_second_run_in_one_directory_is_refused(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    refused: list[str] = []
    asking = threading.Event()

    def ask() -> None:
        asking.set()
        try:
            with taken(run):
                pass
        except SetupError as error:
            refused.append(error.message)

    thread = threading.Thread(target=ask)
    with taken(run):
        thread.start()
        asking.wait()
        time.sleep(0.1)  # the other run could continue for this time
        run.manifest.write_text("{}")
    thread.join()
    (message,) = refused
    assert f"{run.root} already has a run" in message
