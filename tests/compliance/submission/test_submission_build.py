"""`main.py submit`: the files of a tree, their places, unchanged runs, and files that are derived from others."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from compliance.judge.record import record
from compliance.signoff.signoff_verdict import SignOff, SignOffDetails
from compliance.submission.build import Submission
from compliance.submission.source import read_documentation, read_source_code
from compliance.submission.submitted_accuracy import submitted_accuracy
from compliance.trees.tree import REHEARSAL_FILE, REHEARSAL_MARK
from runs.errors import ExecutionError, ExitCode, HarnessError, InputError, SetupError
from runs.record.layout import CampaignDir, RunDir
from runs.record.manifest import Manifest
from runs.rounds import ROUNDS
from scenarios.commands.submit import submit
from tests.support.documents.json_shapes import differences
from tests.support.official import SEEDS
from tests.support.published import CHECKOUT, needs_checkout
from tests.support.runs.counted_reads import count_reads
from tests.support.runs.records import official_record
from tests.support.runs.submission_runs import BENCHMARK, SYSTEM, claim_official, results_of, sign_off_all

Submit = Callable[..., Submission]
SCENARIO_FILES = {
    "README.md",
    "measurements.json",
    "user.conf",
    "performance/run_1/mlperf_log_summary.txt",
    "performance/run_1/mlperf_log_detail.txt",
    "performance/run_1/mlperf_log_accuracy.json",
    "accuracy/mlperf_log_summary.txt",
    "accuracy/mlperf_log_detail.txt",
    "accuracy/mlperf_log_accuracy.json",
    "accuracy/accuracy.txt",
    "TEST06/verify_accuracy.txt",
    "TEST06/accuracy/mlperf_log_accuracy.json",
    "TEST06/performance/run_1/mlperf_log_summary.txt",
    "TEST06/performance/run_1/mlperf_log_detail.txt",
}


def hashes_by_path(root: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its path."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_a_rehearsal_tree_is_complete_and_marked(build: Submit, campaign: CampaignDir, tmp_path: Path) -> None:
    before = hashes_by_path(campaign.root)
    outcome = build()
    assert outcome.all_findings == []
    assert hashes_by_path(campaign.root) == before
    tree, home = tmp_path / "tree", tmp_path / "tree" / "closed" / "Org"
    expected = {f"results/Box/{BENCHMARK}/{value}/{name}" for value in ("Offline", "Server") for name in SCENARIO_FILES}
    expected |= {"systems/Box.json", "src/README.md", "src/mlperf-llama-vllm/main.py", "documentation/calibration.md"}
    assert set(hashes_by_path(home)) == expected
    assert {path.name for path in tree.iterdir()} == {"closed", REHEARSAL_FILE}
    submitted = record(outcome)
    assert submitted["files"] == {name: (tree / name).stat().st_size for name in hashes_by_path(tree)}
    assert submitted["bytes"] == sum(submitted["files"].values())
    assert submitted["verdict"] == "BUILT"
    assert submitted["signoff"]["audit_scope"] == "bundle"
    assert submitted["signoff"]["verdict"] in ("PASS", "FLAG")
    assert submitted["system"]["cooling"] == {"value": "air", "from": "file"}
    assert any("dummy engine" in reason for reason in submitted["rehearsal"])
    marked = [tree / REHEARSAL_FILE, *tree.rglob("measurements.json"), *home.glob("results/**/README.md")]
    assert len(marked) == 5
    for path in marked:
        assert REHEARSAL_MARK in path.read_text(), path
    assert json.loads((home / "systems/Box.json").read_bytes())["sw_notes"] == f"{REHEARSAL_MARK}."
    assert "dummy engine" in (tree / REHEARSAL_FILE).read_text()


def test_logs_are_copied_unchanged_except_the_truncated_accuracy_log(
    build: Submit, campaign: CampaignDir, tmp_path: Path
) -> None:
    """Only the accuracy log is shortened."""
    build()
    for result in results_of(campaign):
        to = tmp_path / "tree/closed/Org/results/Box" / BENCHMARK / result.root.name
        for name in ("mlperf_log_summary.txt", "mlperf_log_detail.txt", "mlperf_log_accuracy.json"):
            assert (to / "performance/run_1" / name).read_bytes() == (result.performance.root / name).read_bytes()
            run = result.audit("TEST06") / "performance" / name
            part = "accuracy" if name.endswith("json") else "performance/run_1"
            assert (to / "TEST06" / part / name).read_bytes() == run.read_bytes()
        log = result.accuracy.accuracy_log.read_bytes()
        assert (to / "accuracy/mlperf_log_accuracy.json").read_bytes() == log[:4096] + b"\n\n...\n\n" + log[-4096:]
        text = (to / "accuracy/accuracy.txt").read_text()
        assert text == result.accuracy.accuracy_text.read_text() + f"\nhash={hashlib.sha256(log).hexdigest()}\n"
        assert (to / "user.conf").read_bytes() == result.performance.user_conf.read_bytes()
    text = (tmp_path / "tree/closed/Org/results/Box" / BENCHMARK / "Offline/README.md").read_text()
    assert "python main.py --scenario Offline --user-conf user.conf --engine dummy --dummy-ttft-ms 250.0\n" in text
    assert "python main.py audit --test TEST06 --scenario Offline" in text
    assert "commit " + "0" * 40 in text
    manifest = json.loads(campaign.result(BENCHMARK, "Offline").performance.manifest.read_bytes())
    assert manifest["plan"]["dataset_sha256"] in text
    assert manifest["observed"]["host"]["hostname"] not in text.split()
    assert str(tmp_path) not in text


def test_an_official_tree_has_no_rehearsal_mark(
    build: Submit, campaign: CampaignDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_official(campaign)
    signed = sign_off_all(monkeypatch)
    outcome = build(rehearsal=False)
    assert outcome.all_findings == []
    runs = [run.root for result in results_of(campaign) for run in (result.performance, result.accuracy)]
    assert sorted(signed) == sorted(runs)
    assert outcome.details.rehearsal == []
    files = [path for path in (tmp_path / "tree").rglob("*") if path.is_file()]
    assert not any(REHEARSAL_MARK.encode() in path.read_bytes() for path in files)
    again = build(rehearsal=True, tree="again")
    assert hashes_by_path(tmp_path / "again") == hashes_by_path(tmp_path / "tree")
    (note,) = again.details.notes
    assert "not marked as a rehearsal" in note


def test_a_tree_is_identical_for_each_way_to_name_its_runs(
    build: Submit, campaign: CampaignDir, tmp_path: Path
) -> None:
    build()
    results = results_of(campaign)
    runs = [
        path for result in results for path in (result.accuracy.root, result.performance.root, result.audit("TEST06"))
    ]
    for number, named in enumerate(([result.root for result in reversed(results)], runs)):
        assert build(*named, tree=f"again-{number}").all_findings == []
        assert hashes_by_path(tmp_path / "tree") == hashes_by_path(tmp_path / f"again-{number}")


def test_the_v5_1_layout_has_a_measurements_directory(
    build: Submit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(ROUNDS, "v5.1", replace(ROUNDS["v5.1"], seeds=SEEDS))
    assert build(round=ROUNDS["v5.1"]).all_findings == []
    home = tmp_path / "tree" / "closed" / "Org"
    assert (home / "measurements/Box" / BENCHMARK / "Server/Box.json").is_file()
    assert (home / "measurements/Box" / BENCHMARK / "Server/user.conf").is_file()
    assert (home / "compliance/Box" / BENCHMARK / "Server/TEST06/verify_accuracy.txt").is_file()
    assert (home / "code/mlperf-llama-vllm/main.py").is_file()
    assert {path.name for path in (home / "results/Box" / BENCHMARK / "Server").iterdir()} == {
        "accuracy",
        "performance",
    }


@pytest.mark.parametrize("division", ["closed", "open"])  # only the closed division requires a sign-off
def test_each_file_of_a_submitted_run_is_read_once(
    build: Submit, monkeypatch: pytest.MonkeyPatch, division: str
) -> None:
    reads = count_reads(monkeypatch)
    assert build(division=division).all_findings == []
    assert {name for name, _ in reads} >= {"read_detail", "read_summary", "read_request_table", "read_accuracy_log"}
    assert {key for key, count in reads.items() if count > 1} == set()


def test_existing_files_are_not_overwritten(build: Submit, campaign: CampaignDir, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    assert build().all_findings == []  # an empty directory is accepted
    before = hashes_by_path(tree)
    with pytest.raises(SetupError, match="not empty"):
        build()
    assert hashes_by_path(tree) == before
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="not empty"):
        build(tree="file")
    with pytest.raises(SetupError, match="lies in"):
        build(tree="campaign/tree")


def test_a_failed_build_leaves_no_files(
    build: Submit, campaign: CampaignDir, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    existing = {path.name for path in tmp_path.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr("compliance.submission.build.MAX_FILE_BYTES", 10_000)
        with pytest.raises(SetupError, match="at most"):
            build()
    with monkeypatch.context() as patch:

        def disk_is_full(path: Path) -> dict[str, int]:
            raise OSError(28, "No space left on device")

        patch.setattr("compliance.submission.build._sizes", disk_is_full)
        with pytest.raises(SetupError, match="No space left"):
            build()
    assert {path.name for path in tmp_path.iterdir()} == existing


def test_a_log_changed_after_its_verdict_stops_the_build(
    build: Submit, campaign: CampaignDir, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    detail = campaign.result(BENCHMARK, "Server").performance.detail

    def change_log_and_sign_off(scope: str, directories: object, **options: object) -> SignOff:
        detail.write_text(detail.read_text() + "\n")
        return SignOff(details=SignOffDetails("bundle", 0.5, "closed"))

    monkeypatch.setattr("compliance.submission.build.judge_runs", change_log_and_sign_off)
    with pytest.raises(ExecutionError, match=detail.name):
        build()
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "two words", "-x", "Ö"])
def test_names_that_are_not_directory_names_are_refused(build: Submit, name: str) -> None:
    for option in ("organization", "system_name"):
        with pytest.raises(HarnessError, match="not a valid directory name"):
            build(**{option: name})


def command(campaign: CampaignDir, tmp_path: Path, *more: object) -> list[str]:
    system = tmp_path / "system.yaml"
    system.write_text(json.dumps({"system": SYSTEM}))
    arguments = [campaign.root, "--organization", "Org", "--system-name", "Box", "--source", tmp_path / "code"]
    return [*map(str, arguments), "--output", str(tmp_path / "tree"), *map(str, more)]


def test_the_command_prints_the_tree_and_the_next_command(
    campaign: CampaignDir, build: Submit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "record.json"
    words = command(campaign, tmp_path, "--system", tmp_path / "system.yaml", "--rehearsal", "--json", record)
    assert submit.main(words, standalone_mode=False) == ExitCode.OK
    output = capsys.readouterr().out
    campaign.configuration.write_text(json.dumps({"asked": {"system": str(tmp_path / "system.yaml")}}))
    again = command(campaign, tmp_path, "--rehearsal")  # the campaign names the file of --system
    again[again.index("--output") + 1] = str(tmp_path / "again")
    assert submit.main(again, standalone_mode=False) == ExitCode.OK
    assert hashes_by_path(tmp_path / "again") == hashes_by_path(tmp_path / "tree")
    capsys.readouterr()
    files = hashes_by_path(tmp_path / "tree")
    assert f"built {tmp_path / 'tree'}: {len(files)} files" in output
    assert f"{BENCHMARK}/Offline: PASS, audits: TEST06" in output
    assert "    cooling: air" in output
    assert "\nsign-off: " in output
    assert "REHEARSAL tree" in output
    same = f"--runs {campaign.root} --source {tmp_path / 'code'}"
    assert output.splitlines()[-1] == f"next: python main.py check {tmp_path / 'tree'} {same}"
    built = json.loads(record.read_bytes())
    assert set(built["files"]) == set(files)
    assert differences(built, "submit") == []


def test_the_command_prints_all_reasons_of_a_refusal(
    campaign: CampaignDir, build: Submit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "record.json"
    words = command(campaign, tmp_path, "--system", tmp_path / "system.yaml", "--json", record)
    assert submit.main(words, standalone_mode=False) == ExitCode.NEGATIVE
    output = capsys.readouterr().out
    refusals = json.loads(record.read_bytes())["findings"]
    assert f"REFUSED: {len(refusals)} findings with " in output
    for refusal in refusals:
        assert any(refusal["rule"] in line and refusal["text"] in line for line in output.splitlines())
    assert not (tmp_path / "tree").exists()
    record = json.loads(record.read_bytes())
    assert (record["verdict"], record["tree"], record["files"]) == ("REFUSED", None, {})
    assert differences(record, "submit") == []


def test_the_command_names_missing_system_fields(campaign: CampaignDir, build: Submit, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"status, .*host_memory_configuration.*cooling"):
        submit.main(command(campaign, tmp_path, "--rehearsal"), standalone_mode=False)
    with pytest.raises(InputError, match="--system"):
        submit.main(command(campaign, tmp_path, "--system", tmp_path / "missing.yaml"), standalone_mode=False)


# Derived files --------------------------------------------------------------------------------------------------------


SIZES = (2, 4095, 4096, 4097, 8191, 8192, 10_240, 100_000)


def run_with_responses(root: Path, size: int) -> RunDir:
    root.mkdir(parents=True)
    run = RunDir(root)
    run.accuracy_log.write_text("[" + "".join(chr(97 + n % 26) for n in range(size - 2)) + "]")
    run.accuracy_text.write_text("Results\n\n{'rouge1': '1.0'}\n")
    return run


@pytest.mark.parametrize("size", SIZES)
def test_a_truncated_log_keeps_both_ends_and_the_hash(tmp_path: Path, size: int) -> None:
    run = run_with_responses(tmp_path / "run", size)
    log = run.accuracy_log.read_bytes()
    submitted = submitted_accuracy(run)
    assert run.accuracy_log.read_bytes() == log
    assert submitted.text.endswith(f"\nhash={hashlib.sha256(log).hexdigest()}\n".encode())
    if size < 4096:
        assert submitted.log == log
    else:
        assert submitted.log == log[:4096] + b"\n\n...\n\n" + log[-4096:]


def test_an_already_truncated_log_keeps_its_hash(tmp_path: Path) -> None:
    run = run_with_responses(tmp_path / "run", 100_000)
    first = submitted_accuracy(run)
    run.accuracy_log.write_bytes(first.log)
    with pytest.raises(InputError, match=r"hash= line in .* is missing"):
        submitted_accuracy(run)
    run.accuracy_text.write_bytes(first.text)
    assert submitted_accuracy(run) == first
    run.accuracy_text.unlink()
    with pytest.raises(InputError, match=r"cannot read .*accuracy\.txt"):
        submitted_accuracy(run)


@needs_checkout
@pytest.mark.parametrize("size", SIZES)
def test_truncated_logs_equal_those_of_the_official_tool(tmp_path: Path, size: int) -> None:
    run = run_with_responses(tmp_path / "in/closed/Org/results/Box/llama3.1-8b/Offline/accuracy", size)
    submitted = submitted_accuracy(run)
    tool = Path(CHECKOUT) / "tools/submission/truncate_accuracy_log.py"
    command = [sys.executable, tool, "--input", tmp_path / "in", "--submitter", "Org", "--output", tmp_path / "out"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    official_run = RunDir(tmp_path / "out/closed/Org/results/Box/llama3.1-8b/Offline/accuracy")
    assert official_run.accuracy_log.read_bytes() == submitted.log
    assert official_run.accuracy_text.read_bytes() == submitted.text


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with two tracked files, a dot file and a link in one commit, and one untracked file."""
    root = tmp_path / "repository"
    (root / "sub").mkdir(parents=True)
    (root / "main.py").write_text("first\n")
    (root / "sub" / "tool.py").write_text("tool\n")
    (root / ".gitignore").write_text("x\n")
    (root / "link").symlink_to("main.py")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "one")
    (root / "untracked.txt").write_text("not ours\n")
    return root


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def ran(commit: str | None, changed: bool | None = False) -> list[Manifest]:
    return [official_record(harness={"version": "0.1.0", "git_commit": commit, "git_changed": changed})]


def test_the_source_of_the_recorded_commit_is_copied(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    (repository / "main.py").write_text("second\n")  # later than the runs
    source = read_source_code(None, ran(commit), repository)
    assert source.files == {"main.py": b"first\n", "sub/tool.py": b"tool\n"}
    assert source.left_out == [".gitignore", "link"]
    assert commit in source.readme()


def test_a_missing_commit_is_refused_with_a_request_for_source(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    for manifests, message in (
        (ran("f" * 40), "repository: commit .* is missing"),
        (ran(None), "commit of the harness is missing"),
        (ran(commit, changed=True), "uncommitted changes"),
        (ran(commit, changed=None), "uncommitted changes"),  # unknown
    ):
        with pytest.raises(SetupError, match=message) as caught:
            read_source_code(None, manifests, repository)
        assert "--source DIR" in caught.value.fix


def test_a_named_source_directory_is_copied(repository: Path, tmp_path: Path) -> None:
    (repository / "main.py").write_text("second\n")
    source = read_source_code(repository, ran("f" * 40, changed=True))
    assert source.files == {"main.py": b"second\n", "sub/tool.py": b"tool\n"}
    assert "with uncommitted changes" in source.readme()
    assert f"The runs used commit `{'f' * 40}` with uncommitted changes." in source.readme()
    (repository / "diagrams").mkdir()  # in a checkout without tracked files
    (repository / "diagrams" / "network.svg").write_text("a box\n")
    assert read_documentation(repository / "diagrams") == {"network.svg": b"a box\n"}
    plain = tmp_path / "plain"
    (plain / "__pycache__").mkdir(parents=True)
    (plain / "__pycache__" / "x.pyc").write_text("")
    (plain / ".env").write_text("secret")
    with pytest.raises(InputError, match="no files found"):
        read_source_code(plain, ran(None))
    (plain / "run.py").write_text("")
    assert read_source_code(plain, ran(None)).files == {"run.py": b""}
    with pytest.raises(InputError, match="not a directory"):
        read_source_code(plain / "run.py", ran(None))
